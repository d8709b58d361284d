-- clock(): the server's time as milliseconds and as microseconds.
local function clock()
  local t = redis.call('TIME')
  local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
  return math.floor(us / 1000), us
end

-- int(n): n without the exponent that Lua would print from 1e14 on, and which
-- would make two fences one.
local function int(n)
  return string.format('%.0f', n)
end
