-- Stats: the state of a partition at one moment, at constant cost.
--
-- KEYS[1] stream stream      KEYS[2] scheduled stream   KEYS[3] dead stream
-- KEYS[4] leases zset        KEYS[5] consumers zset
-- ARGV[1] group              ARGV[2] grace_ms
-- Replies: now_ms, waiting, pending, scheduled, dead, ended grants, live
-- consumers. waiting is the length of the stream less what is pending, since
-- finished entries are deleted; the group's own lag is null in normal operation.
-- @include clock

local now = clock()
local length, pending = redis.call('XLEN', KEYS[1]), 0
if length > 0 then
  local summary = redis.pcall('XPENDING', KEYS[1], ARGV[1])
  if not summary.err then pending = summary[1] end
end
return {now, math.max(0, length - pending), pending, redis.call('XLEN', KEYS[2]), redis.call('XLEN', KEYS[3]),
  redis.call('ZCOUNT', KEYS[4], '-inf', int(now)), redis.call('ZCOUNT', KEYS[5], int(now - tonumber(ARGV[2])), '+inf')}
