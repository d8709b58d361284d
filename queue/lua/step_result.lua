-- Step result: records what became of a called step.
--
-- KEYS[1] tasks hash         KEYS[2] steps hash         KEYS[3] kept1 hash
-- KEYS[4] kept2 hash         KEYS[5] kept3 hash
-- ARGV[1] id                 ARGV[2] digest             ARGV[3] tail " <fence> <token>"
-- ARGV[4] name               ARGV[5] state              'd' done, 'p' known not to have happened
-- ARGV[6] result
-- Replies: 'lost', 'conflict' and the recorded step, or 'ok' and the step.
-- Keeps I4, with its one exception: the result of a step that was called is
-- kept from anyone when none is recorded, for forgetting a real effect is the
-- worse error. A task that was deleted has no step on record and gets none.
-- @include clock record steps

local id, name = ARGV[1], ARGV[4]
local now = clock()
local home, field = KEYS[2], id
local value = redis.call('HGET', home, field)
if not value then
  for s = 3, 5 do
    local v = redis.call('HGET', KEYS[s], ARGV[2] .. '/')
    if v then home, field, value = KEYS[s], ARGV[2] .. '/', v end
  end
end
local steps = read_steps(value or '')
local step = find_step(steps, name)
if not step then return {'lost'} end
if step.state == 'd' then
  local same = ARGV[5] == 'd' and step.result == ARGV[6]
  return {same and 'ok' or 'conflict', write_step(step)}
end
if ARGV[5] == 'p' and not held_by(redis.call('HGET', KEYS[1], id), ARGV[3]) then return {'lost'} end
step.state, step.result, step.ms = ARGV[5], ARGV[6], int(now)
redis.call('HDEL', KEYS[2], '') -- a removal first: accepted by a full server
redis.call('HSET', home, field, write_steps(steps))
return {'ok', write_step(step)}
