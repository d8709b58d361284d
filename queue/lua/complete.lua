-- Complete: remembers tasks as done, acks and deletes their entries.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] leases zset
-- KEYS[4] grants hash        KEYS[5] revoked hash       KEYS[6] counts hash
-- KEYS[7] steps hash         KEYS[8] fence string       KEYS[9] done1 hash
-- KEYS[10] done2 hash        KEYS[11] done3 hash        KEYS[12] kept1 hash
-- KEYS[13] kept2 hash        KEYS[14] kept3 hash        KEYS[15] events stream
-- ARGV[1] group              ARGV[2] window_ms          ARGV[3] consumer
-- ARGV[4] trace              1: tell of everything
-- ARGV[5] n                  tasks; then n IDs, n entries, n digests, n tails, n results
-- then                       tokens of grants that end with this call
-- Replies: exceptions (see include/settle.lua); without one a task is completed.
-- Keeps I4, I5, I7, I8. Entries are acked after the holder was checked.
-- @include clock record done events settle

local stream, tasks, leases = KEYS[1], KEYS[2], KEYS[3]
local group, window, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local ids, entries, digests, tails, results = 5, 5 + n, 5 + 2 * n, 5 + 3 * n, 5 + 4 * n
local slices = {KEYS[9], KEYS[10], KEYS[11]}
local _, us = clock()
local ms = done_time(us, KEYS[8], window)

local recs = redis.call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
local mine, acked, marks, kept, told = {}, {}, {}, {}, nil
for i = 1, n do
  local rec, tail = recs[i], ARGV[tails + i]
  if held_by(rec, tail) then
    local _, _, mark = parse(rec)
    mine[#mine + 1] = ARGV[ids + i]
    acked[#acked + 1] = ARGV[entries + i]
    if ARGV[4] == '1' then
      told = told or {}
      told[#told + 1] = {by = ARGV[3], tail = tail, leases = leases, stage = string.sub(rec, 1, 1)}
    end
    marks[#marks + 1] = ARGV[digests + i]
    marks[#marks + 1] = string.sub(tail, -14, -8) .. enqueue_tag(mark)
    if ARGV[results + i] ~= '' then
      kept[#kept + 1] = ARGV[digests + i]
      kept[#kept + 1] = ARGV[results + i]
    end
  else
    refuse(i, rec, tail, done_slices(slices, ms, window), ARGV[digests + i], KEYS[15], ARGV[ids + i], {by = ARGV[3], detail = 'complete'})
  end
end

if #mine == 0 then return out end
redis.call('ZREM', leases, '') -- a removal first: accepted by a full server
local s = open_slice(slices, {KEYS[12], KEYS[13], KEYS[14]}, ms, window)
local stepped = redis.call('EXISTS', KEYS[7]) == 1
if stepped then
  local steps = redis.call('HMGET', KEYS[7], unpack(mine))
  for i = 1, #mine do
    if steps[i] then
      kept[#kept + 1] = marks[2 * i - 1] .. '/'
      kept[#kept + 1] = steps[i]
    end
  end
end
if #kept > 0 then redis.call('HSET', KEYS[11 + s], unpack(kept)) end
redis.call('HSET', slices[s], unpack(marks))
if stepped then redis.call('HDEL', KEYS[7], unpack(mine)) end
redis.call('HDEL', tasks, unpack(mine))
if redis.call('EXISTS', KEYS[6]) == 1 then redis.call('HDEL', KEYS[6], unpack(mine)) end
redis.call('XACK', stream, group, unpack(acked))
redis.call('XDEL', stream, unpack(acked))
for i = 1, told and #told or 0 do note(KEYS[15], 'completed', mine[i], told[i]) end
end_grants(leases, KEYS[4], KEYS[5], 6 + 5 * n)
return out
