-- Split: moves leases into a grant of their own with the same fence and the
-- same end, so that they can run out while their neighbours are renewed.
--
-- KEYS[1] tasks hash         KEYS[2] leases zset        KEYS[3] grants hash
-- KEYS[4] events stream
-- ARGV[1] token              of the new grant
-- ARGV[2] members            "entry id\n" of every task
-- ARGV[3] consumer
-- ARGV[4] n                  tasks; then n IDs, n tails (" <fence> <token>")
-- Replies: the indexes of the tasks that are another's.
-- Keeps I2, I4, I7.
-- @include clock record events

local tasks, leases, token, n = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[4])
local now = clock()
local recs = redis.call('HMGET', tasks, unpack(ARGV, 5, 4 + n))
local lost, set, told, latest = {}, {}, {}, now
for i = 1, n do
  local rec, tail = recs[i], ARGV[4 + n + i]
  local fence, old = string.match(tail, '^ (%d+) (%S+)$')
  local new = ' ' .. fence .. ' ' .. token
  if held_by(rec, tail) then
    set[#set + 1] = ARGV[4 + i]
    set[#set + 1] = string.sub(rec, 1, -#tail - 1) .. new
    local ends = tonumber(redis.call('ZSCORE', leases, old) or now)
    if ends > latest then latest = ends end
    told[#told + 1] = {ARGV[4 + i], {by = ARGV[3], token = token, fence = fence, stage = string.sub(rec, 1, 1), detail = string.sub(old, 1, 6) .. string.sub(old, 13)}}
  elseif not held_by(rec, new) then
    lost[#lost + 1] = i
  end
end
redis.call('ZREM', leases, '') -- a removal first: accepted by a full server
if #set > 0 then
  redis.call('ZADD', leases, int(latest), token)
  -- Added to what an earlier call put into the same grant.
  redis.call('HSET', KEYS[3], token, (redis.call('HGET', KEYS[3], token) or '') .. ARGV[2])
  redis.call('HSET', tasks, unpack(set))
  for i = 1, #told do
    told[i][2].ends = int(latest)
    note(KEYS[4], 'split', told[i][1], told[i][2])
  end
end
return lost
