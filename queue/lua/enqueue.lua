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
-- UNMADE when this partition was never made: nobody may read it; else the number of
-- tasks that are added and wait and are not named after it, then exceptions, two
-- strings each: index, and 'added <place>', 'duplicate <place>', 'full' or 'error
-- <text>' (not added). When all are errors, the first of them alone.
-- Keeps I1, I5, I7, I8. Its first write is one that a full server refuses, so
-- that it is refused whole.

local ARGV, KEYS, call, pcall, unpack = ARGV, KEYS, redis.call, redis.pcall, unpack
local stream, tasks, scheduled, due, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tag, window, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[9])
local ids, digests = 9, 9 + n
local at = 9 + 2 * n -- the last argument that was looked at
local dues = ARGV[7] == '1' and at
if dues then at = at + n end

-- command: adds an entry of the present shape; hole: where values go that differ.
-- With several shapes, all of them.
local command, hole, commands, holes
repeat
  local fields, differ = tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  at = at + 2 + 2 * fields
  command, hole = {'XADD', stream, '*', 'id', '', unpack(ARGV, at - 2 * fields + 1, at)}, {}
  for h = 1, differ do hole[h] = 5 + 2 * ARGV[at + h] end
  at = at + differ
  if ARGV[8] ~= '1' then
    commands, holes = commands or {}, holes or {}
    commands[#commands + 1], holes[#holes + 1] = command, hole
  end
until not commands or #commands == tonumber(ARGV[8])
local shaped = commands and at
if shaped then at = at + n end

local parts = call('HGET', KEYS[7], 'partitions')
if not parts then return redis.error_reply('UNMADE partition') end
if parts ~= ARGV[4] then return redis.error_reply('MISMATCH ' .. parts) end

local fencekey = KEYS[8]
-- @include now done_now
local recs = call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
-- marks: the done mark of each, if it has one (include/done.lua, done_slices).
local oldest, marks = ms - ms % window - window, false
for s = 9, 11 do
  local began = call('HGET', KEYS[s], '')
  if began and tonumber(began) >= oldest then
    local found = call('HMGET', KEYS[s], unpack(ARGV, digests + 1, digests + n))
    for i = 1, marks and n or 0 do found[i] = found[i] or marks[i] end
    marks = found
  end
end
local room = -1
if ARGV[3] ~= '0' then
  room = math.max(0, ARGV[3] - call('XLEN', stream) - call('XLEN', scheduled))
end

-- set: n times ID and record, of which the first k strings count. It begins as so
-- many other strings: a table that does not grow is filled faster.
local set, k = {unpack(ARGV, ids + 1, ids + 2 * n)}, 0
local trace, twice, suffix = ARGV[5] == '1', ARGV[6] == '1', ' ' .. tag
local out, refused = {}, 0

-- New tasks that are due, up to the first that is not.
local plain, i = not (twice or dues or trace), 1
while plain and i <= n and not recs[i] and not (marks and marks[i]) and room ~= 0 do
  if shaped then
    local s = tonumber(ARGV[shaped + i])
    command, hole = commands[s], holes[s]
  end
  command[5] = ARGV[ids + i]
  for h = 1, #hole do
    at = at + 1
    command[hole[h]] = ARGV[at]
  end
  local entry = pcall(unpack(command))
  if entry.err then
    refused = refused + 1
    out[#out + 1] = string.format('%.0f', i)
    out[#out + 1] = 'error ' .. entry.err
  else
    set[k + 1], set[k + 2] = ARGV[ids + i], 'w' .. entry .. suffix
    k, room = k + 2, room - 1
  end
  i = i + 1
end

local told = trace and {}
if i <= n then
  -- @include clock record move
  local seen = {}
  local function say(i, text)
    out[#out + 1] = int(i)
    out[#out + 1] = text
    if trace then told[i] = text end
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

  for i = i, n do
    local id, rec = ARGV[ids + i], recs[i]
    if shaped then
      local s = tonumber(ARGV[shaped + i])
      command, hole = commands[s], holes[s]
    end
    command[5] = id
    for h = 1, #hole do
      at = at + 1
      command[hole[h]] = ARGV[at]
    end
    if not known(i, id, rec, marks and marks[i]) then
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
        k, room = k + 2, room - 1
        if twice then seen[id] = place end
        if place ~= 'waiting' then say(i, 'added ' .. place) end
        if trace then told[i] = 'enqueued ' .. place end
      end
    end
  end
end
if refused == n then return redis.error_reply(string.sub(out[2], 7)) end
if k > 0 then call('HSET', tasks, unpack(set, 1, k)) end
-- A producer that sends a million IDs again would push out all other events, so
-- its duplicates are told like additions: on request only.
if told then
  -- @include clock events
  for i = 1, n do
    local what, place = string.match(told[i], '^(%a+) ?(.*)$')
    if what == 'enqueued' or what == 'duplicate' then
      note(KEYS[13], what, ARGV[ids + i], {token = tag, detail = place})
    end
  end
end
return {n - #out / 2, unpack(out)}
