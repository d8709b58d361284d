-- Renew: extends grants whose lease has not ended.
--
-- KEYS[1] leases zset        KEYS[2] revoked hash       KEYS[3] grants hash
-- KEYS[4] tasks hash         KEYS[5] events stream
-- ARGV[1] consumer           ARGV[2] trace              1: tell of everything
-- ARGV[3] n                  grants; then n tokens, n lease_ms
-- Replies: n strings: '' lost, '+' extended, '+<id>\n<id>\n' extended, but
-- these tasks of the grant were deleted.
-- Keeps I2, I4, I7: an ended lease is never revived.
-- @include clock events

local leases, n = KEYS[1], tonumber(ARGV[3])
local now = clock()
local ends = redis.call('ZMSCORE', leases, unpack(ARGV, 4, 3 + n))
local revoked = redis.call('HMGET', KEYS[2], unpack(ARGV, 4, 3 + n))
local replies, add = {}, {}
for i = 1, n do
  if ends[i] and tonumber(ends[i]) > now then
    add[#add + 1] = int(now + tonumber(ARGV[3 + n + i]))
    add[#add + 1] = ARGV[3 + i]
    replies[i] = '+' .. (revoked[i] or '')
  else
    replies[i] = ''
  end
end
redis.call('ZREM', leases, '') -- a removal first: accepted by a full server
if #add > 0 then redis.call('ZADD', leases, 'XX', unpack(add)) end

for i = 1, n do
  local token = ARGV[3 + i]
  if replies[i] == '' then
    -- Its tasks that nobody has taken yet, as many as fit into a text.
    local members, ids, text = redis.pcall('HGET', KEYS[3], token), {}, ''
    for id in string.gmatch(type(members) == 'string' and members or '', '%S+ (%S+)\n') do
      if #ids < 256 then ids[#ids + 1] = id end
    end
    local recs = #ids > 0 and redis.pcall('HMGET', KEYS[4], unpack(ids)) or {}
    for j = 1, #ids do
      local rec, tail = recs[j], ' ' .. token
      if rec and string.sub(rec, -#tail) == tail and #text + #ids[j] < ERROR_BYTES then
        text = text .. (text == '' and '' or ' ') .. ids[j]
      end
    end
    note(KEYS[5], 'lease_lost', '', {by = ARGV[1], token = token, ends = ends[i], detail = text})
  elseif ARGV[2] == '1' then
    note(KEYS[5], 'renewed', '', {by = ARGV[1], token = token, ends = int(now + tonumber(ARGV[3 + n + i]))})
  end
end
return replies
