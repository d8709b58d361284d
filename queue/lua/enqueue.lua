-- Enqueue: adds tasks whose IDs are neither live nor done.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] scheduled stream
-- KEYS[4] due zset           KEYS[5] dead stream        KEYS[6] leases zset
-- KEYS[7] conf hash          KEYS[8] fence string       KEYS[9] done1 hash
-- KEYS[10] done2 hash        KEYS[11] done3 hash        KEYS[12] counts hash
-- KEYS[13] events stream
-- ARGV[1] tag                of the call, so that its own re-send is recognised
-- ARGV[2] window_ms          retention window
-- ARGV[3] backlog            unfinished tasks allowed in this partition, 0 unbounded
-- ARGV[4] partitions         of the queue
-- ARGV[5] trace              1: tell of everything
-- ARGV[6] twice              1: the call may name an ID twice
-- ARGV[7] when               1: there are due times
-- ARGV[8] shapes             how many lists of fields there are
-- ARGV[9] n                  tasks; then n IDs, n digests; with due times n of them
--                            ('' now, '+ms' from now, 'ms' absolute); of each shape
--                            the number of its fields, 'id' left out, and of those
--                            whose values differ, all names with a value, and the
--                            places of those that differ (1: the first); with several
--                            shapes the shape of each task; all values that differ
-- Replies: MISMATCH <partitions> when the queue was made with another number,
-- UNMADE when this partition was never made: nobody may read it; else exceptions,
-- two strings each: index, and 'added <place>', 'duplicate <place>', 'full' or
-- 'error <text>' (not added). Without one a task is added and waits. When all are
-- errors, the first of them alone.
-- Keeps I1, I5, I7, I8. Its first write is one that a full server refuses, so
-- that it is refused whole.
-- @include clock record done move events

local ARGV, call, pcall, unpack = ARGV, redis.call, redis.pcall, unpack
local stream, tasks, scheduled, due, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tag, window, backlog, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[9])
local ids, digests = 9, 9 + n
local at = 9 + 2 * n -- the last argument that was looked at
local dues = ARGV[7] == '1' and at
if dues then at = at + n end

-- shapes: of each the command that adds an entry; holes: where values go that differ.
local shapes, holes = {}, {}
for s = 1, tonumber(ARGV[8]) do
  local fields, differ = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  at = at + 2 + 2 * fields
  shapes[s], holes[s] = {'XADD', stream, '*', 'id', '', unpack(ARGV, at - 2 * fields + 1, at)}, {}
  for h = 1, differ do holes[s][h] = 5 + 2 * tonumber(ARGV[at + h]) end
  at = at + differ
end
local shaped = #shapes > 1 and at
if shaped then at = at + n end

local parts = call('HGET', KEYS[7], 'partitions')
if not parts then return redis.error_reply('UNMADE partition') end
if parts ~= ARGV[4] then return redis.error_reply('MISMATCH ' .. parts) end

local now, us = clock()
local live = done_slices({KEYS[9], KEYS[10], KEYS[11]}, done_time(us, KEYS[8], window), window)
local recs = call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
local marks = done_marks(live, digests + 1, digests + n)
local room = -1
if backlog > 0 then
  room = math.max(0, backlog - call('XLEN', stream) - call('XLEN', scheduled))
end

-- lost(rec): whether the entry behind the record was deleted from outside, in
-- which case the ID is free again.
local function lost(rec, id)
  local place, entry, _, _, token = parse(rec)
  if place == 's' then return not take(scheduled, entry) end
  if place == 'd' then return not take(dead, entry) end
  if token then
    local ends = call('ZSCORE', KEYS[6], token)
    if ends and tonumber(ends) > now then return false end
  end
  return not take(stream, entry)
end

-- later(id, command, when): schedules the task that the command would add.
-- Answers its record, an error table, or nil: it is due.
local function later(id, command, when)
  local ms = tonumber(when)
  if string.sub(when, 1, 1) == '+' then ms = now + tonumber(string.sub(when, 2)) end
  if ms <= now then return nil end
  local entry = schedule(scheduled, due, id, portable({unpack(command, 4)}, id, int(now)), ms)
  return failed(entry) and entry or 's' .. entry .. ' ' .. tag
end

local trace, twice = ARGV[5] == '1', ARGV[6] == '1'
local out, told, seen, refused = {}, trace and {}, {}, 0
local suffix = ' ' .. tag
local function say(i, text)
  out[#out + 1] = int(i)
  out[#out + 1] = text
  if trace then told[i] = text end
end

-- known(i, id, rec, mark): answers for a task that is not to be added, if it is one.
local function known(i, id, rec, mark)
  if seen[id] then
    say(i, 'duplicate ' .. seen[id])
  elseif mark then
    say(i, (string.sub(mark, 8) == tag and 'added' or 'duplicate') .. ' done')
    seen[id] = 'done'
  elseif rec and not lost(rec, id) then
    local place, _, was = parse(rec)
    say(i, (enqueue_tag(was) == tag and 'added ' or 'duplicate ') .. places[place])
    seen[id] = places[place]
  elseif room == 0 then
    say(i, 'full')
  else
    return false
  end
  return true
end

-- set: n times ID and record, of which the first k strings count. It begins as so
-- many other strings: a table that does not grow is filled faster.
local set, k = {unpack(ARGV, ids + 1, ids + 2 * n)}, 0
local command, hole = shapes[1], holes[1]
local plain = not (twice or dues or trace) and room < 0
for i = 1, n do
  local id, rec, mark = ARGV[ids + i], recs[i], marks[i]
  if shaped then
    local s = tonumber(ARGV[shaped + i])
    command, hole = shapes[s], holes[s]
  end
  command[5] = id
  for h = 1, #hole do
    at = at + 1
    command[hole[h]] = ARGV[at]
  end
  if plain and not rec and not mark then
    local entry = pcall(unpack(command))
    if entry.err then
      refused = refused + 1
      say(i, 'error ' .. entry.err)
    else
      set[k + 1], set[k + 2] = id, 'w' .. entry .. suffix
      k = k + 2
    end
  elseif not known(i, id, rec, mark) then
    local when, place = dues and ARGV[dues + i] or '', 'waiting'
    local new = when ~= '' and later(id, command, when)
    if new then
      place = 'scheduled'
    else
      new = pcall(unpack(command))
      if not new.err then new = 'w' .. new .. suffix end
    end
    if new.err then
      refused = refused + 1
      say(i, 'error ' .. new.err)
    else
      if rec then call('HDEL', KEYS[12], id) end -- of the task that was lost
      set[k + 1], set[k + 2] = id, new
      k = k + 2
      if twice then seen[id] = place end
      if room > 0 then room = room - 1 end
      if place ~= 'waiting' then say(i, 'added ' .. place) end
      if trace then told[i] = 'enqueued ' .. place end
    end
  end
end
if refused == n then return redis.error_reply(string.sub(out[2], 7)) end
if k > 0 then call('HSET', tasks, unpack(set, 1, k)) end
-- A producer that sends a million IDs again would push out all other events, so
-- its duplicates are told like additions: on request only.
for i = 1, trace and n or 0 do
  local what, place = string.match(told[i], '^(%a+) ?(.*)$')
  if what == 'enqueued' or what == 'duplicate' then
    note(KEYS[13], what, ARGV[ids + i], {token = tag, detail = place})
  end
end
return out
