-- Reclaim: takes pending entries that no live lease covers. It moves them to
-- the caller in the pending entries list; the lease is taken by begin.lua,
-- which looks at the record again.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] leases zset
-- KEYS[4] grants hash        KEYS[5] revoked hash       KEYS[6] counts hash
-- KEYS[7] consumers zset     KEYS[8] conf hash          KEYS[9] events stream
-- ARGV[1] group              ARGV[2] consumer           ARGV[3] max entries
-- ARGV[4] grace_ms           after which an entry without a lease is anybody's,
--                            and a silent consumer counts as gone
-- ARGV[5] walk_ms            how often the walk over all consumers goes on
-- ARGV[6] suffix             of the names of entries without an ID
-- then                       tokens of the caller's own grants: what it has in
--                            hand is left to it and to others
-- Replies: more (1 or 0), entries as XCLAIM gives them, flat list of entry and
-- delay_ms since its lease ended (0: not known), flat list of missing ID and entry.
-- Keeps I1, I2. Only entries that are gone from the stream are acked.
-- @include clock record move walk events

local keys = {stream = KEYS[1], tasks = KEYS[2], leases = KEYS[3], conf = KEYS[8], suffix = ARGV[6]}
local group, me, max, grace = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local GRANTS, ROWS = 32, 256 -- looked at in one call, at most
local now = clock()
redis.call('ZREM', keys.leases, '') -- a removal first: accepted by a full server

-- The server's clock was stepped back: leases that end beyond the horizon end there.
local horizon = now + tonumber(redis.call('HGET', keys.conf, 'lease_ms') or 3600000)
local far = redis.call('ZRANGEBYSCORE', keys.leases, '(' .. int(horizon), '+inf', 'LIMIT', 0, 1000)
for i = 1, #far do redis.call('ZADD', keys.leases, int(horizon), far[i]) end

local own = {}
for i = 7, #ARGV do own[ARGV[i]] = true end

local wanted, ids, delay, have, unbegun, more = {}, {}, {}, {}, {}, 0
local missing = {}
local function want(entry, id, ms)
  if have[entry] then return true end
  if #wanted >= max then more = 1 return false end
  have[entry] = true
  wanted[#wanted + 1] = entry
  ids[entry], delay[entry] = id, ms
  return true
end

-- ended(token, score): the tasks of an ended grant that are still its own.
local function ended(token, score)
  if own[token] then return end
  local names = {}
  for id in string.gmatch(redis.call('HGET', KEYS[4], token) or '', '%S+ (%S+)\n') do names[#names + 1] = id end
  local left = 0
  local recs = #names > 0 and redis.call('HMGET', keys.tasks, unpack(names)) or {}
  for i = 1, #names do
    if recs[i] then
      local _, entry, _, _, tok = parse(recs[i])
      if tok == token then
        left = left + 1
        if not want(entry, names[i], now - score) then break end
      end
    end
  end
  if left == 0 then
    redis.call('ZREM', keys.leases, token)
    redis.call('HDEL', KEYS[4], token)
    redis.call('HDEL', KEYS[5], token)
  end
end

local over = redis.call('ZRANGEBYSCORE', keys.leases, '-inf', int(now), 'WITHSCORES', 'LIMIT', 0, GRANTS + #ARGV - 6)
for i = 1, #over, 2 do ended(over[i], tonumber(over[i + 1])) end
if #over == 2 * (GRANTS + #ARGV - 6) then more = 1 end

local function orphan(entry, id, rec, consumer)
  local token = rec and select(5, parse(rec))
  if not token then unbegun[entry] = consumer end
  if token and own[token] then return true end
  return want(entry, id, 0)
end
local gone = redis.call('ZRANGEBYSCORE', KEYS[7], '-inf', int(now - grace), 'LIMIT', 0, 8)
for i = 1, #gone do
  if gone[i] ~= me then walk(keys, group, gone[i], ROWS, grace, now, orphan) end
end
local age = now - tonumber(redis.call('HGET', keys.conf, 'walk_ms') or 0)
if age >= tonumber(ARGV[5]) or age < 0 then
  redis.call('HSET', keys.conf, 'walk_ms', int(now))
  walk(keys, group, '', ROWS, grace, now, orphan)
end

if #wanted == 0 then return {more, {}, {}, {}} end
-- FORCE: a consumer removed by hand took its rows of the pending entries list
-- along; the record still knows the task.
wanted[#wanted + 1] = 'FORCE'
local entries = redis.call('XCLAIM', keys.stream, group, me, 0, unpack(wanted))
wanted[#wanted] = nil
local found = {}
for i = 1, #entries do
  if entries[i] then found[entries[i][1]] = true end
end
local delays = {}
for i = 1, #wanted do
  local entry = wanted[i]
  if found[entry] then
    delays[#delays + 1] = entry
    delays[#delays + 1] = int(delay[entry])
    if unbegun[entry] then
      note(KEYS[9], 'recovered', ids[entry], {by = me, detail = unbegun[entry]})
    end
  else
    redis.call('XACK', keys.stream, group, entry)
    local rec = redis.call('HGET', keys.tasks, ids[entry])
    if rec and select(2, parse(rec)) == entry then redis.call('HDEL', keys.tasks, ids[entry]) end
    redis.call('HDEL', KEYS[6], ids[entry])
    missing[#missing + 1] = ids[entry]
    missing[#missing + 1] = entry
    note(KEYS[9], 'lost', ids[entry], {by = me, detail = 'entry ' .. entry .. ' was deleted from outside'})
  end
end
return {more, entries, delays, missing}
