-- Takes back hits that were charged for a request which another slot has denied. Keys: a token, then counters, then their marks. Arguments:
-- the time of the charge; for each counter the hits, the limit and the state before the charge (or a byte and the id of a reservation); the
-- milliseconds for which the token is kept.
--
-- Whatever was charged or given back in between, a counter then admits no more than if the hits had never been charged. It admits exactly
-- as much if nothing was charged or given back, or if it has not been empty since. A second call with the same token changes nothing.

local counters = (#KEYS - 1) / 2
local states = redis.call('MGET', unpack(KEYS, 1, counters + 1))
if states[1] then return 'known' end
local charged_at, present = ARGV[1] + 0, now

-- The state after the charge.
local function charged_state(limit, before, hits)
  now = charged_at
  local state = add(limit, before, hits)
  now = present
  return state
end

local function undo_in_log(limit, state, charged, hits)
  local date = unpack_from('<d', charged, #charged - 11)
  local total = unpack_from('<d', state, limit.body)
  -- A run that was joined with newer runs has the date of the newest.
  for position = limit.body + 8, #state - 11, 12 do
    local at, count = unpack_from('<dI4', state, position)
    if at >= date then
      local taken = min(hits, count)
      if taken == total then return '' end
      local run = taken < count and pack('<dI4', at, count - taken) or ''
      state = limit.signature .. pack('<d', total - taken) .. sub(state, limit.body + 8, position - 1) .. run .. sub(state, position + 12)
      break
    end
  end
  local newest = unpack_from('<d', state, #state - 11)
  return state, newest + limit.length
end

-- Without the hits, the level is lower by what they added, less the time for which the meter would have been empty since.
local function undo_in_meter(limit, state, before, charged)
  local base, base_part = charged_at, 0
  if before ~= '' then
    base, base_part = unpack_from('<dd', before, limit.body)
    if base < charged_at then base, base_part = charged_at, 0 end
  end
  local less, less_part = unpack_from('<dd', charged, limit.body)
  less, less_part = less - base - max(0, present - base), less_part - base_part
  if less_part < 0 then less, less_part = less - 1, less_part + limit.hits end
  local dry, part = unpack_from('<dd', state, limit.body)
  if less >= 0 then
    dry, part = dry - less, part - less_part
    if part < 0 then dry, part = dry - 1, part + limit.hits end
  end
  if dry < present or (dry == present and part == 0) then return '' end
  return limit.signature .. pack('<dd', dry, part), part > 0 and dry + 1 or dry
end

local function undo_in_window(limit, state, before, charged, hits)
  local ends, count = unpack_from('<dI4', state, limit.body)
  local charged_ends = unpack_from('<d', charged, limit.body)
  if ends ~= charged_ends then return state, ends end
  if count <= hits then return '' end
  -- Without these hits, other hits would have opened the window later.
  local was_open = before ~= '' and unpack_from('<d', before, limit.body) > charged_at
  if limit.kind == FIRST_HIT and not was_open then ends = present + limit.length end
  return limit.signature .. pack('<dI4', ends, count - hits), ends
end

local function undo_in_intervals(limit, state, before, charged, hits)
  local charged_number, missing_then = unpack_from('<dI4', charged, limit.body)
  local number, missing = view_intervals(limit, state)
  local refilled = max(0, number - charged_number) * limit.tokens
  missing = missing - max(0, hits - max(0, refilled - max(0, missing_then - hits)))
  if missing <= 0 then return '' end
  return limit.signature .. pack('<dI4', number, missing), (number + math.ceil(missing / limit.tokens)) * limit.length
end

local function undo(limit, state, before, hits)
  if limit.kind == SLOTS then
    -- There is the id of the slot instead of the state before the charge.
    local left, expires = release_slot(state, sub(before, #limit.signature + 1), hits)
    return left or state, expires
  end
  local charged, kind = charged_state(limit, before, hits), limit.kind
  if kind == WINDOW then
    local charged_number = unpack_from('<d', charged, limit.body)
    local number, previous, current = unpack_from('<dI4I4', state, limit.body)
    if number == charged_number then current = max(0, current - hits) end
    if number == charged_number + 1 then previous = max(0, previous - hits) end
    if previous == 0 and current == 0 then return '' end
    return limit.signature .. pack('<dI4I4', number, previous, current), (number + 2) * limit.length
  elseif kind == SUB_WINDOWS then
    local charged_number = unpack_from('<d', charged, limit.body)
    local fields = { unpack_from(limit.format, state, limit.body) }
    local number, counts, is_empty = fields[1], {}, true
    for i = 1, limit.count do
      counts[i] = fields[i + 2]
      if i == limit.count - (number - charged_number) then counts[i] = max(0, counts[i] - hits) end
      is_empty = is_empty and counts[i] == 0
    end
    if is_empty then return '' end
    return write_sub_windows(limit, number, counts)
  elseif kind == LOG then
    return undo_in_log(limit, state, charged, hits)
  elseif kind == TOKENS or kind == LEAKY then
    return undo_in_meter(limit, state, before, charged)
  elseif kind == INTERVALS then
    return undo_in_intervals(limit, state, before, charged, hits)
  else
    return undo_in_window(limit, state, before, charged, hits)
  end
end

local changed = {}
for i = 2, counters + 1 do
  local hits, length = unpack_from('<dH', ARGV[i])
  local limit, before, state = read_limit(sub(ARGV[i], 11, 10 + length), true), sub(ARGV[i], 11 + length), states[i] or ''
  -- If the counter was converted in between, the hits cannot be distinguished from others, and stay.
  local is_same = sub(before, 1, #limit.signature) == limit.signature or before == ''
  -- If hits were given back since, these may be among them, and others may have used the room.
  local given_at = state ~= '' and redis.call('GET', KEYS[i + counters])
  local is_left = not given_at or given_at + 0 < charged_at or limit.kind == SLOTS
  if byte(before, 1) == RESERVED and state ~= '' then
    local value, value_expires, is_leased = reserved().change(state, sub(before, 2), function(estimate)
      return max(0, estimate - hits), 0
    end)
    if value then write_counter(KEYS[i], value, value_expires, is_leased) end
  elseif state ~= '' and is_same and is_left and sub(state, 1, #limit.signature) == limit.signature then
    local expires
    state, expires = undo(limit, state, before, hits)
    if expires or state == '' then changed[KEYS[i]] = { state, expires or 0 } end
  end
end
for key, change in pairs(changed) do
  local state, expires = change[1], change[2]
  if state ~= '' and expires > present then
    redis.call('SET', key, state, 'PX', math.ceil((expires - present) / 1000) + SLACK_MS)
  else
    redis.call('DEL', key)
  end
end
redis.call('SET', KEYS[1], '', 'PX', ARGV[counters + 2])
return 'undone'
