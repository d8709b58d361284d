-- Promote: moves due tasks to the stream.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] scheduled stream
-- KEYS[4] due zset           KEYS[5] counts hash        KEYS[6] events stream
-- ARGV[1] limit              tasks at most
-- ARGV[2] trace              1: tell of everything
-- Replies: number moved, 1 if more are due, then members of the schedule that
-- had no task and were set aside.
-- Keeps I1, I7: a task enters the stream once for each of its due members.
-- @include clock record move events

local stream, tasks, scheduled, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local limit = tonumber(ARGV[1])
local now = clock()
local members = redis.call('ZRANGEBYSCORE', due, '-inf', int(now), 'LIMIT', 0, limit)
if #members == 0 then return {0, 0} end
redis.call('ZREM', due, '') -- a removal first: accepted by a full server

local moved, set, gone, malformed = 0, {}, {}, {}

-- promote(entry, id): moves a task. Where its record is lost or names another
-- entry it is moved without one: it may be a copy, of a task that is live or
-- done, and begin.lua judges it like an entry that was added by hand.
local function promote(entry, id)
  local rec, mark = redis.call('HGET', tasks, id), nil
  if rec then
    local place, at, was = parse(rec)
    if place == 's' and at == entry then mark = was end
  end
  local fields = take(scheduled, entry)
  if not fields then
    if mark then
      redis.call('HDEL', tasks, id)
      redis.call('HDEL', KEYS[5], id)
    end
    return rec and not mark
  end
  local new = redis.call('XADD', stream, '*', unpack(fields))
  if mark then
    set[#set + 1] = id
    set[#set + 1] = 'w' .. new .. ' ' .. mark
  end
  gone[#gone + 1] = entry
  moved = moved + 1
  if ARGV[2] == '1' then note(KEYS[6], 'promoted', id, {}) end
  return true
end

for i = 1, #members do
  local entry, id = string.match(members[i], '^(%d+%-%d+) (%S+)$')
  if not entry or not promote(entry, id) then malformed[#malformed + 1] = members[i] end
end
if #set > 0 then redis.call('HSET', tasks, unpack(set)) end
if #gone > 0 then redis.call('XDEL', scheduled, unpack(gone)) end
redis.call('ZREM', due, unpack(members))
return {moved, #members == limit and 1 or 0, unpack(malformed)}
