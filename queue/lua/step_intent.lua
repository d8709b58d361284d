-- Step intent: records that a step of a running task is about to be called.
--
-- KEYS[1] tasks hash         KEYS[2] leases zset        KEYS[3] steps hash
-- ARGV[1] id                 ARGV[2] tail               " <fence> <token>"
-- ARGV[3] name               ARGV[4] key                idempotency key
-- ARGV[5] nonce              of the call                ARGV[6] max_steps
-- Replies: 'lost', 'full', or 'ok' and the step as it was before ('' when it
-- is new). A step that is done is not touched.
-- Keeps I4, I6, I7.
-- @include clock record steps

local tasks, leases, steps_key = KEYS[1], KEYS[2], KEYS[3]
local id, tail = ARGV[1], ARGV[2]
local now = clock()
local rec = redis.call('HGET', tasks, id)
local ends = redis.call('ZSCORE', leases, string.match(tail, '(%S+)$'))
if not held_by(rec, tail) or string.sub(rec, 1, 1) ~= 'p' or not ends or tonumber(ends) <= now then return {'lost'} end

local steps = read_steps(redis.call('HGET', steps_key, id) or '')
local step, was = find_step(steps, ARGV[3]), ''
if step then
  if step.state == 'd' then return {'ok', write_step(step)} end
  if step.nonce == ARGV[5] then
    if step.before == '-' then return {'ok', ''} end
    step.state, step.calls = step.before, step.calls - 1
    return {'ok', write_step(step)}
  end
  was, step.before = write_step(step), step.state
else
  if #steps >= tonumber(ARGV[6]) then return {'full'} end
  step = {name = ARGV[3], calls = 0, result = '', before = '-'}
  steps[#steps + 1] = step
end
step.state, step.key, step.nonce = 's', ARGV[4], ARGV[5]
step.fence, step.calls, step.ms = string.match(tail, '^ (%d+)'), step.calls + 1, int(now)
redis.call('HDEL', steps_key, '') -- a removal first: accepted by a full server
redis.call('HSET', steps_key, id, write_steps(steps))
return {'ok', was}
