-- Acquire: takes a lease that nobody holds.
--
-- KEYS[1] lease hash
-- ARGV[1] token              ARGV[2] lease_ms           ARGV[3] keep_ms
-- Replies: {code, fence}
--   granted   the caller holds it, with this fence
--   held      another token holds it; fence 0
--   released  the token was given back before this call came; fence 0
-- Asked again with the token of a live lease: the same fence, and the lease lasts
-- from the second ask, as the caller counts it. A lease that would end later than
-- its length from now was granted before the clock was stepped back: it is cut to
-- its length. The fence is the larger of the
-- last one plus one and the server's microseconds, so it grows also when the key
-- was lost. The key expires keep_ms after the lease.

local key, token = KEYS[1], ARGV[1]
local t = redis.call('TIME')
local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
local now = math.floor(us / 1000)

-- int(n): n without the exponent that Lua would print from 1e14 on.
local function int(n)
  return string.format('%.0f', n)
end

local has = redis.call('HMGET', key, 'token', 'ends', 'fence', 'released', 'length')
local live = has[1] and tonumber(has[2]) > now
if live and has[1] ~= token then
  local latest = now + tonumber(has[5] or ARGV[2])
  if tonumber(has[2]) > latest then
    redis.call('HDEL', key, '') -- a removal first: accepted by a full server
    redis.call('HSET', key, 'ends', int(latest))
  end
  return {'held', '0'}
end
if string.find(has[4] or '', token, 1, true) then return {'released', '0'} end

local fence = has[3]
if not live then
  fence = int(math.max(tonumber(has[3] or 0) + 1, us))
  if tonumber(fence) >= 2 ^ 53 then
    return redis.error_reply('ERR the fence is beyond 2^53, where two fences would be one')
  end
end
redis.call('HSET', key, 'token', token, 'length', ARGV[2], 'ends', int(now + tonumber(ARGV[2])), 'fence', fence)
redis.call('PEXPIRE', key, int(tonumber(ARGV[2]) + tonumber(ARGV[3])))
return {'granted', fence}
