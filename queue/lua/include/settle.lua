-- The replies that all settling scripts share: a flat list of exceptions,
-- three strings for each: index, code, detail.
--   lost   not the holder: nothing was changed
--   again  settled by this very holder before; detail R, L, D or C tells how
--   gone   the entry was deleted from outside; its record is dropped
--   dead   became a dead letter
--   error  nothing was changed; detail is the server's error
local out, unsettled = {}, false
-- latest: what this call made of a record, for a task that it names twice.
local latest = {}
local function record_of(id, rec)
  if latest[id] ~= nil then return latest[id] end
  return rec
end

local function put_record(tasks, id, rec)
  redis.call('HSET', tasks, id, rec)
  latest[id] = rec
end

local function except(i, code, detail)
  if code == 'lost' or code == 'error' then unsettled = true end
  out[#out + 1] = int(i)
  out[#out + 1] = code
  out[#out + 1] = detail or ''
end

-- refuse(i, rec, tail, live, digest, events, id, e): reports why the caller may not
-- settle, and tells of it when its lease was lost; e: what note takes.
local function refuse(i, rec, tail, live, digest, events, id, e)
  local how, tag = settled_as(rec, tail), string.sub(tail, -14, -8)
  if how then return except(i, 'again', how) end
  for s = 1, #live do
    local v = redis.call('HGET', live[s], digest)
    if v and string.sub(v, 1, 7) == tag then return except(i, 'again', 'C') end
  end
  except(i, 'lost')
  e.tail, e.detail = tail, e.detail .. ', now ' .. (rec and places[string.sub(rec, 1, 1)] or 'unknown or done')
  note(events, 'refused', id, e)
end

-- drop_gone: forgets a pending task of the caller whose entry is gone.
local function drop_gone(i, stream, group, tasks, counted, events, id, entry, e)
  redis.call('XACK', stream, group, entry)
  redis.call('HDEL', tasks, id)
  redis.call('HDEL', counted, id)
  latest[id] = false
  except(i, 'gone', entry)
  e.detail = 'entry ' .. entry .. ' was deleted from outside'
  note(events, 'lost', id, e)
end

-- end_grants: forgets the grants named from ARGV[first] on. Something not
-- settled may belong to one of them; then they are left to run out. complete.lua
-- has it in place.
local function end_grants(leases, grants, revoked, first)
  if unsettled or not ARGV[first] then return end
  redis.call('ZREM', leases, unpack(ARGV, first))
  redis.call('HDEL', grants, unpack(ARGV, first))
  redis.call('HDEL', revoked, unpack(ARGV, first))
end
