-- Marks a counter whose hits were given back or reset. An earlier charge is then not undone any more, since its hits may be among those.
-- The mark outlives all attempts at an undo.
local MARK_MS = 120000

local function mark(key, now)
  redis.call('SET', key .. ':given', string.format('%.0f', now), 'PX', MARK_MS)
end
