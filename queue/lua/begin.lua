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
-- ARGV[9] n                  tasks; then n IDs, n entries, and, if asked for, n digests
-- Replies: 'DIGESTS' when a task has no record and digests are not given: nothing was
-- done, ask again with them; else fence, now_ms, then exceptions, three strings each: index, code,
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

local ARGV, KEYS, call, byte, find, sub, unpack = ARGV, KEYS, redis.call, string.byte, string.find, string.sub, unpack
local stream, tasks, leases = KEYS[1], KEYS[2], KEYS[5]
local group, token, start, n = ARGV[1], ARGV[2], tonumber(ARGV[5]), tonumber(ARGV[9])
local ids, entries, digests = 9, 9 + n, 9 + 2 * n
local trace = ARGV[8] == '1'

local recs = call('HMGET', tasks, unpack(ARGV, ids + 1, ids + n))
local troubled = call('EXISTS', KEYS[8]) == 1 and call('HMGET', KEYS[8], unpack(ARGV, ids + 1, ids + n))
if not ARGV[digests + 1] then
  for i = 1, n do
    if not recs[i] then return 'DIGESTS' end
  end
end

-- @include now
local fence, written = tonumber(call('GET', KEYS[9]) or 0) + 1, time[1] .. sub('000000', #time[2] + 1) .. time[2]
if fence < us then fence = us else written = string.format('%.0f', fence) end
local tail = ' ' .. written .. ' ' .. token
-- set: n times ID and record, of which the first k strings count. It begins as so
-- many other strings: a table that does not grow is filled faster.
local set, k = {unpack(ARGV, ids + 1, ids + 2 * n)}, 0
local out, counted, copies, told, again = {}, false, false, trace and {}, false

-- Tasks that plainly wait, up to the first that does not. Entries that come in a
-- rising order are all different.
local i, last = 1, ''
while i <= n do
  local entry, rec = ARGV[entries + i], recs[i]
  -- w<entry> <mark>
  if not rec or last >= entry or find(rec, entry, 2, true) ~= 2 or byte(rec) ~= 119 or byte(rec, #entry + 2) ~= 32 or
    troubled and troubled[i] then
    break
  end
  local place = i <= start and 'p' or 'h'
  set[k + 1], set[k + 2] = ARGV[ids + i], place .. sub(rec, 2) .. tail
  k, i, last = k + 2, i + 1, entry
  if told then told[i - 1] = {false, ARGV[ids + i - 1], rec, {by = ARGV[7], token = token, stage = place, attempt = 1, failures = 0, interruptions = 0}} end
end

if i <= n then
  -- @include clock record counts done move
  copies, counted = {}, {}
  local seen = {}
  for j = 1, i - 1 do seen[ARGV[ids + j]] = ARGV[entries + j] end
  local marks
  local function done_mark(i)
    if not marks then
      local live = done_slices({KEYS[10], KEYS[11], KEYS[12]}, done_time(us, KEYS[9], tonumber(ARGV[4])), tonumber(ARGV[4]))
      marks = done_marks(live, digests + 1, digests + n)
    end
    return marks[i]
  end

  local function live_lease(tok)
    local ends = call('ZSCORE', leases, tok)
    return ends and tonumber(ends) > now
  end

  -- judge(i): what to do with entry i: 'grant', 'take' (from an ended lease),
  -- 'again', 'copy' or 'busy'; with the mark, and the place or the fence.
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

  local function except(i, code, detail)
    out[#out + 1] = int(i)
    out[#out + 1] = code
    out[#out + 1] = detail or ''
  end

  for i = i, n do
    local id, entry = ARGV[ids + i], ARGV[entries + i]
    local verdict, mark, detail = judge(i)
    local failures, interruptions, _, _, err = counts(troubled and troubled[i])
    if verdict == 'copy' then
      copies[#copies + 1] = entry
      copies[entry] = {id, detail}
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
        if i <= start and place == 'h' then except(i, 'as', 'h ' .. written) end
        set[k + 1], set[k + 2] = id, place .. entry .. ' ' .. mark .. tail
        k = k + 2
        if trace or verdict == 'take' then
          told = told or {}
          told[#told + 1] = {verdict == 'take', id, recs[i], {by = ARGV[7], token = token, stage = place,
            attempt = 1 + failures + interruptions, failures = failures, interruptions = interruptions}}
        end
      end
      if failures + interruptions > 0 then except(i, 'count', int(failures) .. ' ' .. int(interruptions)) end
    end
  end
end

if k > 0 and fence >= 2 ^ 53 then
  return redis.error_reply('ERR the fence key is beyond 2^53, where two fences would be one')
end
local ends = string.format('%.0f', now + ARGV[3])
call('HDEL', KEYS[7], token) -- a removal first: accepted by a full server
if k > 0 or again then call('ZADD', leases, ends, token) end
if k > 0 then
  call('SET', KEYS[9], written)
  call('HSET', KEYS[6], token, ARGV[6])
  if counted and #counted > 0 then call('HSET', KEYS[8], unpack(counted)) end
  call('HSET', tasks, unpack(set, 1, k))
end
if told or copies then
  -- @include clock record events
  for i = 1, told and #told or 0 do
    local what, e = 'delivered', told[i][4]
    e.fence, e.ends = written, ends
    if told[i][1] then
      local place, _, _, old, tok = parse(told[i][3])
      local ended = call('ZSCORE', leases, tok)
      what, e.detail = 'reclaimed', sub(tok, 1, 6) .. sub(tok, 13) .. ' ' .. old .. ' ' ..
        (place == 'p' and 'started' or 'held') .. ' ' .. (ended and int(tonumber(ended)) or '0')
    end
    note(KEYS[13], what, told[i][2], e)
  end
  if copies and #copies > 0 then
    local acked = call('XACK', stream, group, unpack(copies))
    call('XDEL', stream, unpack(copies))
    for i = 1, acked > 0 and #copies or 0 do -- 0: this call was made before
      local c = copies[copies[i]]
      note(KEYS[13], 'duplicate', c[1], {by = ARGV[7], token = token, detail = c[2]})
    end
  end
end
return {k > 0 and written or '0', now, unpack(out)}
