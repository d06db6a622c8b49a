-- Releases the slots of one ticket. Keys: counters. Arguments: the id, and the most hits to release of each slot. Returns how many were
-- held.
--
-- A slot that is no longer held is skipped, so that a second call for all hits changes nothing.

local states, released = redis.call('MGET', unpack(KEYS)), 0
local id, most = ARGV[1], ARGV[2] + 0
for i = 1, #KEYS do
  local state = states[i]
  if state and string.sub(state, 1, 2) == SLOT_SIGNATURE then
    local left, expires = release_slot(state, id, most)
    if left then
      released = released + 1
      redis.call('SET', KEYS[i], left, 'PX', math.ceil(math.max(0, expires - now) / 1000) + SLACK_MS)
    end
  end
end
return released
