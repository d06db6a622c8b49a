-- Marks a counter whose hits were given back or reset: a charge from before is not undone any more, since its hits may be among those.
-- Kept for longer than an undo is tried.
local MARK_MS = 120000

local function mark(key, now)
  redis.call('SET', key .. ':given', string.format('%.0f', now), 'PX', MARK_MS)
end
