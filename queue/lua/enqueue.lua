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
-- ARGV[6] n                  tasks; then n IDs, n digests, n due times ('' now,
--                            '+ms' from now, 'ms' absolute), n field counts, all fields
-- Replies: MISMATCH <partitions> when the queue was made with another number,
-- UNMADE when this partition was never made: nobody may read it; else n places:
-- 'added <place>', 'duplicate <place>', 'full' or 'error <text>' (not added).
-- When all are errors, the first of them alone.
-- Keeps I1, I5, I7, I8. Its first write is one that a full server refuses, so
-- that it is refused whole.
-- @include clock record done move events

local stream, tasks, scheduled, due, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tag, window, backlog, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[6])
local ids, digests, dues, sizes = 6, 6 + n, 6 + 2 * n, 6 + 3 * n

local parts = redis.call('HGET', KEYS[7], 'partitions')
if not parts then return redis.error_reply('UNMADE partition') end
if parts ~= ARGV[4] then return redis.error_reply('MISMATCH ' .. parts) end

local now, us = clock()
local slices = {KEYS[9], KEYS[10], KEYS[11]}
local live = done_slices(slices, done_time(us, KEYS[8], window), window)
local recs = redis.call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
local marks = done_marks(live, digests + 1, digests + n)
local room = -1
if backlog > 0 then
  room = math.max(0, backlog - redis.call('XLEN', stream) - redis.call('XLEN', scheduled))
end

-- lost(rec): whether the entry behind the record was deleted from outside, in
-- which case the ID is free again.
local function lost(rec, id)
  local place, entry, _, _, token = parse(rec)
  if place == 's' then return not take(scheduled, entry) end
  if place == 'd' then return not take(dead, entry) end
  if token then
    local ends = redis.call('ZSCORE', KEYS[6], token)
    if ends and tonumber(ends) > now then return false end
  end
  return not take(stream, entry)
end

-- add(id, first, last, when): adds the task whose fields are ARGV[first] to
-- ARGV[last]. Answers its place and its record, or an error table.
local function add(id, first, last, when)
  if when ~= '' then
    local ms = tonumber(when)
    if string.sub(when, 1, 1) == '+' then ms = now + tonumber(string.sub(when, 2)) end
    if ms > now then
      local entry = schedule(scheduled, due, id, portable({unpack(ARGV, first, last)}, id, int(now)), ms)
      return 'scheduled', failed(entry) and entry or 's' .. entry .. ' ' .. tag
    end
  end
  local entry = redis.pcall('XADD', stream, '*', unpack(ARGV, first, last))
  return 'waiting', failed(entry) and entry or 'w' .. entry .. ' ' .. tag
end

local trace = ARGV[5] == '1'
local replies, set, seen, fresh, at, refused = {}, {}, {}, trace and {}, sizes + n, 0
for i = 1, n do
  local id, rec, mark, size = ARGV[ids + i], recs[i], marks[i], tonumber(ARGV[sizes + i])
  if seen[id] then
    replies[i] = 'duplicate ' .. seen[id]
  elseif mark then
    replies[i] = (string.sub(mark, 8) == tag and 'added' or 'duplicate') .. ' done'
    seen[id] = 'done'
  elseif rec and not lost(rec, id) then
    local place, _, was = parse(rec)
    replies[i] = (enqueue_tag(was) == tag and 'added ' or 'duplicate ') .. places[place]
    seen[id] = places[place]
  elseif room == 0 then
    replies[i] = 'full'
  else
    local place, new = add(id, at + 1, at + size, ARGV[dues + i])
    if failed(new) then
      refused = refused + 1
      replies[i] = 'error ' .. new.err
    else
      if rec then redis.call('HDEL', KEYS[12], id) end -- of the task that was lost
      set[#set + 1] = id
      set[#set + 1] = new
      seen[id] = place
      if room > 0 then room = room - 1 end
      replies[i] = 'added ' .. place
      if trace then fresh[i] = true end
    end
  end
  at = at + size
end
if refused == n then return redis.error_reply(string.sub(replies[1], 7)) end
if #set > 0 then redis.call('HSET', tasks, unpack(set)) end
-- A producer that sends a million IDs again would push out all other events, so
-- its duplicates are told like additions: on request only.
for i = 1, trace and n or 0 do
  local verdict, place = string.match(replies[i], '^(%a+) ?(.*)$')
  if fresh[i] or verdict == 'duplicate' then
    note(KEYS[13], fresh[i] and 'enqueued' or verdict, ARGV[ids + i], {token = tag, detail = place})
  end
end
return replies
