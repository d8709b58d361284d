-- Events are what can be told of tasks afterwards: the last EVENTS of a partition,
-- or a few more, in a stream whose entries all have the same fields, so that the
-- server keeps their names once. Telling is never in the way of what is told:
-- whatever keeps an event out (full memory, a key of another type), the call goes
-- on and answers as it would have.
local EVENTS, ERROR_BYTES = 10000, 200

-- note(events, what, id, e): adds an event of a task, or of a grant where id is
-- ''. Known of e: by (the caller's consumer name); token, fence, ends (ms) and
-- stage (h or p) of the lease, or tail (" <fence> <token>") and leases, the key
-- where its end is looked up; attempt, failures, interruptions; detail; err. Of
-- the token six characters are kept, and the two that tell the grants of one
-- call apart.
local function note(events, what, id, e)
  local fence, token, ends = e.fence, e.token, e.ends
  if e.tail then fence, token = string.match(e.tail, '^ (%d+) (%S+)$') end
  token = token or '' -- a caller may name none
  if e.leases then ends = redis.pcall('ZSCORE', e.leases, token) end
  redis.pcall('XADD', events, 'MAXLEN', '~', int(EVENTS), '*', 'event', what, 'task', id,
    'consumer', e.by or '', 'owner', string.sub(token, 1, 6) .. string.sub(token, 13), 'fence', fence or '',
    'lease_end_ms', type(ends) == 'string' and int(tonumber(ends)) or '',
    'stage', e.stage == 'p' and 'started' or e.stage == 'h' and 'held' or '', 'attempt', e.attempt and int(e.attempt) or '',
    'failures', e.failures and int(e.failures) or '', 'interruptions', e.interruptions and int(e.interruptions) or '',
    'detail', e.detail or '', 'error', string.sub(e.err or '', 1, ERROR_BYTES))
end
