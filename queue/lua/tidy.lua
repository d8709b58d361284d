-- Tidy: drops done slices that no longer count, removes consumers that are gone
-- and hold nothing, and looks at some records whether their entry still exists.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] scheduled stream
-- KEYS[4] due zset           KEYS[5] dead stream        KEYS[6] leases zset
-- KEYS[7] counts hash        KEYS[8] consumers zset     KEYS[9] conf hash
-- KEYS[10] fence string      KEYS[11] done1 hash        KEYS[12] done2 hash
-- KEYS[13] done3 hash        KEYS[14] kept1 hash        KEYS[15] kept2 hash
-- KEYS[16] kept3 hash        KEYS[17] events stream
-- ARGV[1] group              ARGV[2] grace_ms           ARGV[3] window_ms
-- Replies: names of consumers removed, flat list of ID and entry of tasks whose
-- entry was deleted from outside.
-- Keeps I1, I8. A consumer is removed in the same step in which it is seen to
-- have nothing pending: removing it would throw its rows away.
-- @include clock record done move events

local stream, tasks, scheduled, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local group, grace, window = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local RECORDS = 100 -- looked at in one call, about
local now, us = clock()
redis.call('ZREM', KEYS[8], '') -- a removal first: accepted by a full server

local oldest = window_start(done_time(us, KEYS[10], window), window) - window
for i = 1, 3 do
  local began = redis.call('HGET', KEYS[10 + i], '')
  if began and tonumber(began) < oldest then redis.call('UNLINK', KEYS[10 + i], KEYS[13 + i]) end
end

-- named(list): a reply of names and values as a table.
local function named(list)
  local t = {}
  for i = 1, #list, 2 do t[list[i]] = list[i + 1] end
  return t
end

local removed, known = {}, {}
local list = redis.call('XINFO', 'CONSUMERS', stream, group)
for i = 1, #list do
  local c = named(list[i])
  known[c.name] = true
  local seen = redis.call('ZSCORE', KEYS[8], c.name)
  if not seen then
    redis.call('ZADD', KEYS[8], int(now), c.name)
  elseif tonumber(seen) <= now - grace and c.pending == 0 then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, c.name)
    redis.call('ZREM', KEYS[8], c.name)
    redis.call('HDEL', KEYS[9], 'walk:' .. c.name)
    removed[#removed + 1] = c.name
  end
end
local silent = redis.call('ZRANGEBYSCORE', KEYS[8], '-inf', int(now - grace), 'LIMIT', 0, 100)
for i = 1, #silent do
  if not known[silent[i]] then redis.call('ZREM', KEYS[8], silent[i]) end
end

local last = '0-0'
local groups = redis.call('XINFO', 'GROUPS', stream)
for i = 1, #groups do
  local g = named(groups[i])
  if g.name == group then last = g['last-delivered-id'] end
  -- The in-process server says "0" before anything was read.
  if not string.find(last, '-', 1, true) then last = last .. '-0' end
end

-- passed(entry): whether the group has read past the entry.
local function passed(entry)
  local am, as = string.match(entry, '(%d+)-(%d+)')
  local bm, bs = string.match(last, '(%d+)-(%d+)')
  am, as, bm, bs = tonumber(am), tonumber(as), tonumber(bm), tonumber(bs)
  return am < bm or (am == bm and as <= bs)
end

local lost = {}
local function report(id, entry)
  redis.call('HDEL', tasks, id)
  redis.call('HDEL', KEYS[7], id)
  lost[#lost + 1] = id
  lost[#lost + 1] = entry
  note(KEYS[17], 'lost', id, {detail = 'entry ' .. entry .. ' was deleted from outside'})
end

local function examine(id, rec)
  local place, entry, mark, _, token = parse(rec)
  if place == 'd' then
    if not take(dead, entry) then -- trimmed on purpose by an operator
      redis.call('HDEL', tasks, id)
      redis.call('HDEL', KEYS[7], id)
    end
  elseif place == 's' then
    if not take(scheduled, entry) then
      redis.call('ZREM', KEYS[4], due_member(entry, id))
      report(id, entry)
    elseif not redis.call('ZSCORE', KEYS[4], due_member(entry, id)) then
      redis.call('ZADD', KEYS[4], int(now), due_member(entry, id))
    end
  else
    local ends = token and redis.call('ZSCORE', KEYS[6], token)
    if ends and tonumber(ends) > now then return end
    local fields = take(stream, entry)
    if not fields then
      redis.call('XACK', stream, group, entry)
      report(id, entry)
    elseif passed(entry) and #redis.call('XPENDING', stream, group, entry, entry, 1) == 0 then
      -- Its consumer was removed by hand, and the row with it: nobody would
      -- ever be given this entry again.
      local new = redis.call('XADD', stream, '*', unpack(portable(fields, id, entry)))
      redis.call('HSET', tasks, id, 'w' .. new .. ' ' .. mark)
      redis.call('XDEL', stream, entry)
    end
  end
end

local scan = redis.call('HSCAN', tasks, redis.call('HGET', KEYS[9], 'scan') or '0', 'COUNT', RECORDS)
redis.call('HSET', KEYS[9], 'scan', scan[1])
for i = 1, #scan[2], 2 do examine(scan[2][i], scan[2][i + 1]) end
return {removed, lost}
