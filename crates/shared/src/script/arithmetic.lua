-- The arithmetic of counters, at the time `now`. The layout of states is described in docs/shared.md.
--
-- Numbers are doubles, times are microseconds since the Unix epoch: below 2^53 until the year 2255. Products that may exceed 2^53
-- are divided with `divmod`, which is exact.

local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local pack, unpack_from, sub, byte, call = struct.pack, struct.unpack, string.sub, string.byte, redis.call
local U32, EXACT_BELOW = 4294967295, 9007199254740992
-- A meter holds no more than this many microseconds of draining: 126 years.
local LEVEL_MAX = 4e15

-- Returns the rounded product and its rounding error. Their sum is exact (Veltkamp and Dekker).
local function two_product(a, b)
  local product = a * b
  local c = 134217729 * a
  local a_high = c - (c - a)
  local a_low = a - a_high
  c = 134217729 * b
  local b_high = c - (c - b)
  local b_low = b - b_high
  return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
end

-- Returns the quotient and the remainder of (a * b + r) / c. All numbers are whole and not negative. Exact for quotients below 2^52.
local function divmod(a, b, r, c)
  local product = a * b
  local sum = product + r
  if sum < EXACT_BELOW then
    local quotient = floor(sum / c)
    return quotient, sum - quotient * c
  end
  local quotient = floor(sum / c)
  local back, back_error = two_product(quotient, c)
  local _, product_error = two_product(a, b)
  local rest = (product - back) + ((product_error - back_error) + r)
  while rest < 0 do quotient, rest = quotient - 1, rest + c end
  while rest >= c do quotient, rest = quotient + 1, rest - c end
  return quotient, rest
end

-- The kinds of limits: the letter with which their signature begins.
local WINDOW, SUB_WINDOWS, LOG, CLOCK, FIRST_HIT, CALENDAR, TOKENS, LEAKY, INTERVALS = 87, 83, 71, 67, 72, 75, 84, 76, 73
local SLOTS = 78

-- First byte of a counter with open reservations, instead of the length of a signature. `make_reserving` makes the functions for these
-- counters. `lost` is the number of reservations that had passed their deadlines.
local RESERVED = 255
local make_reserving, reserving
local lost = 0
local function reserved()
  reserving = reserving or make_reserving()
  return reserving
end

-- Reads a limit from the bytes that begin with its signature: an argument, or the state of a counter. Only an argument has more after the
-- signature.
local function read_limit(bytes, is_argument)
  local length, kind = byte(bytes, 1, 2)
  local body = length + 2
  local limit = { signature = sub(bytes, 1, length + 1), kind = kind, body = body }
  if kind == TOKENS or kind == LEAKY then
    limit.hits, limit.per = unpack_from('<dd', bytes, 3)
  elseif kind == INTERVALS then
    limit.length, limit.tokens = unpack_from('<dd', bytes, 3)
  elseif kind == SUB_WINDOWS then
    local count
    limit.length, count = unpack_from('<dB', bytes, 3)
    limit.count = count + 1
    limit.format = '<dI4' .. string.rep('I4', count + 1)
    if is_argument then limit.allowance = unpack_from('<d', bytes, body) end
  elseif kind == CALENDAR then
    if is_argument then limit.ends = { unpack_from('<dddd', bytes, body) } end
  elseif kind == WINDOW or kind == CLOCK or kind == FIRST_HIT then
    limit.length = unpack_from('<d', bytes, 3)
  elseif kind == LOG then
    limit.length = unpack_from('<d', bytes, 3)
    if is_argument then limit.limit = unpack_from('<d', bytes, body) end
  elseif kind == SLOTS then
    if is_argument then limit.limit, limit.length = unpack_from('<dd', bytes, body) end
  else
    return nil
  end
  -- The format of most states, signature included: a state packed in one go is one string instead of three.
  local numbers = kind == WINDOW and 'dI4I4' or (kind == TOKENS or kind == LEAKY) and 'dd' or 'dI4'
  limit.state = '<c' .. body - 1 .. numbers
  return limit
end

-- The number of the current window, the hits of the window before and of this one, and the time since it began.
local function view_window(limit, state)
  local length = limit.length
  local number = floor(now / length)
  if state == '' then return number, 0, 0, now - number * length end
  local stored, previous, current = unpack_from('<dI4I4', state, limit.body)
  if number < stored then return stored, previous, current, 0 end
  local elapsed = now - number * length
  if number == stored then return number, previous, current, elapsed end
  if number == stored + 1 then return number, current, 0, elapsed end
  return number, 0, 0, elapsed
end

-- The number of the current sub-window, the hits of each sub-window, and the time since it began.
local function view_sub_windows(limit, state)
  local length, count = limit.length, limit.count
  local number, hits = floor(now / length), {}
  local stored, gone, allowance = number, count, limit.allowance
  if state ~= '' then
    local fields = { unpack_from(limit.format, state, limit.body) }
    stored, allowance = fields[1], allowance or fields[2]
    gone = max(0, min(count, number - stored))
    for i = 1, count do hits[i] = fields[i + 2 + gone] end
    for i = count - gone + 1, count do hits[i] = 0 end
  else
    for i = 1, count do hits[i] = 0 end
  end
  if number < stored then return stored, hits, 0, allowance end
  return number, hits, now - number * length, allowance
end

-- The position of the first run of a log that still counts, the hits from there on, and the time of the newest hit. If no run counts, the
-- position is past the end.
local function view_log(limit, state)
  if state == '' then return nil, 0, 0 end
  local last = #state - 11
  local newest = unpack_from('<d', state, last)
  local forgotten = max(now, newest) - limit.length
  if newest <= forgotten then return nil, 0, newest end
  local total, position = unpack_from('<d', state, limit.body)
  local at, hits = unpack_from('<dI4', state, position)
  while at <= forgotten do
    total, position = total - hits, position + 12
    at, hits = unpack_from('<dI4', state, position)
  end
  return position, total, newest
end

-- The number of the current interval and the missing tokens.
local function view_intervals(limit, state)
  local number = floor(now / limit.length)
  if state == '' then return number, 0 end
  local stored, missing = unpack_from('<dI4', state, limit.body)
  if number <= stored then return stored, missing end
  return number, max(0, missing - (number - stored) * limit.tokens)
end

-- The time in which `hits` drain: microseconds, and fractions. `limit.hits` fractions are a microsecond.
local function weight(limit, hits)
  if hits * limit.per / limit.hits > LEVEL_MAX then return LEVEL_MAX, 0 end
  return divmod(hits, limit.per, 0, limit.hits)
end

-- The hits that count now.
local function used_of(limit, state)
  if byte(state, 1) == RESERVED then state = reserved().seen(state) end
  if state == '' then return 0 end
  local kind = limit.kind
  if kind == WINDOW then
    local _, previous, current, elapsed = view_window(limit, state)
    if previous == 0 then return current end
    return current + (divmod(previous, limit.length - elapsed, 0, limit.length))
  elseif kind == TOKENS or kind == LEAKY then
    local dry, part = unpack_from('<dd', state, limit.body)
    if dry < now then return 0 end
    local hits, rest = divmod(dry - now, limit.hits, part, limit.per)
    return rest > 0 and hits + 1 or hits
  elseif kind == CLOCK or kind == FIRST_HIT or kind == CALENDAR then
    local window_end, hits = unpack_from('<dI4', state, limit.body)
    return now < window_end and hits or 0
  elseif kind == INTERVALS then
    local _, missing = view_intervals(limit, state)
    return missing
  elseif kind == SUB_WINDOWS then
    local _, hits, elapsed, allowance = view_sub_windows(limit, state)
    local used = hits[1]
    if used > 0 then
      used = max((divmod(used, limit.length - elapsed, 0, limit.length)), used - allowance)
    end
    for i = 2, limit.count do used = used + hits[i] end
    return used
  elseif kind == SLOTS then
    local _, hits = view_slots(state)
    return hits
  else
    local _, total = view_log(limit, state)
    return total
  end
end

-- The end of the window that a hit opens now.
local function window_end(limit)
  if limit.kind == CLOCK then return floor(now / limit.length) * limit.length + limit.length end
  if limit.kind == FIRST_HIT then return now + limit.length end
  for i = 2, 4 do
    if now < limit.ends[i] then return limit.ends[i] end
  end
end

local function write_sub_windows(limit, number, hits)
  local state = pack(limit.format, number, limit.allowance, unpack(hits, 1, limit.count))
  return limit.signature .. state, (number + limit.count) * limit.length
end

-- A log of these runs, and the time at which it is empty.
local function write_log(limit, total, runs)
  -- Hits beyond the newest `limit` do not matter one by one: they are joined into one run, dated as the newest of them.
  local first, length = 1, #runs
  local oldest_at, oldest = unpack_from('<dI4', runs, 1)
  local is_joined = false
  while oldest < total - limit.limit and first + 12 < length do
    local next_at, next_hits = unpack_from('<dI4', runs, first + 12)
    local joined = min(next_hits + oldest, U32)
    total = total - oldest - next_hits + joined
    first, oldest_at, oldest, is_joined = first + 12, next_at, joined, true
  end
  if is_joined then runs = pack('<dI4', oldest_at, oldest) .. sub(runs, first + 12) end
  return limit.signature .. pack('<d', total) .. runs, unpack_from('<d', runs, #runs - 11) + limit.length
end

-- Adds a run of hits to those of a log from `position` on.
local function add_to_log(limit, state, added)
  local position, total, newest = view_log(limit, state)
  local runs, at = '', max(now, newest)
  if position then
    local last = #state - 11
    if newest == at then
      local _, hits = unpack_from('<dI4', state, last)
      total, added, last = total - hits, min(hits + added, U32), last - 12
    end
    runs = sub(state, position, last + 11)
  end
  return write_log(limit, total + added, runs .. pack('<dI4', at, added))
end

-- Returns the state with hits added, whether they fit or not, and the time at which it is empty. Hits in flight become a slot of this id.
local function add(limit, state, hits, id)
  local kind = limit.kind
  hits = min(hits, U32)
  if byte(state, 1) == RESERVED then return reserved().add(limit, state, hits) end
  if kind == WINDOW then
    local number, previous, current = view_window(limit, state)
    current = min(current + hits, U32)
    return pack(limit.state, limit.signature, number, previous, current), (number + 2) * limit.length
  elseif kind == TOKENS or kind == LEAKY then
    local dry, part = now, 0
    if state ~= '' then dry, part = unpack_from('<dd', state, limit.body) end
    local former_dry, former_part = dry, part
    if dry < now then dry, part = now, 0 end
    -- Most charges of a batch have the same number of hits.
    if limit.weighed ~= hits then
      limit.weighed, limit.weight, limit.weight_part = hits, weight(limit, hits)
      limit.most, limit.most_part = weight(limit, U32)
    end
    dry, part = dry + limit.weight, part + limit.weight_part
    if part >= limit.hits then dry, part = dry + 1, part - limit.hits end
    local most, most_part = limit.most, limit.most_part
    local level = dry - now
    if level > most or (level == most and part > most_part) then
      dry, part = now + most, most_part
      -- A higher level means that the clock was set back: adding must not lower it.
      if former_dry > dry or (former_dry == dry and former_part > part) then
        dry, part = former_dry, former_part
      end
    end
    return pack(limit.state, limit.signature, dry, part), part > 0 and dry + 1 or dry
  elseif kind == CLOCK or kind == FIRST_HIT or kind == CALENDAR then
    local ends, count = 0, 0
    if state ~= '' then ends, count = unpack_from('<dI4', state, limit.body) end
    if now >= ends then count = 0 end
    if count == 0 then ends = window_end(limit) end
    return pack(limit.state, limit.signature, ends, min(count + hits, U32)), ends
  elseif kind == INTERVALS then
    local number, missing = view_intervals(limit, state)
    missing = min(missing + hits, U32)
    local empty = (number + ceil(missing / limit.tokens)) * limit.length
    return pack(limit.state, limit.signature, number, missing), empty
  elseif kind == SUB_WINDOWS then
    local number, counts = view_sub_windows(limit, state)
    counts[limit.count] = min(counts[limit.count] + hits, U32)
    return write_sub_windows(limit, number, counts)
  elseif kind == SLOTS then
    return take_slot(state, id, hits, limit.length)
  else
    return add_to_log(limit, state, hits)
  end
end

local function take_from_log(limit, state, hits)
  local position, total = view_log(limit, state)
  if not position or hits >= total then return '' end
  local last = #state - 11
  while hits > 0 do
    local at, count = unpack_from('<dI4', state, last)
    local taken = min(hits, count)
    hits, total, last = hits - taken, total - taken, last - 12
    if taken < count then
      local runs = sub(state, position, last + 11) .. pack('<dI4', at, count - taken)
      return limit.signature .. pack('<d', total) .. runs, at + limit.length
    end
  end
  local newest = unpack_from('<d', state, last)
  return limit.signature .. pack('<d', total) .. sub(state, position, last + 11), newest + limit.length
end

-- Returns the state without so many of its newest hits, and the time at which it is empty.
local function give_back(limit, state, hits)
  if state == '' then return '' end
  if byte(state, 1) == RESERVED then return reserved().give_back(limit, state, hits) end
  local kind = limit.kind
  if kind == WINDOW then
    local number, previous, current = view_window(limit, state)
    local of_current = min(hits, current)
    current, previous = current - of_current, max(0, previous - (hits - of_current))
    if previous == 0 and current == 0 then return '' end
    return pack(limit.state, limit.signature, number, previous, current), (number + 2) * limit.length
  elseif kind == TOKENS or kind == LEAKY then
    local dry, part = unpack_from('<dd', state, limit.body)
    local less, less_part = weight(limit, hits)
    dry, part = dry - less, part - less_part
    if part < 0 then dry, part = dry - 1, part + limit.hits end
    if dry < now or (dry == now and part == 0) then return '' end
    return pack(limit.state, limit.signature, dry, part), part > 0 and dry + 1 or dry
  elseif kind == CLOCK or kind == FIRST_HIT or kind == CALENDAR then
    local ends, count = unpack_from('<dI4', state, limit.body)
    if now >= ends or count <= hits then return '' end
    return pack(limit.state, limit.signature, ends, count - hits), ends
  elseif kind == INTERVALS then
    local number, missing = view_intervals(limit, state)
    if missing <= hits then return '' end
    local empty = (number + ceil((missing - hits) / limit.tokens)) * limit.length
    return pack(limit.state, limit.signature, number, missing - hits), empty
  elseif kind == SUB_WINDOWS then
    local number, counts = view_sub_windows(limit, state)
    local is_empty = true
    for i = limit.count, 1, -1 do
      local taken = min(hits, counts[i])
      counts[i], hits = counts[i] - taken, hits - taken
      is_empty = is_empty and counts[i] == 0
    end
    if is_empty then return '' end
    return write_sub_windows(limit, number, counts)
  else
    return take_from_log(limit, state, hits)
  end
end

-- Logs longer than this are shortened for the reply.
local BRIEF_BYTES = 1024

-- A shorter log that gives the same answers for these numbers of hits: whether and when they fit, and when all is free. Runs in between are
-- joined with the next run that matters.
local function brief_log(limit, state, needs)
  local position, total, newest = view_log(limit, state)
  if not position or total > U32 then return state end
  -- Hits that have to become free.
  local wanted = { 1, total + 1 - limit.limit }
  for i = 1, #needs do wanted[i + 2] = total + needs[i] - limit.limit end
  table.sort(wanted)
  local runs, gone, joined, i = '', 0, 0, 1
  while true do
    while wanted[i] and wanted[i] <= gone do i = i + 1 end
    if not wanted[i] or wanted[i] > total then break end
    local at, hits
    repeat
      at, hits = unpack_from('<dI4', state, position)
      gone, joined, position = gone + hits, joined + hits, position + 12
    until gone >= wanted[i]
    runs, joined = runs .. pack('<dI4', at, joined), 0
  end
  if gone < total then runs = runs .. pack('<dI4', newest, total - gone) end
  return limit.signature .. pack('<d', total) .. runs
end

-- The same for slots: a slot is joined with the slots that end before it. Slots past their deadlines are left out.
local function brief_slots(limit, state, needs)
  local position, total = view_slots(state)
  if total > U32 then return state end
  local wanted = { total + 1 - limit.limit }
  for i = 1, #needs do wanted[i + 1] = total + needs[i] - limit.limit end
  table.sort(wanted)
  local slots, gone, joined, i = '', 0, 0, 1
  while true do
    while wanted[i] and wanted[i] <= gone do i = i + 1 end
    if not wanted[i] or wanted[i] > total then break end
    local id, deadline, hits, millis
    repeat
      id, deadline, hits, millis, position = unpack_from(SLOT, state, position)
      gone, joined = gone + hits, joined + hits
    until gone >= wanted[i]
    slots, joined = slots .. pack(SLOT, id, deadline, joined, millis), 0
  end
  if gone < total then
    local id, deadline, _, millis = unpack_from(SLOT, state, #state - SLOT_BYTES + 1)
    slots = slots .. pack(SLOT, id, deadline, total - gone, millis)
  end
  return write_slots(unpack_from('<d', state, 3), total, slots)
end

-- Whether a state is dated more than a window ahead: by the clock of another store that this one replaced, or by this store's clock before
-- it was set back. The only date of a bucket that refills steadily is the time at which it is full again. If it lacks its size more than
-- its bound on debts allows, it was dated by such a clock, or its size or that bound was larger before the limit was changed. This is
-- concluded only for a charge that `is_bounded`: spent credits are counted beyond the bound.
local function is_ahead(limit, state, is_bounded)
  local kind, body = limit.kind, limit.body
  local most = is_bounded and limit.counted_at_most and limit.counted_at_most + limit.admitted_at_most
  if kind == TOKENS or kind == LEAKY then
    return most and unpack_from('<d', state, body) - now > weight(limit, min(most, U32)) + 1
  end
  if kind == LOG then return unpack_from('<d', state, #state - 11) > now + limit.length end
  if kind == SLOTS then
    if #state < SLOTS_AT then return false end
    local deadline, _, millis = unpack_from('<dI4I4', state, #state - 15)
    return deadline - millis * 1000 > now + limit.length
  end
  local date = unpack_from('<d', state, body)
  if kind == WINDOW then
    return date > floor(now / limit.length) + 1
  elseif kind == CLOCK then
    return date > (floor(now / limit.length) + 2) * limit.length
  elseif kind == FIRST_HIT then
    return date > now + 2 * limit.length
  elseif kind == CALENDAR then
    local ends = limit.ends
    return date > (now < ends[2] and ends[3] or ends[4])
  elseif kind == INTERVALS then
    local number, missing = view_intervals(limit, state)
    if most and missing > most then return true end
    local admitted = limit.admitted_at_most
    return admitted > 0 and number > floor(now / limit.length) + ceil(admitted / limit.tokens)
  else
    return date > floor(now / limit.length) + limit.count
  end
end

-- The part of the hits that the bound on debts allows.
local function within_bound(limit, hits)
  local most = limit.counted_at_most
  return most and min(hits, most) or hits
end

-- The state with its hits dated now.
local function dated_now(limit, state)
  local used = used_of(limit, state)
  if used == 0 then return '' end
  if limit.kind == SLOTS then
    -- Each slot is still released by its id.
    local ends, slots = now + limit.length, ''
    for position = view_slots(state), #state, SLOT_BYTES do
      local id, deadline, hits, millis = unpack_from(SLOT, state, position)
      slots = slots .. pack(SLOT, id, min(deadline, ends), hits, millis)
    end
    return write_slots(unpack_from('<d', state, 3), used, slots), ends
  end
  return add(limit, '', within_bound(limit, used))
end

-- The state under a changed limit. Used hits stay used, as if taken now, within the bound on debts. Whether hits of another algorithm are
-- in flight is not known, so that slots begin empty.
local function convert(limit, state)
  local former = #state > 2 and read_limit(state, false)
  local used = former and limit.kind ~= SLOTS and used_of(former, state) or 0
  used = within_bound(limit, used)
  if used == 0 then return '' end
  return add(limit, '', used)
end
