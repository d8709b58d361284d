-- The recorded steps of a task are one value, one after the other:
--   <name> <state> <key> <fence> <calls> <ms> <nonce> <before> <length>\n<result>\n
-- state: s sent, p pending, d done. nonce is that of the last intent call and
-- before the state that call found ('-': none), so that its re-send gets the
-- same answer.
local step_pattern = '^(%S+) (%a) (%S+) (%d+) (%d+) (%d+) (%S+) (%S) (%d+)\n'

local function read_steps(v)
  local steps, pos = {}, 1
  while pos <= #v do
    local first, last, name, state, key, fence, calls, ms, nonce, before, size = string.find(v, step_pattern, pos)
    if not first then break end
    size = tonumber(size)
    steps[#steps + 1] = {name = name, state = state, key = key, fence = fence, calls = tonumber(calls), ms = ms,
      nonce = nonce, before = before, result = string.sub(v, last + 1, last + size)}
    pos = last + size + 2
  end
  return steps
end

local function write_step(s)
  return s.name .. ' ' .. s.state .. ' ' .. s.key .. ' ' .. s.fence .. ' ' .. int(s.calls) .. ' ' .. s.ms .. ' ' ..
    s.nonce .. ' ' .. s.before .. ' ' .. #s.result .. '\n' .. s.result .. '\n'
end

local function write_steps(steps)
  local t = {}
  for i = 1, #steps do t[i] = write_step(steps[i]) end
  return table.concat(t)
end

local function find_step(steps, name)
  for i = 1, #steps do
    if steps[i].name == name then return steps[i] end
  end
end
