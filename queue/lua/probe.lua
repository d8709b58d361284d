-- Probe: calls every command the queue needs on a scratch key, and removes it.
--
-- KEYS[1] probe any
-- Replies: flat list of command and error for those that failed.

local key, out = KEYS[1], {}
local function try(name, ...)
  local reply = redis.pcall(name, ...)
  if type(reply) == 'table' and reply.err then
    out[#out + 1] = name
    out[#out + 1] = reply.err
  end
  return reply
end

try('TIME')
try('UNLINK', key)
local entry = try('XADD', key, '*', 'a', 'b')
if type(entry) ~= 'string' then entry = '0-1' end
try('XGROUP', 'CREATE', key, 'g', '0')
try('XREADGROUP', 'GROUP', 'g', 'c', 'COUNT', 1, 'STREAMS', key, '>')
try('XLEN', key)
try('XRANGE', key, '-', '+', 'COUNT', 1)
try('XCLAIM', key, 'g', 'c', 0, entry, 'FORCE')
try('XPENDING', key, 'g', '-', '+', 1)
try('XINFO', 'GROUPS', key)
try('XINFO', 'CONSUMERS', key, 'g')
try('XACK', key, 'g', entry)
try('XDEL', key, entry)
try('XGROUP', 'DELCONSUMER', key, 'g', 'c')
try('UNLINK', key)
try('HSET', key, 'a', 'b')
try('HGET', key, 'a')
try('HMGET', key, 'a')
try('HEXISTS', key, 'a')
try('HSCAN', key, '0')
try('HDEL', key, 'a')
try('UNLINK', key)
try('ZADD', key, 1, 'a')
try('ZSCORE', key, 'a')
try('ZMSCORE', key, 'a')
try('ZCOUNT', key, '-inf', '+inf')
try('ZRANGEBYSCORE', key, '-inf', '+inf', 'LIMIT', 0, 1)
try('ZREM', key, 'a')
try('SET', key, '1')
try('GET', key)
try('EXISTS', key)
try('UNLINK', key)
return out
