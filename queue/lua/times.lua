-- Times: adds to the record of how long handlers ran, by kind, from which the
-- advice on lease lengths is made. No task depends on it.
--
-- KEYS[1] times hash
-- ARGV[1] max_kinds          ARGV[2] max_runs           of a kind; more are halved
-- ARGV[3] half_life_ms       after which an old run counts half
-- ARGV[4] n                  kinds ('': others); then n kinds, n counts
--                            "<bucket>:<runs> <bucket>:<runs> …"
-- Replies: 'ok'.
-- A field is a kind, its value "<since_ms> <counts>": counts as above, since_ms
-- when they were last halved. A kind for which there is no room is counted with
-- the others; before that, kinds without a run for at least a half-life make
-- room. A call that is asked again is counted again, which does no harm: it is
-- an estimate. A full server refuses it: nothing waits for it.
-- @include clock

local times, n = KEYS[1], tonumber(ARGV[4])
local max_kinds, max_runs, half_life = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local BUCKETS = 100 -- more than there are; a table may grow to its greatest index
local now = clock()

-- count(runs, text): adds counts that are written out to a table.
local function count(runs, text)
  for b, k in string.gmatch(text, '(%d+):(%d+)') do
    b = tonumber(b)
    if b < BUCKETS then runs[b] = (runs[b] or 0) + tonumber(k) end
  end
end

-- divide(runs, by): divides all counts and returns what is left of them.
local function divide(runs, by)
  local total = 0
  for b = 0, BUCKETS - 1 do
    if runs[b] then
      runs[b] = math.floor(runs[b] / by)
      total = total + runs[b]
    end
  end
  return total
end

-- since(value): when a kind was last halved; a moment in the future is that of
-- a clock that was stepped back.
local function since(value)
  return math.min(now, tonumber(string.match(value, '^%d+') or '') or now)
end

local kinds, full -- how many have a field, and no room was found; not known yet
local function make_room()
  local stale, cursor = {}, '0'
  kinds = 0
  repeat
    local scan = redis.call('HSCAN', times, cursor, 'COUNT', 1000)
    cursor = scan[1]
    for i = 1, #scan[2], 2 do
      if scan[2][i] ~= '' then
        kinds = kinds + 1
        if since(scan[2][i + 1]) <= now - 2 * half_life then stale[#stale + 1] = scan[2][i] end
      end
    end
  until cursor == '0'
  if kinds < max_kinds then return end
  for i = 1, #stale do kinds = kinds - redis.call('HDEL', times, stale[i]) end
  full = kinds >= max_kinds
end

local function add(kind, counts)
  local value = redis.call('HGET', times, kind)
  if not value and kind ~= '' then
    if not kinds or kinds >= max_kinds and not full then make_room() end
    if full then return add('', counts) end
    kinds = kinds + 1
  end
  value = value or int(now) .. ' '
  local runs, from = {}, since(value)
  count(runs, string.match(value, '^%d+ (.*)') or '')
  local halvings = math.floor((now - from) / half_life)
  if halvings > 0 then divide(runs, 2 ^ halvings) end
  count(runs, counts)
  local total = divide(runs, 1)
  while total > max_runs do total = divide(runs, 2) end
  local out = {}
  for b = 0, BUCKETS - 1 do
    if (runs[b] or 0) > 0 then out[#out + 1] = int(b) .. ':' .. int(runs[b]) end
  end
  redis.call('HSET', times, kind, int(from + halvings * half_life) .. ' ' .. table.concat(out, ' '))
end

for i = 1, n do add(ARGV[4 + i], ARGV[4 + n + i]) end
return 'ok'
