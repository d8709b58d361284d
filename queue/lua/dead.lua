-- Dead letter: moves tasks to the dead letters for a stated reason.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] dead stream
-- KEYS[4] leases zset        KEYS[5] grants hash        KEYS[6] revoked hash
-- KEYS[7] counts hash        KEYS[8] fence string       KEYS[9] done1 hash
-- KEYS[10] done2 hash        KEYS[11] done3 hash        KEYS[12] events stream
-- ARGV[1] group              ARGV[2] window_ms          ARGV[3] consumer
-- ARGV[4] n                  tasks; then n IDs, n entries, n digests, n tails,
--                            n reasons, n error texts
-- then                       tokens of grants that end with this call
-- Replies: exceptions (see include/settle.lua); without one a task is a dead letter.
-- Keeps I1, I4, I7. Entries are acked after the holder was checked and the copy made.
-- @include clock record counts done move events settle

local stream, tasks, dead = KEYS[1], KEYS[2], KEYS[3]
local group, n = ARGV[1], tonumber(ARGV[4])
local ids, entries, digests, tails, reasons, errs = 4, 4 + n, 4 + 2 * n, 4 + 3 * n, 4 + 4 * n, 4 + 5 * n
local now, us = clock()

local recs = redis.call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
local troubled = redis.call('HMGET', KEYS[7], unpack(ARGV, ids + 1, ids + n))
redis.call('ZREM', KEYS[4], '') -- a removal first: accepted by a full server

local function kill(i, id, entry, rec, tail)
  local fields = take(stream, entry)
  local e = {by = ARGV[3], tail = tail, leases = KEYS[4], stage = string.sub(rec, 1, 1)}
  if not fields then return drop_gone(i, stream, group, tasks, KEYS[7], KEYS[12], id, entry, e) end
  local _, _, mark = parse(rec)
  local f, x, _, _, err = counts(troubled[i])
  if ARGV[errs + i] ~= '' then err = ARGV[errs + i] end
  e.attempt = 1 + f + x
  if ARGV[reasons + i] == 'rejected' then f = f + 1 end
  local moved = bury(dead, id, entry, fields, ARGV[reasons + i], err, f, x, now)
  if failed(moved) then return except(i, 'error', moved.err) end
  redis.call('HDEL', KEYS[7], id) -- the dead letter has them
  put_record(tasks, id, 'd' .. moved .. ' ' .. enqueue_tag(mark) .. ',D' .. string.sub(tail, -14, -8))
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
  e.failures, e.interruptions, e.detail, e.err = f, x, ARGV[reasons + i], err
  note(KEYS[12], 'dead', id, e)
end

for i = 1, n do
  local id, entry, rec, tail = ARGV[ids + i], ARGV[entries + i], record_of(ARGV[ids + i], recs[i]), ARGV[tails + i]
  if held_by(rec, tail) then
    kill(i, id, entry, rec, tail)
  else
    refuse(i, rec, tail, done_slices({KEYS[9], KEYS[10], KEYS[11]}, done_time(us, KEYS[8], tonumber(ARGV[2])), tonumber(ARGV[2])), ARGV[digests + i], KEYS[12], id, {by = ARGV[3], detail = 'dead letter', err = ARGV[errs + i]})
  end
end
end_grants(KEYS[4], KEYS[5], KEYS[6], 5 + 6 * n)
return out
