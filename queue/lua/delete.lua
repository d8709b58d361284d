-- Delete: removes tasks by ID from wherever they are.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] scheduled stream
-- KEYS[4] due zset           KEYS[5] dead stream        KEYS[6] revoked hash
-- KEYS[7] counts hash        KEYS[8] steps hash         KEYS[9] done1 hash
-- KEYS[10] done2 hash        KEYS[11] done3 hash        KEYS[12] kept1 hash
-- KEYS[13] kept2 hash        KEYS[14] kept3 hash        KEYS[15] events stream
-- ARGV[1] group
-- ARGV[2] n                  tasks; then n IDs, n digests
-- Replies: n places the tasks were in, '' for an ID that is not known.
-- Keeps I1: the record goes in the same step as the entry, so the holder's
-- later settle finds nothing; it is told at its next renewal.
-- @include clock record move events

local stream, tasks, group, n = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local recs = redis.call('HMGET', tasks, unpack(ARGV, 3, 2 + n))
local replies = {}
for i = 1, n do
  local id, digest, rec = ARGV[2 + i], ARGV[2 + n + i], recs[i]
  redis.call('HDEL', KEYS[7], id)
  redis.call('HDEL', KEYS[8], id)
  replies[i] = ''
  if rec then
    local place, entry, _, _, token = parse(rec)
    replies[i] = places[place]
    redis.call('HDEL', tasks, id)
    if place == 's' then
      redis.call('ZREM', KEYS[4], due_member(entry, id))
      redis.call('XDEL', KEYS[3], entry)
    elseif place == 'd' then
      redis.call('XDEL', KEYS[5], entry)
    else
      redis.call('XACK', stream, group, entry)
      redis.call('XDEL', stream, entry)
      if token then
        redis.call('HSET', KEYS[6], token, (redis.call('HGET', KEYS[6], token) or '') .. id .. '\n')
      end
    end
  else
    for s = 9, 11 do
      if redis.call('HDEL', KEYS[s], digest) == 1 then replies[i] = 'done' end
      redis.call('HDEL', KEYS[s + 3], digest, digest .. '/')
    end
  end
  if replies[i] ~= '' then note(KEYS[15], 'deleted', id, {detail = replies[i]}) end
end
return replies
