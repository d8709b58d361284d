-- Release: ends a lease that has not ended.
--
-- KEYS[1] lease hash
-- ARGV[1] token              ARGV[2] keep_ms            ARGV[3] traces   how many answers are remembered
-- Replies: '+' released, '' lost: the lease had ended, or another token has it.
-- Asked again: the same, while the answer is among those remembered. An acquire of
-- the same token that is still on its way comes to nothing.

local key, token, traces = KEYS[1], ARGV[1], tonumber(ARGV[3])
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local has = redis.call('HMGET', key, 'token', 'ends', 'released')
local before = has[3] or ''
if string.find(before, '+' .. token .. ' ', 1, true) then return '+' end
if string.find(before, '-' .. token .. ' ', 1, true) then return '' end

local answer = '-'
redis.call('HDEL', key, '') -- a removal first: accepted by a full server
if has[1] == token then
  if tonumber(has[2]) > now then answer = '+' end
  redis.call('HDEL', key, 'token', 'length', 'ends')
end
redis.call('HSET', key, 'released', string.sub(answer .. token .. ' ' .. before, 1, traces * (#token + 2)))
redis.call('PEXPIRE', key, math.max(tonumber(ARGV[2]), redis.call('PTTL', key)))
return answer == '+' and '+' or ''
