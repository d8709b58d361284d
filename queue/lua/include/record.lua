-- A record is the one small value kept for a live task:
--   w<entry> <mark>                  waiting
--   s<entry> <mark>                  scheduled (entry of the scheduled stream)
--   d<entry> <mark>                  dead letter (entry of the dead stream)
--   h<entry> <mark> <fence> <token>  pending, held: leased, handler not started
--   p<entry> <mark> <fence> <token>  pending, handler started
-- mark is the tag of the enqueue call that added the task ('-': none, '!':
-- not a task), and, once a holder has settled without finishing it, ",R",
-- ",L" or ",D" (retried, released, dead-lettered) and that holder's tag. A tag
-- is the first seven characters of a token.
local places = {w = 'waiting', s = 'scheduled', d = 'dead', h = 'pending', p = 'pending'}

-- parse(rec): place letter, entry, mark, fence, token (the last two nil
-- unless the task is pending).
local function parse(rec)
  local entry, mark, rest = string.match(rec, '^.(%S+) (%S+)(.*)$')
  local fence, token = string.match(rest, '^ (%d+) (%S+)$')
  return string.sub(rec, 1, 1), entry, mark, fence, token
end

-- held_by(rec, tail): whether the holder whose " <fence> <token>" is tail
-- holds the record. Only a pending record ends that way.
local function held_by(rec, tail)
  return rec and string.sub(rec, -#tail) == tail
end

-- settled_as(rec, tail): how the holder behind tail settled the task, if the
-- record remembers it: 'R', 'L', 'D' or nil.
local function settled_as(rec, tail)
  if not rec then return nil end
  local _, _, mark = parse(rec)
  local how, tag = string.match(mark, ',(%u)(.+)$')
  if tag and tag == string.sub(tail, -14, -8) then return how end
  return nil
end

-- enqueue_tag(mark): the mark without what settling added to it.
local function enqueue_tag(mark)
  return string.match(mark, '^[^,]+')
end
