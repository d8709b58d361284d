-- Turn: notes that a consumer lives and gives it the chores that are due and
-- that nobody else was given within the interval. A turn is not a lock: the
-- chores are safe to do twice, this only keeps a fleet from doing them a
-- thousand times.
--
-- KEYS[1] leases zset        KEYS[2] due zset           KEYS[3] consumers zset
-- KEYS[4] conf hash
-- ARGV[1] consumer           ARGV[2] slots              1 when it has a free slot
-- ARGV[3] interval_ms        ARGV[4] grace_ms           silence after which a consumer counts as gone
-- ARGV[5] walk_ms            how often the slow walks go on
-- Replies: live consumers, reclaim, promote, tidy (1: yours, now).
-- @include clock

local leases, due, consumers, conf = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local interval, grace, walk_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local now = clock()
redis.call('ZREM', consumers, '') -- a removal first: accepted by a full server
redis.call('ZADD', consumers, int(now), ARGV[1])
-- The server's clock was stepped back: who was heard of later was heard of now.
local far = redis.call('ZRANGEBYSCORE', consumers, '(' .. int(now), '+inf', 'LIMIT', 0, 1000)
for i = 1, #far do redis.call('ZADD', consumers, int(now), far[i]) end
local at = redis.call('HMGET', conf, 'reclaim_ms', 'promote_ms', 'tidy_ms', 'walk_ms', 'lease_ms')

-- due_since: whether a chore last given out at a moment may be given again. A
-- moment in the future is that of a clock that was stepped back.
local function due_since(moment, every)
  local age = now - tonumber(moment or 0)
  return age >= every or age < 0
end

local function some(key, from, to)
  return #redis.call('ZRANGEBYSCORE', key, from, to, 'LIMIT', 0, 1) > 0
end

local reclaim, promote, tidy = 0, 0, 0
if ARGV[2] == '1' and due_since(at[1], interval) then
  if some(leases, '-inf', int(now)) or some(leases, '(' .. int(now + tonumber(at[5] or 3600000)), '+inf')
    or some(consumers, '-inf', int(now - grace)) or due_since(at[4], walk_ms) then
    reclaim = 1
    redis.call('HSET', conf, 'reclaim_ms', int(now))
  end
end
if due_since(at[2], interval) and some(due, '-inf', int(now)) then
  promote = 1
  redis.call('HSET', conf, 'promote_ms', int(now))
end
if due_since(at[3], walk_ms) then
  tidy = 1
  redis.call('HSET', conf, 'tidy_ms', int(now))
end
return {redis.call('ZCOUNT', consumers, int(now - grace), '+inf'), reclaim, promote, tidy}
