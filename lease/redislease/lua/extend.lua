-- Extend: makes a lease last from now that has not ended.
--
-- KEYS[1] lease hash
-- ARGV[1] token              ARGV[2] lease_ms           ARGV[3] keep_ms
-- Replies: '+' extended, '' lost: the lease has ended, or another token has it.
-- A lease that has ended is never revived, also where nobody took it.

local key = KEYS[1]
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local has = redis.call('HMGET', key, 'token', 'ends')
if has[1] ~= ARGV[1] or tonumber(has[2]) <= now then return '' end
redis.call('HDEL', key, '') -- a removal first: accepted by a full server
redis.call('HSET', key, 'length', ARGV[2], 'ends', string.format('%.0f', now + tonumber(ARGV[2])))
redis.call('PEXPIRE', key, string.format('%.0f', tonumber(ARGV[2]) + tonumber(ARGV[3])))
return '+'
