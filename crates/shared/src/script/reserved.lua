-- Counters with open reservations, at the time `now`: the functions of crates/core/src/algorithm/reserved/, which states why they are
-- right.
--
-- The value of such a counter is a byte, the signature of its limit, a head, the settled state, the seen state, and the open reservations
-- in the order of their starts. A place is two numbers. In a bucket, it is a time: the second number counts fractions, of which
-- `limit.hits` are a microsecond, or tokens, of which `limit.tokens` are an interval. In windows and logs, the first number is the number
-- or the end of the window, or the instant. In a window from the first hit, it is the end of the window that the hits would open by
-- themselves.

-- Made when a call reads the first reservation: most calls read none.
make_reserving = function()
  -- The number of the limit on which its states depend (in a bucket, the most hits that count plus one). The first and the last deadline of
  -- the open reservations, or bounds of both. The lengths of both states.
  local HEAD = '<dddI4I4'
  local OPEN, OPEN_BYTES, OPEN_MAX = '<c8dddI4B', 37, 1024
  -- Later times count as this one.
  local PLACE_MAX = 9e15
  -- The longest `max_hold`, and an hour by which clocks may differ.
  local LONGEST_HOLD = 90000e6

  local function is_bucket(limit)
    local kind = limit.kind
    return kind == TOKENS or kind == LEAKY or kind == INTERVALS
  end

  local function split(value)
    local number, first, last, settled, seen, position = unpack_from(HEAD, value, byte(value, 2) + 3)
    return {
      number = number,
      first = first,
      last = last,
      settled = sub(value, position, position + settled - 1),
      seen = sub(value, position + settled, position + settled + seen - 1),
      open = sub(value, position + settled + seen),
    }
  end

  -- The limit of the value, without the ends of a calendar.
  local function limit_of(value, counter)
    local limit = read_limit(sub(value, 2, byte(value, 2) + 2), false)
    limit.allowance, limit.limit = counter.number, counter.number
    if counter.number > 0 then limit.counted_at_most = counter.number - 1 end
    return limit
  end

  -- The time at which a state without reservations is empty.
  local function expiry_of_state(limit, state)
    if state == '' then return 0 end
    local kind, body = limit.kind, limit.body
    if kind == WINDOW then return (unpack_from('<d', state, body) + 2) * limit.length end
    if kind == SUB_WINDOWS then return (unpack_from('<d', state, body) + limit.count) * limit.length end
    if kind == LOG then return unpack_from('<d', state, #state - 11) + limit.length end
    if kind == TOKENS or kind == LEAKY then
      local dry, part = unpack_from('<dd', state, body)
      return part > 0 and dry + 1 or dry
    end
    if kind == INTERVALS then
      local number, missing = unpack_from('<dI4', state, body)
      return (number + ceil(missing / limit.tokens)) * limit.length
    end
    return (unpack_from('<d', state, body))
  end

  -- The value, and the time at which it may be dropped.
  local function join(limit, counter)
    local settled, seen, open = counter.settled, counter.seen, counter.open
    if open == '' then return settled, expiry_of_state(limit, settled) end
    local number = limit.kind == SUB_WINDOWS and limit.allowance or limit.kind == LOG and limit.limit
    number = number or limit.counted_at_most and limit.counted_at_most + 1 or 0
    local head = pack(HEAD, number, counter.first, counter.last, #settled, #seen)
    local value = table.concat({ string.char(RESERVED), limit.signature, head, settled, seen, open })
    return value, max(expiry_of_state(limit, seen), counter.last)
  end

  local function is_later(high, low, other, other_low) return high > other or (high == other and low > other_low) end

  local function plus(limit, high, low, more, more_low)
    local base = limit.hits or limit.tokens
    high, low = high + more, low + more_low
    if low >= base then high, low = high + 1, low - base end
    if high > PLACE_MAX then return PLACE_MAX, 0 end
    return high, low
  end

  -- The time in which `hits` of a bucket drain.
  local function weight_of(limit, hits)
    hits = min(hits, U32)
    if limit.kind ~= INTERVALS then return weight(limit, hits) end
    return floor(hits / limit.tokens), hits % limit.tokens
  end

  -- The time at which a bucket runs dry.
  local function dry_of(limit, state)
    if state == '' then return 0, 0 end
    if limit.kind ~= INTERVALS then return unpack_from('<dd', state, limit.body) end
    local number, missing = unpack_from('<dI4', state, limit.body)
    if missing == 0 then return 0, 0 end
    return number + floor(missing / limit.tokens), missing % limit.tokens
  end

  local function clock_of(limit) return limit.kind == INTERVALS and floor(now / limit.length) or now end

  -- The bucket with the time at which it runs dry raised to at least this time.
  local function latest(limit, state, high, low)
    local clock = clock_of(limit)
    local most, most_low = plus(limit, clock, 0, weight_of(limit, U32))
    if is_later(high, low, most, most_low) then high, low = most, most_low end
    local dry, dry_low = dry_of(limit, state)
    if not (is_later(high, low, dry, dry_low) and is_later(high, low, clock, 0)) then return state end
    if limit.kind ~= INTERVALS then return pack(limit.state, limit.signature, high, low) end
    return pack(limit.state, limit.signature, clock, (high - clock) * limit.tokens + low)
  end

  -- Adds runs to those of a log. They are in ascending order of their instants, each with its hits.
  local function insert_runs(limit, state, instants, hits_at)
    local present, newest = now, max(now, instants[#instants])
    if state ~= '' then newest = max(newest, (unpack_from('<d', state, #state - 11))) end
    now = newest
    local position, total = view_log(limit, state)
    now = present
    local runs, pieces, forgotten = position and sub(state, position) or '', {}, newest - limit.length
    local rest = #runs
    for i = #instants, 1, -1 do
      local at = instants[i]
      if at <= forgotten then break end
      local hits, cut = hits_at[at], rest
      while cut > 0 and unpack_from('<d', runs, cut - 11) > at do cut = cut - 12 end
      local newer = sub(runs, cut + 1, rest)
      if cut > 0 then
        local of_run, same = unpack_from('<dI4', runs, cut - 11)
        if of_run == at then hits, total, cut = min(hits + same, U32), total - same, cut - 12 end
      end
      table.insert(pieces, 1, pack('<dI4', at, hits) .. newer)
      total, rest = total + hits, cut
    end
    runs = sub(runs, 1, rest) .. table.concat(pieces)
    if runs == '' then return '' end
    return write_log(limit, total, runs)
  end

  -- Counts hits at places of a window or a log. Hits that no later state would count are left out.
  local function insert(limit, state, places, hits_at)
    local kind, body = limit.kind, limit.body
    table.sort(places)
    if kind == LOG then return insert_runs(limit, state, places, hits_at) end
    for _, place in ipairs(places) do
      local hits = min(hits_at[place], U32)
      if kind == WINDOW then
        local number, previous, current = 0, 0, 0
        if state ~= '' then number, previous, current = unpack_from('<dI4I4', state, body) end
        if place == number then
          current = min(current + hits, U32)
        elseif place > number then
          number, previous, current = place, place == number + 1 and current or 0, hits
        elseif place == number - 1 then
          previous = min(previous + hits, U32)
        end
        state = pack(limit.state, limit.signature, number, previous, current)
      elseif kind == SUB_WINDOWS then
        local fields = { 0 }
        if state ~= '' then fields = { unpack_from(limit.format, state, body) } end
        if fields[1] > place then
          local index = limit.count - (fields[1] - place)
          if index >= 1 then
            fields[index + 2] = min(fields[index + 2] + hits, U32)
            state = write_sub_windows(limit, fields[1], { unpack(fields, 3, limit.count + 2) })
          end
        else
          local present = now
          now = place * limit.length
          state = add(limit, state, hits)
          now = present
        end
      else
        local ends, count = 0, 0
        if state ~= '' then ends, count = unpack_from('<dI4', state, body) end
        if kind == FIRST_HIT and count > 0 and math.abs(ends - place) < limit.length then
          ends, count = min(ends, place), min(count + hits, U32)
        else
          if count == 0 or ends < place then ends, count = place, 0 end
          if ends == place then count = min(count + hits, U32) end
        end
        state = pack(limit.state, limit.signature, ends, count)
      end
    end
    return state
  end

  local function insert_one(limit, state, hits, place) return insert(limit, state, { place }, { [place] = hits }) end

  -- The place of the hits that were last added, now, to a window or a log.
  local function place_of(limit, state)
    if limit.kind == FIRST_HIT then return now + limit.length end
    return (unpack_from('<d', state, limit.kind == LOG and #state - 11 or limit.body))
  end

  -- Whether a place is in the window of a state or a later one. Only a window from the first hit can be false.
  local function is_in_window(limit, place, state)
    return limit.kind ~= FIRST_HIT or state == '' or place >= unpack_from('<d', state, limit.body)
  end

  -- The settled state. Empty if its window from the first hit is before the window of the seen state.
  local function settled_of_window(limit, counter)
    local settled = counter.settled
    if limit.kind ~= FIRST_HIT or settled == '' then return settled end
    return is_in_window(limit, unpack_from('<d', settled, limit.body), counter.seen) and settled or ''
  end

  -- Dates all hits of a window from the first hit at its beginning, so that it keeps its end.
  local function keep_window(limit, counter)
    if counter.seen == '' then return end
    local ends = unpack_from('<d', counter.seen, limit.body)
    local settled, open, dated = settled_of_window(limit, counter), counter.open, {}
    if settled ~= '' then
      local _, count = unpack_from('<dI4', settled, limit.body)
      if count > 0 then counter.settled = pack(limit.state, limit.signature, ends, count) end
    end
    for at = 1, #open, OPEN_BYTES do
      local place = unpack_from('<d', open, at + 16)
      dated[#dated + 1] = sub(open, at, at + 15) .. pack('<d', place >= ends and ends or place) .. sub(open, at + 24, at + 36)
    end
    counter.open = table.concat(dated)
  end

  -- Makes the seen state from the settled state and the open reservations.
  local function see(limit, counter)
    local bucket, through, low, places, hits_at = is_bucket(limit), 0, 0, {}, {}
    local open, last_hits, weight_high, weight_low = counter.open, nil, nil, nil
    for at = 17, #open, OPEN_BYTES do
      local place, place_low, hits = unpack_from('<ddI4', open, at)
      if not bucket then
        if is_in_window(limit, place, counter.seen) then
          if not hits_at[place] then places[#places + 1], hits_at[place] = place, 0 end
          hits_at[place] = min(hits_at[place] + hits, U32)
        end
      else
        if hits ~= last_hits then last_hits, weight_high, weight_low = hits, weight_of(limit, hits) end
        if is_later(place, place_low, through, low) then through, low = place, place_low end
        through, low = plus(limit, through, low, weight_high, weight_low)
      end
    end
    if bucket then
      counter.seen = latest(limit, counter.settled, through, low)
    else
      local settled, before = settled_of_window(limit, counter), counter.seen
      counter.seen = #places > 0 and insert(limit, settled, places, hits_at) or settled
      -- A window that has become empty keeps its end: hits of windows before it do not count again.
      if limit.kind == FIRST_HIT and counter.seen == '' and before ~= '' then
        counter.seen = pack(limit.state, limit.signature, unpack_from('<d', before, limit.body), 0)
      end
    end
  end

  -- The part of a weight that leaves at most `hits` in a bucket. All weights that were added since are in the place.
  local function bounded(limit, added, added_low, place, place_low, hits)
    local most, most_low = plus(limit, clock_of(limit), 0, weight_of(limit, hits))
    local room, room_low = most - place, most_low - place_low
    if room_low < 0 then room, room_low = room - 1, room_low + (limit.hits or limit.tokens) end
    if room < 0 then room, room_low = 0, 0 end
    if is_later(added, added_low, room, room_low) then return room, room_low end
    return added, added_low
  end

  -- Closes the reservations for which `cost_of` returns hits, and counts these hits as known; in a bucket, only hits that leave at most
  -- `most` in it. `see` has to follow.
  local function settle(limit, counter, cost_of, most)
    local bucket, through, low, places, hits_at = is_bucket(limit), 0, 0, {}, {}
    local kept, open = {}, counter.open
    for at = 1, #open, OPEN_BYTES do
      local id, deadline, place, place_low, hits, returns = unpack_from(OPEN, open, at)
      if is_later(through, low, place, place_low) then place, place_low = through, low end
      local cost = cost_of(id, deadline, hits, returns)
      if not cost then
        kept[#kept + 1] = { place, place_low, id, deadline, hits, returns }
      elseif cost > 0 and bucket then
        local added, added_low = weight_of(limit, cost)
        added, added_low = bounded(limit, added, added_low, place, place_low, most or U32)
        through, low = plus(limit, place, place_low, added, added_low)
        kept[#kept + 1] = { added, added_low }
      elseif cost > 0 and is_in_window(limit, place, counter.seen) then
        if not hits_at[place] then places[#places + 1], hits_at[place] = place, 0 end
        hits_at[place] = min(hits_at[place] + cost, U32)
      end
    end
    -- All paths to earlier reservations pass through what is settled now.
    local added, added_low, records = 0, 0, {}
    counter.first, counter.last = math.huge, 0
    for i = #kept, 1, -1 do
      local place, place_low, id, deadline, hits, returns = unpack(kept[i], 1, 6)
      if not id then
        added, added_low = plus(limit, added, added_low, place, place_low)
        kept[i] = ''
      else
        if bucket then place, place_low = plus(limit, place, place_low, added, added_low) end
        kept[i] = pack(OPEN, id, deadline, place, place_low, hits, returns)
        counter.first, counter.last = min(counter.first, deadline), max(counter.last, deadline)
      end
    end
    counter.open = table.concat(kept)
    if bucket then
      counter.settled = latest(limit, counter.settled, through, low)
    elseif #places > 0 then
      counter.settled = insert(limit, settled_of_window(limit, counter), places, hits_at)
    end
  end

  -- Ends the reservations that have passed their deadlines. Returns how many.
  local function expire(limit, counter)
    local expired, is_changed = 0, false
    if limit.kind == FIRST_HIT and counter.seen ~= '' then
      local open, ends = counter.open, unpack_from('<d', counter.seen, limit.body)
      for at = 1, #open, OPEN_BYTES do
        local deadline, place, _, _, returns = unpack_from('<dddI4B', open, at + 8)
        if deadline <= now and returns == 1 and place == ends then
          keep_window(limit, counter)
          break
        end
      end
    end
    settle(limit, counter, function(_, deadline, hits, returns)
      if deadline > now then return nil end
      expired, is_changed = expired + 1, is_changed or returns == 1
      return returns == 1 and 0 or hits
    end)
    lost = lost + expired
    if is_changed then see(limit, counter) end
    return expired
  end

  -- The position of the open reservation of this id; nil if there is none.
  local function find(open, id)
    local at = string.find(open, id, 1, true)
    while at and (at - 1) % OPEN_BYTES ~= 0 do at = string.find(open, id, at + 1, true) end
    return at
  end

  -- Adds the hits of a reservation, and records it.
  local function start_in(limit, counter, hits, id, deadline, returns)
    local place, low = 0, 0
    if is_bucket(limit) then
      local clock = clock_of(limit)
      place, low = dry_of(limit, counter.settled)
      if is_later(clock, 0, place, low) then place, low = clock, 0 end
    end
    counter.seen = add(limit, counter.seen, hits)
    if not is_bucket(limit) then place = place_of(limit, counter.seen) end
    counter.open = counter.open .. pack(OPEN, id, deadline, place, low, hits, returns)
    counter.first, counter.last = min(counter.first, deadline), max(counter.last, deadline)
  end

  local function plain(state) return { first = math.huge, last = 0, settled = state, seen = state, open = '' } end

  -- Adds a known number of hits.
  local function add_known(limit, value, hits)
    local counter = split(value)
    counter.seen = add(limit, counter.seen, hits)
    if not is_bucket(limit) then
      counter.settled = insert_one(limit, settled_of_window(limit, counter), hits, place_of(limit, counter.seen))
    else
      local more, more_low = weight_of(limit, hits)
      local open, moved = counter.open, {}
      for at = 1, #open, OPEN_BYTES do
        local place, low = unpack_from('<dd', open, at + 16)
        place, low = plus(limit, place, low, more, more_low)
        moved[#moved + 1] = sub(open, at, at + 15) .. pack('<dd', place, low) .. sub(open, at + 32, at + 36)
      end
      counter.open, counter.settled = table.concat(moved), add(limit, counter.settled, hits)
    end
    return join(limit, counter)
  end

  -- Gives back a known number of hits, newest first.
  local function give_back_known(limit, value, hits)
    local counter = split(value)
    -- Without the settled hits that opened it, a window that is over could not be made anew as such.
    if limit.kind == FIRST_HIT and used_of(limit, counter.settled) == 0 then return join(limit, counter) end
    if is_bucket(limit) then
      local base, dry, low = limit.hits or limit.tokens, dry_of(limit, counter.settled)
      local clock = clock_of(limit)
      local given, given_low = weight_of(limit, hits)
      if not is_later(dry, low, clock, 0) then
        given, given_low = 0, 0
      elseif is_later(given, given_low, dry - clock, low) then
        given, given_low = dry - clock, low
      end
      local open, moved = counter.open, {}
      for at = 1, #open, OPEN_BYTES do
        local place, place_low = unpack_from('<dd', open, at + 16)
        place, place_low = place - given, place_low - given_low
        if place_low < 0 then place, place_low = place - 1, place_low + base end
        if place < 0 then place, place_low = 0, 0 end
        moved[#moved + 1] = sub(open, at, at + 15) .. pack('<dd', place, place_low) .. sub(open, at + 32, at + 36)
      end
      counter.open = table.concat(moved)
    end
    counter.settled = give_back(limit, counter.settled, hits)
    see(limit, counter)
    return join(limit, counter)
  end

  -- Charges an estimate to a state with or without reservations, whether it fits or not. If there are too many reservations, it is counted
  -- as known, and no end corrects it.
  local function start(limit, value, hits, id, hold, returns)
    local counter = byte(value, 1) == RESERVED and split(value) or plain(value)
    if #counter.open >= OPEN_MAX * OPEN_BYTES then return add_known(limit, value, hits) end
    start_in(limit, counter, min(hits, U32), id, now + hold, returns)
    return join(limit, counter)
  end

  -- The value under a changed limit: used hits count as taken now, and so do estimates whose hits still count, within the bound on debts.
  -- The reservations stay open, each with one hit at least.
  local function convert_reserved(limit, value)
    local counter = split(value)
    local former = limit_of(value, counter)
    if counter.first <= now then expire(former, counter) end
    -- Nothing of a window from the first hit that is over counts. Its hits might open another window if the first of them cost nothing.
    local is_over = former.kind == FIRST_HIT and used_of(former, counter.seen) == 0
    if limit.kind == SLOTS or is_over then return '', 0 end
    local used = within_bound(limit, used_of(former, settled_of_window(former, counter)))
    local room = limit.counted_at_most and limit.counted_at_most - used or math.huge
    local taken, open = plain(used > 0 and add(limit, '', used) or ''), counter.open
    for at = 1, #open, OPEN_BYTES do
      local id, deadline, place, low, hits, returns = unpack_from(OPEN, open, at)
      local alone
      if is_bucket(former) then
        alone = latest(former, '', plus(former, place, low, weight_of(former, hits)))
      else
        alone = insert_one(former, '', hits, place)
      end
      local counts = is_bucket(former) or is_in_window(former, place, counter.seen)
      if counts and used_of(former, alone) > 0 then
        hits = max(1, min(hits, room))
        room = max(0, room - hits)
        start_in(limit, taken, hits, id, min(deadline, now + LONGEST_HOLD), returns)
      end
    end
    return join(limit, taken)
  end

  -- The value under this limit, without reservations that have passed their deadlines. It is dated now if its clock was far ahead. If it
  -- has changed, also returns the time at which it may be dropped.
  local function present(limit, value)
    if sub(value, 2, #limit.signature + 1) ~= limit.signature then return convert_reserved(limit, value) end
    local counter = split(value)
    if counter.seen ~= '' and is_ahead(limit, counter.seen) then return convert_reserved(limit, value) end
    if counter.first > now then return value, nil end
    expire(limit, counter)
    return join(limit, counter)
  end

  -- Changes a counter with an open reservation of this id. `edit` gets the counter's limit, the counter and the position of the
  -- reservation. Returns the value, the time at which it may be dropped, and whether it has leases; nil if no such reservation is open.
  local function with_open(value, id, edit)
    local leases, leasing
    if byte(value, 1) == 0 then
      leasing = make_lease_functions()
      value, leases = leasing.split(value)
    end
    if byte(value, 1) ~= RESERVED then return nil end
    local counter = split(value)
    local limit, before = limit_of(value, counter), lost
    if counter.first <= now then expire(limit, counter) end
    local at = find(counter.open, id)
    if not at then
      lost = before
      return nil
    end
    edit(limit, counter, at)
    local state, expires = join(limit, counter)
    if leases then state = leasing.join(state, leases) end
    return state, expires, leases ~= nil
  end

  -- Changes the reservation of this id. `change_hits` returns, for its estimate, how many hits stay open and how many become known.
  local function change(value, id, change_hits)
    return with_open(value, id, function(limit, counter, at)
      local estimate = unpack_from('<I4', counter.open, at + 32)
      local stays, known = change_hits(estimate)
      if stays > 0 then
        local open = counter.open
        counter.open = sub(open, 1, at + 31) .. pack('<I4', stays) .. sub(open, at + 36)
      elseif known > 0 and is_bucket(limit) then
        settle(limit, counter, function(other) return other == id and known or nil end, limit.counted_at_most)
      else
        local place = unpack_from('<d', counter.open, at + 16)
        counter.open = sub(counter.open, 1, at - 1) .. sub(counter.open, at + OPEN_BYTES)
        if known > 0 and is_in_window(limit, place, counter.seen) then
          counter.settled = insert_one(limit, settled_of_window(limit, counter), known, place)
        end
      end
      if stays + known ~= estimate then see(limit, counter) end
    end)
  end

  -- Renews the reservation of this id: its deadline becomes this one, unless it is later already.
  local function renew(value, id, deadline)
    return with_open(value, id, function(_, counter, at)
      local open = counter.open
      deadline = max(deadline, (unpack_from('<d', open, at + 8)))
      counter.open = sub(open, 1, at + 7) .. pack('<d', deadline) .. sub(open, at + 16)
      counter.last = max(counter.last, deadline)
    end)
  end

  -- The seen state instead of many reservations or a long log. The decision on a charge is the same; its reset is as if no estimate was
  -- returned.
  local function brief(limit, value)
    local counter = split(value)
    local is_long = #counter.open > BRIEF_BYTES or (limit.kind == LOG and #counter.seen > BRIEF_BYTES)
    return is_long and counter.seen or value
  end

  return {
    seen = function(value) return split(value).seen end,
    brief = brief,
    add = add_known,
    give_back = give_back_known,
    start = start,
    present = present,
    convert = convert_reserved,
    change = change,
    renew = renew,
  }
end
