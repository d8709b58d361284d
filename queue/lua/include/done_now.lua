-- ms: the time of done marks (include/done.lua, done_time), of now, us, window and
-- fencekey.
local ms, fenced = now, tonumber(redis.call('GET', fencekey) or 0)
if fenced > us then ms = math.floor(math.min(fenced, us + window * 1000) / 1000) end
