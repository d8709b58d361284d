-- Retry: schedules failed tasks again, or makes dead letters of those that
-- have failed too often.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] scheduled stream
-- KEYS[4] due zset           KEYS[5] dead stream        KEYS[6] leases zset
-- KEYS[7] grants hash        KEYS[8] revoked hash       KEYS[9] counts hash
-- KEYS[10] fence string      KEYS[11] done1 hash        KEYS[12] done2 hash
-- KEYS[13] done3 hash        KEYS[14] events stream
-- ARGV[1] group              ARGV[2] window_ms          ARGV[3] consumer
-- ARGV[4] max_failures
-- ARGV[5] n                  tasks; then n IDs, n entries, n digests, n tails,
--                            n delay_ms, n error texts
-- then                       tokens of grants that end with this call
-- Replies: exceptions (see include/settle.lua); without one a task is scheduled.
-- Keeps I1, I4, I7. Entries are acked after the holder was checked and the copy made.
-- @include clock record counts done move events settle

local stream, tasks, scheduled, due, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, max, n = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[5])
local ids, entries, digests, tails, delays, errs = 5, 5 + n, 5 + 2 * n, 5 + 3 * n, 5 + 4 * n, 5 + 5 * n
local now, us = clock()

local recs = redis.call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
local troubled = redis.call('HMGET', KEYS[9], unpack(ARGV, ids + 1, ids + n))
redis.call('ZREM', KEYS[6], '') -- a removal first: accepted by a full server

local function retry(i, id, entry, rec, tail)
  local fields = take(stream, entry)
  local e = {by = ARGV[3], tail = tail, leases = KEYS[6], stage = string.sub(rec, 1, 1)}
  if not fields then return drop_gone(i, stream, group, tasks, KEYS[9], KEYS[14], id, entry, e) end
  local _, _, mark = parse(rec)
  local f, x = counts(troubled[i])
  local place, how, moved = 's', ',R', nil
  f = f + 1
  if f >= max then
    place, how = 'd', ',D'
    moved = bury(dead, id, entry, fields, 'failures', ARGV[errs + i], f, x, now)
  else
    moved = schedule(scheduled, due, id, portable(fields, id, entry), now + tonumber(ARGV[delays + i]))
  end
  if failed(moved) then return except(i, 'error', moved.err) end
  if place == 'd' then
    redis.call('HDEL', KEYS[9], id) -- the dead letter has them
  else
    redis.call('HSET', KEYS[9], id, count_value(f, x, 0, 0, ARGV[errs + i]))
  end
  put_record(tasks, id, place .. moved .. ' ' .. enqueue_tag(mark) .. how .. string.sub(tail, -14, -8))
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
  e.attempt, e.failures, e.interruptions, e.err = f + x, f, x, ARGV[errs + i]
  e.detail = place == 's' and 'due ' .. int(now + tonumber(ARGV[delays + i])) or 'for the last time'
  note(KEYS[14], 'failed', id, e)
  if place == 'd' then
    e.detail = 'failures'
    note(KEYS[14], 'dead', id, e)
    except(i, 'dead')
  end
end

for i = 1, n do
  local id, entry, rec, tail = ARGV[ids + i], ARGV[entries + i], record_of(ARGV[ids + i], recs[i]), ARGV[tails + i]
  if held_by(rec, tail) then
    retry(i, id, entry, rec, tail)
  else
    refuse(i, rec, tail, done_slices({KEYS[11], KEYS[12], KEYS[13]}, done_time(us, KEYS[10], tonumber(ARGV[2])), tonumber(ARGV[2])), ARGV[digests + i], KEYS[14], id, {by = ARGV[3], detail = 'retry', err = ARGV[errs + i]})
  end
end
end_grants(KEYS[6], KEYS[7], KEYS[8], 6 + 6 * n)
return out
