-- Stats: the state of a partition at one moment. Its cost does not grow with
-- what waits, is pending or is scheduled: it reads two or three entries, and what
-- is known of 4096 tasks under ended leases at most.
--
-- KEYS[1] stream stream      KEYS[2] scheduled stream   KEYS[3] dead stream
-- KEYS[4] leases zset        KEYS[5] consumers zset     KEYS[6] due zset
-- KEYS[7] grants hash        KEYS[8] tasks hash         KEYS[9] conf hash
-- ARGV[1] group              ARGV[2] grace_ms
-- ARGV[3] limit              expired tasks are counted up to this
-- Replies: now_ms, partitions as the queue was made ('': not made), waiting,
-- pending, scheduled, dead, ended grants, expired tasks, live consumers, silent
-- consumers, entries added (-1: not known), then three ages in ms, each 0 where
-- there is none and -1 where it is not known: of the oldest waiting entry, of
-- the oldest pending entry, and since the earliest overdue task was due.
-- waiting is the length of the stream less what is pending, since finished
-- entries are deleted; the group's own lag is null in normal operation. Expired
-- are the pending tasks that reclaim.lua would find by their ended grants.
-- @include clock record

local LOOKS = 4096
local stream, group, limit = KEYS[1], ARGV[1], tonumber(ARGV[3])
local now = clock()

local function age(entry)
  return math.max(0, now - tonumber(string.match(entry, '^%d+')))
end

local length, pending, oldest_pending = redis.call('XLEN', stream), 0, 0
local summary = redis.pcall('XPENDING', stream, group)
if type(summary) == 'table' and not summary.err then
  pending = summary[1]
  if summary[2] then oldest_pending = age(summary[2]) end
end
local waiting = math.max(0, length - pending)

local added, oldest_waiting = 0, 0
if redis.call('EXISTS', stream) == 1 then
  added = -1
  local info = redis.pcall('XINFO', 'STREAM', stream)
  for i = 1, #info, 2 do
    if info[i] == 'entries-added' then added = info[i + 1] end
  end
  local from, groups = '-', redis.call('XINFO', 'GROUPS', stream)
  for g = 1, #groups do
    local one = {}
    for i = 1, #groups[g], 2 do one[groups[g][i]] = groups[g][i + 1] end
    if one.name == group then from = '(' .. one['last-delivered-id'] end
  end
  local first = redis.pcall('XRANGE', stream, from, '+', 'COUNT', 1)
  if first[1] then
    oldest_waiting = age(first[1][1])
  elseif waiting > 0 then
    oldest_waiting = -1 -- delivered once, and its row of the pending entries list was thrown away
  end
end

local expired, looked = 0, 0
local over = redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', int(now), 'LIMIT', 0, limit)
for t = 1, #over do
  local ids = {}
  for id in string.gmatch(redis.call('HGET', KEYS[7], over[t]) or '', '%S+ (%S+)\n') do ids[#ids + 1] = id end
  local recs = #ids > 0 and redis.call('HMGET', KEYS[8], unpack(ids)) or {}
  for i = 1, #ids do
    if recs[i] and select(5, parse(recs[i])) == over[t] then expired = expired + 1 end
  end
  looked = looked + 1 + #ids
  if expired >= limit or looked >= LOOKS then break end
end

local overdue = 0
local earliest = redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, 1)
if earliest[2] then overdue = now - tonumber(earliest[2]) end

local heard = int(now - tonumber(ARGV[2]))
return {now, redis.call('HGET', KEYS[9], 'partitions') or '', waiting, pending,
  redis.call('XLEN', KEYS[2]), redis.call('XLEN', KEYS[3]),
  redis.call('ZCOUNT', KEYS[4], '-inf', int(now)), math.min(expired, limit),
  redis.call('ZCOUNT', KEYS[5], heard, '+inf'), redis.call('ZCOUNT', KEYS[5], '-inf', '(' .. heard),
  added, oldest_waiting, oldest_pending, overdue}
