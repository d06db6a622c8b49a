-- Slots of requests in flight, at the time `now`: the functions of crates/core/src/algorithm/concurrency.rs.
--
-- A state is its signature, the average hold in nanoseconds, the hits of all slots, and the slots by deadline. A slot is an id, a deadline,
-- hits, and the milliseconds from its start to its deadline.

local SLOT, SLOT_BYTES, SLOTS_AT, SLOT_SIGNATURE = '<c8dI4I4', 24, 19, '\1N'

-- The position of the first slot that is held (past the end if none is), and the hits of all held slots.
local function view_slots(state)
  local position, hits = SLOTS_AT, struct.unpack('<d', state, 11)
  while position < #state do
    local deadline, of_slot = struct.unpack('<dI4', state, position + 8)
    if deadline > now then break end
    position, hits = position + SLOT_BYTES, hits - of_slot
  end
  return position, hits
end

-- A state with this average hold and these slots.
local function write_slots(mean, hits, slots)
  return SLOT_SIGNATURE .. struct.pack('<dd', mean, hits) .. slots
end

-- Inserts a slot into `slots`.
local function insert_slot(slots, id, deadline, hits, millis)
  -- Usually at the end. Not if another slot was renewed, `max_hold` has become shorter or the clock was set back.
  local before = #slots
  while before > 0 and struct.unpack('<d', slots, before - 15) > deadline do before = before - SLOT_BYTES end
  return string.sub(slots, 1, before)
    .. struct.pack(SLOT, id, deadline, hits, millis)
    .. string.sub(slots, before + 1)
end

-- Takes a slot of this id for `hold` microseconds, whether its hits fit or not. Returns the state, and the time at which it is empty.
local function take_slot(state, id, hits, hold)
  local mean, total, slots = 0, 0, ''
  if state ~= '' then
    local position
    position, total = view_slots(state)
    mean, slots = struct.unpack('<d', state, 3), string.sub(state, position)
  end
  slots = insert_slot(slots, id, now + hold, hits, math.floor(hold / 1000))
  return write_slots(mean, total + hits, slots), (struct.unpack('<d', slots, #slots - 15))
end

-- The position of the slot of this id, searched from `position`. Nil if there is none.
local function find_slot(state, id, position)
  local at = string.find(state, id, position, true)
  while at and (at - SLOTS_AT) % SLOT_BYTES ~= 0 do at = string.find(state, id, at + 1, true) end
  return at
end

-- Releases `hits` of the slot of this id, at most those that it holds. Returns the state, and the time at which it is empty; nil if no such
-- slot is held. A state without slots keeps the average for as long as the slot might have been held.
local function release_slot(state, id, hits)
  local first, total = view_slots(state)
  local at = find_slot(state, id, first)
  if not at then return nil end
  local mean = struct.unpack('<d', state, 3)
  local _, deadline, held, millis = struct.unpack(SLOT, state, at)
  local released = math.min(hits, held)
  local left = released < held and struct.pack(SLOT, id, deadline, held - released, millis) or ''
  if left == '' then
    local nanos = math.max(0, now - (deadline - millis * 1000)) * 1000
    mean = mean == 0 and nanos or mean - math.floor(mean / 8) + math.floor(nanos / 8)
    mean = math.max(1, mean)
  end
  local slots = string.sub(state, first, at - 1) .. left .. string.sub(state, at + SLOT_BYTES)
  local expires = slots == '' and now + millis * 1000 or struct.unpack('<d', slots, #slots - 15)
  return write_slots(mean, total - released, slots), expires
end
