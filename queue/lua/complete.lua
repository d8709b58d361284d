-- Complete: remembers tasks as done, acks and deletes their entries.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] leases zset
-- KEYS[4] grants hash        KEYS[5] revoked hash       KEYS[6] counts hash
-- KEYS[7] steps hash         KEYS[8] fence string       KEYS[9] done1 hash
-- KEYS[10] done2 hash        KEYS[11] done3 hash        KEYS[12] kept1 hash
-- KEYS[13] kept2 hash        KEYS[14] kept3 hash        KEYS[15] events stream
-- ARGV[1] group              ARGV[2] window_ms          ARGV[3] consumer
-- ARGV[4] trace              1: tell of everything
-- ARGV[5] results            1: there are some
-- ARGV[6] holders            how many there are
-- ARGV[7] n                  tasks, in the order of their holders; then n IDs, n digests;
--                            with results n of them ('': none); of each holder the tail
--                            and the number of its tasks
-- then                       tokens of grants that end with this call
-- Replies: exceptions (see include/settle.lua); without one a task is completed.
-- Keeps I4, I5, I7, I8. Entries are acked after the holder was checked.

local ARGV, KEYS, call, find, sub, unpack = ARGV, KEYS, redis.call, string.find, string.sub, unpack
local stream, tasks, leases = KEYS[1], KEYS[2], KEYS[3]
local group, window, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[7])
local ids, digests, at = 7, 7 + n, 7 + 2 * n
local results = ARGV[5] == '1' and at
if results then at = at + n end

local recs = call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
-- Of mine, acked and marks the first k, or twice k, strings count. They begin as so
-- many other strings: a table that does not grow is filled faster.
local mine, acked, marks = {unpack(ARGV, ids + 1, ids + n)}, {unpack(ARGV, ids + 1, ids + n)}, {unpack(ARGV, ids + 1, ids + 2 * n)}
local k, kept, told, refused = 0, false, ARGV[4] == '1' and {}, false

local i = 0
for _ = 1, tonumber(ARGV[6]) do
  local tail, count = ARGV[at + 1], tonumber(ARGV[at + 2])
  local tag, ends = sub(tail, -14, -8), -#tail
  for j = i + 1, i + count do
    local rec = recs[j]
    -- <place><entry> <mark><tail>
    if rec and sub(rec, ends) == tail then
      local gap = find(rec, ' ', 2, true)
      local mark = sub(rec, gap + 1, ends - 1)
      if #mark > 7 then mark = string.match(mark, '^[^,]+') end
      k = k + 1
      mine[k], acked[k] = ARGV[ids + j], sub(rec, 2, gap - 1)
      marks[2 * k - 1], marks[2 * k] = ARGV[digests + j], tag .. mark
      if results and ARGV[results + j] ~= '' then
        kept = kept or {}
        kept[#kept + 1] = ARGV[digests + j]
        kept[#kept + 1] = ARGV[results + j]
      end
      if told then told[k] = {by = ARGV[3], tail = tail, leases = leases, stage = sub(rec, 1, 1)} end
    else
      refused = refused or {}
      refused[#refused + 1] = {j, tail}
    end
  end
  i, at = i + count, at + 2
end

local slices, fencekey = {KEYS[9], KEYS[10], KEYS[11]}, KEYS[8]
-- @include now done_now

local replies, left = {}, false
if refused then
  -- @include clock record done events settle
  for r = 1, #refused do
    local j, tail = refused[r][1], refused[r][2]
    refuse(j, recs[j], tail, done_slices(slices, ms, window), ARGV[digests + j], KEYS[15], ARGV[ids + j], {by = ARGV[3], detail = 'complete'})
  end
  replies, left = out, unsettled
end
if k == 0 then return replies end

call('ZREM', leases, '') -- a removal first: accepted by a full server
local start, s = ms - ms % window, false
for i = 1, 3 do
  if tonumber(call('HGET', slices[i], '') or -1) == start then
    s = i
    break
  end
end
if not s then
  -- @include clock done
  s = open_slice(slices, {KEYS[12], KEYS[13], KEYS[14]}, ms, window)
end
local stepped = call('EXISTS', KEYS[7]) == 1
if stepped then
  local steps = call('HMGET', KEYS[7], unpack(mine, 1, k))
  for i = 1, k do
    if steps[i] then
      kept = kept or {}
      kept[#kept + 1] = marks[2 * i - 1] .. '/'
      kept[#kept + 1] = steps[i]
    end
  end
end
if kept then call('HSET', KEYS[11 + s], unpack(kept)) end
call('HSET', slices[s], unpack(marks, 1, 2 * k))
if stepped then call('HDEL', KEYS[7], unpack(mine, 1, k)) end
call('HDEL', tasks, unpack(mine, 1, k))
if call('EXISTS', KEYS[6]) == 1 then call('HDEL', KEYS[6], unpack(mine, 1, k)) end
call('XACK', stream, group, unpack(acked, 1, k))
call('XDEL', stream, unpack(acked, 1, k))
if told then
  -- @include clock events
  for i = 1, k do note(KEYS[15], 'completed', mine[i], told[i]) end
end
if not left and ARGV[at + 1] then
  call('ZREM', leases, unpack(ARGV, at + 1))
  call('HDEL', KEYS[4], unpack(ARGV, at + 1))
  call('HDEL', KEYS[5], unpack(ARGV, at + 1))
end
return replies
