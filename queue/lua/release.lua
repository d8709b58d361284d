-- Release: hands tasks back without counting a failure: to waiting at once, to
-- scheduled with a delay, or, where no handler is known for the kind, to
-- scheduled with a growing delay and at last to the dead letters.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] scheduled stream
-- KEYS[4] due zset           KEYS[5] dead stream        KEYS[6] leases zset
-- KEYS[7] grants hash        KEYS[8] revoked hash       KEYS[9] counts hash
-- KEYS[10] fence string      KEYS[11] done1 hash        KEYS[12] done2 hash
-- KEYS[13] done3 hash        KEYS[14] events stream
-- ARGV[1] group              ARGV[2] window_ms          ARGV[3] consumer
-- ARGV[4] no_handler_ms      ARGV[5] trace              1: tell of everything
-- ARGV[6] n                  tasks; then n IDs, n entries, n digests, n tails,
--                            n delays (delay_ms, 0 at once, 'u' unhandled)
-- then                       tokens of grants that end with this call
-- Replies: exceptions (see include/settle.lua); without one a task is released.
-- Keeps I1, I4, I7. Entries are acked after the holder was checked and the copy made.
-- @include clock record counts done move events settle

local stream, tasks, scheduled, due, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, patience, n = ARGV[1], tonumber(ARGV[4]), tonumber(ARGV[6])
local ids, entries, digests, tails, delays = 6, 6 + n, 6 + 2 * n, 6 + 3 * n, 6 + 4 * n
local now, us = clock()

local recs = redis.call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
redis.call('ZREM', KEYS[6], '') -- a removal first: accepted by a full server

-- unhandled: 1 s growing to 30 s, while some worker may still come that knows
-- the kind.
local function unhandled(id, entry, fields)
  local f, x, u, at, err = counts(redis.call('HGET', KEYS[9], id))
  if u == 0 then at = now end
  local moved, place
  if now - at >= patience then
    place = 'd'
    moved = bury(dead, id, entry, fields, 'no_handler', err, f, x, now)
  else
    place = 's'
    moved = schedule(scheduled, due, id, portable(fields, id, entry), now + math.min(30000, 1000 * 2 ^ math.min(u, 5)))
  end
  if failed(moved) then return moved, place end
  if place == 'd' then
    redis.call('HDEL', KEYS[9], id) -- the dead letter has them
  else
    redis.call('HSET', KEYS[9], id, count_value(f, x, u + 1, at, err))
  end
  return moved, place
end

local function release(i, id, entry, rec, tail)
  local fields, e = take(stream, entry), {by = ARGV[3], tail = tail, leases = KEYS[6], stage = string.sub(rec, 1, 1)}
  if not fields then return drop_gone(i, stream, group, tasks, KEYS[9], KEYS[14], id, entry, e) end
  local _, _, mark = parse(rec)
  local delay, moved, place = ARGV[delays + i], nil, 'w'
  if delay == 'u' then
    moved, place = unhandled(id, entry, fields)
  elseif delay == '0' then
    moved = redis.pcall('XADD', stream, '*', unpack(portable(fields, id, entry)))
  else
    moved, place = schedule(scheduled, due, id, portable(fields, id, entry), now + tonumber(delay)), 's'
  end
  if failed(moved) then return except(i, 'error', moved.err) end
  local how = place == 'd' and ',D' or ',L'
  put_record(tasks, id, place .. moved .. ' ' .. enqueue_tag(mark) .. how .. string.sub(tail, -14, -8))
  redis.call('XACK', stream, group, entry)
  redis.call('XDEL', stream, entry)
  if place == 'd' then except(i, 'dead') end
  if place == 'd' or ARGV[5] == '1' then
    e.detail = place == 'd' and 'no_handler' or delay == 'u' and 'no handler for it here' or delay == '0' and 'at once' or 'due ' .. int(now + tonumber(delay))
    note(KEYS[14], place == 'd' and 'dead' or 'released', id, e)
  end
end

for i = 1, n do
  local id, entry, rec, tail = ARGV[ids + i], ARGV[entries + i], record_of(ARGV[ids + i], recs[i]), ARGV[tails + i]
  if held_by(rec, tail) then
    release(i, id, entry, rec, tail)
  else
    refuse(i, rec, tail, done_slices({KEYS[11], KEYS[12], KEYS[13]}, done_time(us, KEYS[10], tonumber(ARGV[2])), tonumber(ARGV[2])), ARGV[digests + i], KEYS[14], id, {by = ARGV[3], detail = 'release'})
  end
end
end_grants(KEYS[6], KEYS[7], KEYS[8], 7 + 5 * n)
return out
