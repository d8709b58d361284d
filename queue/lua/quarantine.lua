-- Quarantine: moves entries that are no task to the dead letters, once and
-- byte for byte.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] dead stream
-- KEYS[4] events stream
-- ARGV[1] group              ARGV[2] consumer
-- ARGV[3] n                  entries; then n entry IDs, n names, n reasons
-- Replies: indexes of entries that were not moved: neither pending nor moved before.
-- Keeps I1, I7. An entry is acked after its copy was made.
-- @include clock record move events

local stream, tasks, dead, group, n = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[3])
local now = clock()
redis.call('HDEL', tasks, '') -- a removal first: accepted by a full server

-- packed: more fields than one call can carry, as one: "<length>:<bytes>" each.
local function packed(fields)
  if #fields <= 1000 then return fields end
  for i = 1, #fields do fields[i] = #fields[i] .. ':' .. fields[i] end
  return {'packed_fields', table.concat(fields)}
end

local missed = {}
for i = 1, n do
  local entry, name = ARGV[3 + i], ARGV[3 + n + i]
  local pending = redis.call('XPENDING', stream, group, entry, entry, 1)
  if #pending == 0 then
    local rec = redis.call('HGET', tasks, name)
    if not (rec and string.sub(rec, 1, 1) == 'd') then missed[#missed + 1] = i end
  else
    local fields = take(stream, entry)
    if fields then
      local moved = bury(dead, name, entry, packed(fields), 'undecodable', ARGV[3 + 2 * n + i], 0, 0, now)
      if failed(moved) then return moved end
      -- A task that is named like this entry keeps its record; the dead
      -- letter then has none.
      local rec = redis.call('HGET', tasks, name)
      if not rec or enqueue_tag(select(3, parse(rec))) == '!' then
        redis.call('HSET', tasks, name, 'd' .. moved .. ' !')
      end
      note(KEYS[4], 'quarantined', name, {by = ARGV[2], detail = 'undecodable', err = ARGV[3 + 2 * n + i]})
    end
    redis.call('XACK', stream, group, entry)
    redis.call('XDEL', stream, entry)
  end
end
return missed
