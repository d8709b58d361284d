-- take(stream, entry): the fields of an entry, nil when it was deleted from
-- outside.
local function take(stream, entry)
  local e = redis.call('XRANGE', stream, entry, entry)
  return e[1] and e[1][2]
end

-- portable(fields, id, entry): the fields with the task ID and the time of the
-- first enqueue in them. Where they were not given they are read from the entry
-- ID, and would change with it.
local function portable(fields, id, entry)
  local named, aged = false, false
  for i = 1, #fields, 2 do
    if fields[i] == 'id' then named = true end
    if fields[i] == 'enqueued_ms' then aged = true end
  end
  if not named then
    fields[#fields + 1] = 'id'
    fields[#fields + 1] = id
  end
  if not aged then
    fields[#fields + 1] = 'enqueued_ms'
    fields[#fields + 1] = string.match(entry, '^%d+')
  end
  return fields
end

-- bury(dead, id, entry, fields, reason, err, failures, interruptions, ms): adds
-- a dead letter: eight pairs of what is known, then the entry's own fields.
-- Answers the new entry or an error table.
local function bury(dead, id, entry, fields, reason, err, f, i, ms)
  return redis.pcall('XADD', dead, '*', 'dead_reason', reason, 'dead_error', err,
    'dead_failures', int(f), 'dead_interruptions', int(i), 'dead_ms', int(ms),
    'dead_task', id, 'dead_entry', entry, 'dead_fields', int(#fields), unpack(fields))
end

local function failed(reply)
  return type(reply) == 'table' and reply.err
end

-- due_member(entry, id): how the schedule names a task: with its entry, so that
-- it can be promoted even if its record was lost.
local function due_member(entry, id)
  return entry .. ' ' .. id
end

-- schedule(scheduled, due, id, fields, ms): adds a scheduled task. Answers the
-- new entry or an error table; then nothing was added.
local function schedule(scheduled, due, id, fields, ms)
  local entry = redis.pcall('XADD', scheduled, '*', unpack(fields))
  if failed(entry) then return entry end
  local indexed = redis.pcall('ZADD', due, int(ms), due_member(entry, id))
  if failed(indexed) then
    redis.call('XDEL', scheduled, entry)
    return indexed
  end
  return entry
end
