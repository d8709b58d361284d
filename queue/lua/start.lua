-- Start: puts on record that the handlers of held tasks start now.
--
-- KEYS[1] tasks hash         KEYS[2] leases zset
-- ARGV[1] n                  tasks; then n IDs, n tails (" <fence> <token>")
-- Replies: the indexes of the tasks whose lease has ended or is another's.
-- Keeps I2, I6, I7.
-- @include clock record

local tasks, leases, n = KEYS[1], KEYS[2], tonumber(ARGV[1])
local now = clock()
local recs = redis.call('HMGET', tasks, unpack(ARGV, 2, 1 + n))
local lives, lost, set = {}, {}, {}
for i = 1, n do
  local rec, tail = recs[i], ARGV[1 + n + i]
  local tok = string.match(tail, '(%S+)$')
  if lives[tok] == nil then
    local ends = redis.call('ZSCORE', leases, tok)
    lives[tok] = (ends and tonumber(ends) > now) or false
  end
  if not (lives[tok] and held_by(rec, tail)) then
    lost[#lost + 1] = i
  elseif string.sub(rec, 1, 1) == 'h' then
    set[#set + 1] = ARGV[1 + i]
    set[#set + 1] = 'p' .. string.sub(rec, 2)
  end
end
redis.call('ZREM', leases, '') -- a removal first: accepted by a full server
if #set > 0 then redis.call('HSET', tasks, unpack(set)) end
return lost
