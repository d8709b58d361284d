-- Inspect: what is known of one task.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] scheduled stream
-- KEYS[4] due zset           KEYS[5] dead stream        KEYS[6] leases zset
-- KEYS[7] counts hash        KEYS[8] steps hash         KEYS[9] done1 hash
-- KEYS[10] done2 hash        KEYS[11] done3 hash        KEYS[12] kept1 hash
-- KEYS[13] kept2 hash        KEYS[14] kept3 hash        KEYS[15] fence string
-- ARGV[1] id                 ARGV[2] digest             ARGV[3] window_ms
-- Replies: record or '', lease end or due time (ms) or '', counts or '', steps
-- or '', result or '', fields of the entry ({} when done or gone). The record
-- of a finished task is answered as 'done'.
-- @include clock record done move

local id, digest = ARGV[1], ARGV[2]
local rec = redis.call('HGET', KEYS[2], id)
if not rec then
  local _, us = clock()
  local live = {}
  for _, slice in ipairs(done_slices({KEYS[9], KEYS[10], KEYS[11]}, done_time(us, KEYS[15], tonumber(ARGV[3])), tonumber(ARGV[3]))) do live[slice] = true end
  for s = 9, 11 do
    if live[KEYS[s]] and redis.call('HEXISTS', KEYS[s], digest) == 1 then
      return {'done', '', '', redis.call('HGET', KEYS[s + 3], digest .. '/') or '', redis.call('HGET', KEYS[s + 3], digest) or '', {}}
    end
  end
  return {'', '', '', '', '', {}}
end
local place, entry, _, _, token = parse(rec)
local home, at = KEYS[1], ''
if place == 's' then
  home, at = KEYS[3], redis.call('ZSCORE', KEYS[4], due_member(entry, id)) or ''
elseif place == 'd' then
  home = KEYS[5]
elseif token then
  at = redis.call('ZSCORE', KEYS[6], token) or ''
end
return {rec, at, redis.call('HGET', KEYS[7], id) or '', redis.call('HGET', KEYS[8], id) or '', '', take(home, entry) or {}}
