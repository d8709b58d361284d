-- Start: puts on record that the handlers of held tasks start now.
--
-- KEYS[1] tasks hash         KEYS[2] leases zset        KEYS[3] events stream
-- ARGV[1] consumer           ARGV[2] trace              1: tell of everything
-- ARGV[3] n                  tasks; then n IDs, n tails (" <fence> <token>")
-- Replies: the indexes of the tasks whose lease has ended or is another's.
-- Keeps I2, I6, I7.
-- @include clock record events

local tasks, leases, n = KEYS[1], KEYS[2], tonumber(ARGV[3])
local now = clock()
local recs = redis.call('HMGET', tasks, unpack(ARGV, 4, 3 + n))
local lives, lost, set, told = {}, {}, {}, nil
for i = 1, n do
  local rec, tail = recs[i], ARGV[3 + n + i]
  local tok = string.match(tail, '(%S+)$')
  if lives[tok] == nil then
    local ends = redis.call('ZSCORE', leases, tok)
    lives[tok] = (ends and tonumber(ends) > now) or false
  end
  if not (lives[tok] and held_by(rec, tail)) then
    lost[#lost + 1] = i
    told = told or {}
    told[#told + 1] = {i, 'lease_lost', {stage = 'h', detail = 'found out at its start'}}
  elseif string.sub(rec, 1, 1) == 'h' then
    set[#set + 1] = ARGV[3 + i]
    set[#set + 1] = 'p' .. string.sub(rec, 2)
    if ARGV[2] == '1' then
      told = told or {}
      told[#told + 1] = {i, 'started', {stage = 'p'}}
    end
  end
end
redis.call('ZREM', leases, '') -- a removal first: accepted by a full server
if #set > 0 then redis.call('HSET', tasks, unpack(set)) end
for t = 1, told and #told or 0 do
  local i, e = told[t][1], told[t][3]
  e.by, e.tail, e.leases = ARGV[1], ARGV[3 + n + i], leases
  note(KEYS[3], told[t][2], ARGV[3 + i], e)
end
return lost
