-- walk(consumer, rows, idle_ms): looks at some pending entries (of one consumer,
-- or of all where it is ''), from where the last walk stopped, and calls
-- found(entry, id, rec, consumer) for each that was delivered at least idle_ms
-- ago and that no live lease covers. Answers the number of rows.
-- A delivery in the future, before the server's clock was stepped back, shows as
-- idle for 0 ms: under a consumer's own name, which is walked only when nothing
-- was heard of it for long, that is no delivery of this moment.
local function walk(keys, group, consumer, rows, idle_ms, now, found)
  local cursor = 'walk:' .. consumer
  local from = redis.call('HGET', keys.conf, cursor) or '-'
  local page
  if consumer == '' then
    page = redis.call('XPENDING', keys.stream, group, from, '+', rows)
  else
    page = redis.call('XPENDING', keys.stream, group, from, '+', rows, consumer)
  end
  for i = 1, #page do
    local entry, idle = page[i][1], tonumber(page[i][3])
    if idle >= idle_ms or (idle == 0 and consumer ~= '') then
      local fields = take(keys.stream, entry)
      local id = entry .. keys.suffix
      for f = 1, fields and #fields or 0, 2 do
        if fields[f] == 'id' then id = fields[f + 1] break end
      end
      local rec, covered = redis.call('HGET', keys.tasks, id), false
      if rec then
        local _, at, _, _, token = parse(rec)
        local ends = at == entry and token and redis.call('ZSCORE', keys.leases, token)
        covered = ends and tonumber(ends) > now
      end
      if not covered and not found(entry, id, rec, page[i][2]) then
        redis.call('HSET', keys.conf, cursor, entry)
        return #page
      end
    end
  end
  -- The last row is looked at again next time: an entry ID plus one does not
  -- fit Lua's numbers, and one row costs little.
  if #page == rows then
    redis.call('HSET', keys.conf, cursor, page[#page][1])
  else
    redis.call('HDEL', keys.conf, cursor)
  end
  return #page
end
