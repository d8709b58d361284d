-- now and us: the server's time in milliseconds and in microseconds.
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)
