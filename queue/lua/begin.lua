-- Begin: takes leases on entries that were delivered to the caller.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] scheduled stream
-- KEYS[4] dead stream        KEYS[5] leases zset        KEYS[6] grants hash
-- KEYS[7] revoked hash       KEYS[8] counts hash        KEYS[9] fence string
-- KEYS[10] done1 hash        KEYS[11] done2 hash        KEYS[12] done3 hash
-- KEYS[13] events stream
-- ARGV[1] group              ARGV[2] token              ARGV[3] lease_ms
-- ARGV[4] window_ms          ARGV[5] start              how many may start at once
-- ARGV[6] members            "entry id\n" of every task, to find them by the token
-- ARGV[7] consumer           ARGV[8] trace              1: tell of everything
-- ARGV[9] n                  tasks; then n IDs, n entries, n digests
-- Replies: fence, now_ms, then exceptions, three strings each: index, code,
-- detail. Without an exception task i is granted, started when i <= start.
--   as     granted otherwise: detail 'p <fence>' (started) or 'h <fence>' (held)
--   count  besides: detail '<failures> <interruptions>'
--   copy   the ID is live elsewhere or done (detail), or it has no record and the
--          entry was deleted meanwhile ('deleted'): entry acked and deleted
--   busy   another live lease holds it: left as it is
-- Keeps I2, I3, I5, I6, I7. A call that is asked again counts its lease from the
-- second ask, as the caller does; where the lease has ended meanwhile and nobody
-- took the task, it is granted anew. A copy is acked because the record says that the
-- ID is done or that the task is another entry, which is seen to exist.
-- @include clock record counts done move events

local stream, tasks, leases = KEYS[1], KEYS[2], KEYS[5]
local group, token, start, n = ARGV[1], ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[9])
local ids, entries, digests = 9, 9 + n, 9 + 2 * n
local trace = ARGV[8] == '1'
local now, us = clock()

local recs = redis.call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
local troubled = redis.call('EXISTS', KEYS[8]) == 1 and redis.call('HMGET', KEYS[8], unpack(ARGV, ids + 1, ids + n)) or {}
local marks
local function done_mark(i)
  if not marks then
    local live = done_slices({KEYS[10], KEYS[11], KEYS[12]}, done_time(us, KEYS[9], tonumber(ARGV[4])), tonumber(ARGV[4]))
    marks = done_marks(live, digests + 1, digests + n)
  end
  return marks[i]
end

local function live_lease(tok)
  local ends = redis.call('ZSCORE', leases, tok)
  return ends and tonumber(ends) > now
end

-- judge(i): what to do with entry i: 'grant', 'take' (from an ended lease),
-- 'again', 'copy' or 'busy'; with the mark, and the place or the fence.
local seen = {}
local function judge(i)
  local id, entry, rec = ARGV[ids + i], ARGV[entries + i], recs[i]
  if seen[id] == entry then return 'busy' end -- the caller named it twice
  if seen[id] then return 'copy', nil, 'pending' end
  if not rec then
    if done_mark(i) then return 'copy', nil, 'done' end
    -- Deleted by ID between delivery and this call: it must not come back.
    if not take(stream, entry) then return 'copy', nil, 'deleted' end
    return 'grant', '-'
  end
  local place, at, mark, fence, tok = parse(rec)
  if at == entry and place == 'w' then return 'grant', mark end
  if at == entry and tok then
    if live_lease(tok) then
      if tok ~= token then return 'busy' end
      return 'again', mark, place .. ' ' .. fence
    end
    if tok == token then return 'grant', mark end
    return 'take', mark, place
  end
  local home = stream
  if place == 's' then home = KEYS[3] elseif place == 'd' then home = KEYS[4] end
  if take(home, at) or (tok and live_lease(tok)) then return 'copy', nil, places[place] end
  return 'grant', enqueue_tag(mark) -- the task's own entry is gone: this copy takes its place
end

local fence
local function new_fence()
  if not fence then
    fence = math.max(tonumber(redis.call('GET', KEYS[9]) or 0) + 1, us)
  end
  return int(fence)
end

local out, set, counted, copies, told, again = {}, {}, {}, {}, nil, false
local function except(i, code, detail)
  out[#out + 1] = int(i)
  out[#out + 1] = code
  out[#out + 1] = detail or ''
end

for i = 1, n do
  local id, entry = ARGV[ids + i], ARGV[entries + i]
  local verdict, mark, detail = judge(i)
  local failures, interruptions, u, at, err = counts(troubled[i])
  if verdict == 'copy' then
    copies[#copies + 1] = entry
    copies[entry] = {ARGV[ids + i], detail}
    except(i, 'copy', detail)
  elseif verdict == 'busy' then
    except(i, 'busy')
  else
    seen[id] = entry
    if verdict == 'again' then
      again = true
      except(i, 'as', detail)
    else
      if verdict == 'take' and detail == 'p' then
        interruptions = interruptions + 1
        counted[#counted + 1] = id
        counted[#counted + 1] = count_value(failures, interruptions, 0, 0, err)
      end
      local place = 'h'
      if i <= start and interruptions < 2 then place = 'p' end
      if i <= start and place == 'h' then except(i, 'as', 'h ' .. new_fence()) end
      set[#set + 1] = id
      set[#set + 1] = place .. entry .. ' ' .. mark .. ' ' .. new_fence() .. ' ' .. token
      if trace or verdict == 'take' then
        told = told or {}
        told[#told + 1] = {verdict == 'take', id, recs[i], {by = ARGV[7], token = token, stage = place,
          attempt = 1 + failures + interruptions, failures = failures, interruptions = interruptions}}
      end
    end
    if failures + interruptions > 0 then except(i, 'count', int(failures) .. ' ' .. int(interruptions)) end
  end
end

if fence and fence >= 2 ^ 53 then
  return redis.error_reply('ERR the fence key is beyond 2^53, where two fences would be one')
end
redis.call('HDEL', KEYS[7], token) -- a removal first: accepted by a full server
if #set > 0 or again then redis.call('ZADD', leases, int(now + tonumber(ARGV[3])), token) end
if #set > 0 then
  redis.call('SET', KEYS[9], int(fence))
  redis.call('HSET', KEYS[6], token, ARGV[6])
  if #counted > 0 then redis.call('HSET', KEYS[8], unpack(counted)) end
  redis.call('HSET', tasks, unpack(set))
end
for i = 1, told and #told or 0 do
  local what, e = 'delivered', told[i][4]
  e.fence, e.ends = int(fence), int(now + tonumber(ARGV[3]))
  if told[i][1] then
    local place, _, _, old, tok = parse(told[i][3])
    local ends = redis.call('ZSCORE', leases, tok)
    what, e.detail = 'reclaimed', string.sub(tok, 1, 6) .. string.sub(tok, 13) .. ' ' .. old .. ' ' ..
      (place == 'p' and 'started' or 'held') .. ' ' .. (ends and int(tonumber(ends)) or '0')
  end
  note(KEYS[13], what, told[i][2], e)
end
if #copies > 0 then
  local acked = redis.call('XACK', stream, group, unpack(copies))
  redis.call('XDEL', stream, unpack(copies))
  for i = 1, acked > 0 and #copies or 0 do -- 0: this call was made before
    local c = copies[copies[i]]
    note(KEYS[13], 'duplicate', c[1], {by = ARGV[7], token = token, detail = c[2]})
  end
end
return {int(fence or 0), int(now), unpack(out)}
