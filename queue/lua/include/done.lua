-- Done marks live in three slices, hashes of 16-byte ID digest -> tag of the
-- settling holder and tag of the enqueue call. The field '' of a slice holds
-- the moment its window began (ms). A slice counts while it began no earlier
-- than one window before the present one, so a mark is found for one to two
-- windows. Time here is the larger of the server's clock and the last fence,
-- which a clock stepped back does not bend; but no more than a window ahead, or
-- a clock that was once far in the future would stop the windows for good.
-- enqueue.lua and complete.lua have the usual case of done_time, done_slices and
-- open_slice in place, without making functions; what changes here changes there.
local function done_time(us, fencekey, window)
  local f = tonumber(redis.call('GET', fencekey) or 0)
  if f > us then us = math.min(f, us + window * 1000) end
  return math.floor(us / 1000)
end

local function window_start(ms, window)
  return ms - ms % window
end

-- done_slices: the slices that count.
local function done_slices(slices, ms, window)
  local oldest, live = window_start(ms, window) - window, {}
  for i = 1, #slices do
    local began = tonumber(redis.call('HGET', slices[i], '') or -1)
    if began >= oldest and began >= 0 then live[#live + 1] = slices[i] end
  end
  return live
end

-- done_marks: for every digest in ARGV[first] .. ARGV[last] the mark, or nothing.
local function done_marks(live, first, last)
  local found = live[1] and redis.call('HMGET', live[1], unpack(ARGV, first, last)) or {}
  for s = 2, #live do
    local v = redis.call('HMGET', live[s], unpack(ARGV, first, last))
    for i = 1, last - first + 1 do found[i] = found[i] or v[i] end
  end
  return found
end

-- open_slice: index of the slice that takes new marks; the oldest one is
-- dropped and begun anew where none fits (UNLINK: a huge hash freed in the
-- main thread would stop the server).
local function open_slice(slices, kept, ms, window)
  local start, pick, least = window_start(ms, window), 1, nil
  for i = 1, #slices do
    local began = tonumber(redis.call('HGET', slices[i], '') or -1)
    if began == start then return i end
    if not least or began < least then pick, least = i, began end
  end
  redis.call('UNLINK', slices[pick], kept[pick])
  redis.call('HSET', slices[pick], '', int(start))
  return pick
end
