-- counts(v): failures, interruptions, releases for want of a handler, time of
-- the first of those (ms), last error. Only troubled tasks have a value, and of them
-- those that are not dead: a dead letter says it itself.
local function counts(v)
  if not v then return 0, 0, 0, 0, '' end
  local f, i, u, at, err = string.match(v, '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  return tonumber(f), tonumber(i), tonumber(u), tonumber(at), err
end

local function count_value(f, i, u, at, err)
  return int(f) .. ' ' .. int(i) .. ' ' .. int(u) .. ' ' .. int(at) .. ' ' .. err
end
