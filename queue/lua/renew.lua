-- Renew: extends grants whose lease has not ended.
--
-- KEYS[1] leases zset        KEYS[2] revoked hash
-- ARGV[1] n                  grants; then n tokens, n lease_ms
-- Replies: n strings: '' lost, '+' extended, '+<id>\n<id>\n' extended, but
-- these tasks of the grant were deleted.
-- Keeps I2, I4, I7: an ended lease is never revived.
-- @include clock

local leases, n = KEYS[1], tonumber(ARGV[1])
local now = clock()
local ends = redis.call('ZMSCORE', leases, unpack(ARGV, 2, 1 + n))
local revoked = redis.call('HMGET', KEYS[2], unpack(ARGV, 2, 1 + n))
local replies, add = {}, {}
for i = 1, n do
  if ends[i] and tonumber(ends[i]) > now then
    add[#add + 1] = int(now + tonumber(ARGV[1 + n + i]))
    add[#add + 1] = ARGV[1 + i]
    replies[i] = '+' .. (revoked[i] or '')
  else
    replies[i] = ''
  end
end
redis.call('ZREM', leases, '') -- a removal first: accepted by a full server
if #add > 0 then redis.call('ZADD', leases, 'XX', unpack(add)) end
return replies
