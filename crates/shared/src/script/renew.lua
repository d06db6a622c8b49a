-- Renews everything that one ticket names, or nothing. Keys: counters of slots, then counters of reservations. Arguments: the id, the
-- number of counters of slots, 1 to renew or 0 to only look, and for each key the microseconds for which it is held from now. Returns 1 if
-- everything is held, else 0, and how many other reservations had passed their deadlines.
--
-- A second call changes nothing but the time.

-- Renews the slot of this id: it ends `hold` microseconds from now, or at its deadline if that is later. Returns the state, and the time at
-- which it is empty; nil if no such slot is held.
local function renew_slot(state, id, hold)
  local first, total = view_slots(state)
  local at = find_slot(state, id, first)
  if not at then return nil end
  local mean = struct.unpack('<d', state, 3)
  local _, deadline, hits, millis = struct.unpack(SLOT, state, at)
  if deadline < now + hold then
    -- Whole milliseconds: the time at which the slot was taken stays the same after any number of renewals.
    local taken = math.floor(deadline / 1000 - millis)
    deadline = now + hold
    millis = math.min(math.floor(deadline / 1000) - taken, 4294967295)
  end
  local slots = string.sub(state, first, at - 1) .. string.sub(state, at + SLOT_BYTES)
  slots = insert_slot(slots, id, deadline, hits, millis)
  return write_slots(mean, total, slots), (struct.unpack('<d', slots, #slots - 15))
end

local values, slots, held = redis.call('MGET', unpack(KEYS)), ARGV[2] + 0, {}
local id, writes = ARGV[1], ARGV[3] == '1'
for i = 1, #KEYS do
  local value, hold, state, expires, is_leased = values[i], ARGV[3 + i] + 0, nil, nil, nil
  if value and i <= slots then
    if sub(value, 1, 2) == SLOT_SIGNATURE then state, expires = renew_slot(value, id, hold) end
  elseif value then
    state, expires, is_leased = reserved().renew(value, id, now + hold)
  end
  if not state then return { 0, 0 } end
  held[i] = { state, expires, is_leased }
end
if not writes then return { 1, 0 } end
for i = 1, #KEYS do write_counter(KEYS[i], unpack(held[i], 1, 3)) end
return { 1, lost }
