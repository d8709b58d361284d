-- Redrive: moves dead letters back to the stream with a full budget.
--
-- KEYS[1] stream stream      KEYS[2] tasks hash         KEYS[3] dead stream
-- KEYS[4] counts hash        KEYS[5] events stream
-- ARGV[1] n                  tasks; then n IDs
-- Replies: n strings: 'dead' moved, '' unknown, 'packed' too many fields to
-- move, else the place where the task is instead.
-- Keeps I1, I7.
-- @include clock record move events

local stream, tasks, dead, n = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1])
local recs = redis.call('HMGET', tasks, unpack(ARGV, 2, 1 + n))
redis.call('HDEL', KEYS[4], '') -- a removal first: accepted by a full server
local replies = {}
for i = 1, n do
  local id, rec = ARGV[1 + i], recs[i]
  replies[i] = ''
  if rec then
    local place, entry, mark = parse(rec)
    replies[i] = places[place]
    local letter = place == 'd' and take(dead, entry)
    if place == 'd' and not letter then
      replies[i] = ''
      redis.call('HDEL', tasks, id)
    elseif letter and letter[17] == 'packed_fields' and mark == '!' then
      replies[i] = 'packed'
    elseif letter then
      local fields = {unpack(letter, 17)}
      if mark ~= '!' then fields = portable(fields, id, letter[14]) end
      local new = redis.call('XADD', stream, '*', unpack(fields))
      redis.call('HDEL', KEYS[4], id)
      if mark == '!' then
        redis.call('HDEL', tasks, id)
      else
        redis.call('HSET', tasks, id, 'w' .. new .. ' ' .. enqueue_tag(mark))
      end
      redis.call('XDEL', dead, entry)
      note(KEYS[5], 'redriven', id, {detail = letter[2]})
    end
  end
end
return replies
