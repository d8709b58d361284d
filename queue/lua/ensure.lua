-- Ensure: makes the group and the settings of a partition where they are
-- missing, and compares those that exist.
--
-- KEYS[1] stream stream      KEYS[2] conf hash
-- ARGV[1] group              ARGV[2] partitions
-- ARGV[3] lease_ms           the longest lease this caller grants
-- Replies: partitions as the queue was made, name of another group that reads
-- the stream ('' when there is none).

local stream, conf = KEYS[1], KEYS[2]
local made = redis.call('HGET', conf, 'partitions')
if made and made ~= ARGV[2] then return {made, ''} end
redis.call('HDEL', conf, '') -- a removal first: accepted by a full server
if not made then redis.call('HSET', conf, 'partitions', ARGV[2]) end
local longest = tonumber(redis.call('HGET', conf, 'lease_ms') or 0)
if tonumber(ARGV[3]) > longest then redis.call('HSET', conf, 'lease_ms', ARGV[3]) end

local created = redis.pcall('XGROUP', 'CREATE', stream, ARGV[1], '0', 'MKSTREAM')
if type(created) == 'table' and created.err and not string.find(created.err, 'BUSYGROUP', 1, true) then
  return redis.error_reply(created.err)
end
local groups, other = redis.call('XINFO', 'GROUPS', stream), ''
for i = 1, #groups do
  for f = 1, #groups[i], 2 do
    if groups[i][f] == 'name' and groups[i][f + 1] ~= ARGV[1] then other = groups[i][f + 1] end
  end
end
return {ARGV[2], other}
