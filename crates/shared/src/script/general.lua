-- Decides all requests that the fast path does not: several charges, other kinds of limits, counters with leases, changed limits. Grants
-- credits.

-- Bytes of one charge. If the number of charges is `RESERVES` or more, a reservation follows the first of them: its id, the longest time
-- until its end, and whether its hits are returned then.
local CHARGE_BYTES = 35
local RESERVES, RESERVATION, RESERVATION_BYTES = 32768, '<c8dB', 17
local LEASE_REQUEST, LEASE_TERMS, LEASE_REQUEST_BYTES = '<HHc8ddddddd', '<dddddd', 116

local requests = ARGV[2]
local limits = {}
-- Counters with leases: their leases, and their limits.
local leased, limits_of = {}, {}
-- Of one request. By counter: number of the key, limit, state, number of charges, id of the slot. By charge: descriptor, flags, hits taken,
-- hits given.
local numbers, limits_met, before, counts, slots = {}, {}, {}, {}, {}
-- Reservations by counter: the longest time until the end (false if there is none), and whether hits are returned. Their ids are in
-- `slots`.
local holds, returns = {}, {}
local descriptors, flags, takes, gives = {}, {}, {}, {}
-- By descriptor: number of the last request in which it was over its limit. By charge: the last request in which the charge was over by
-- itself.
local over, over_alone, number = {}, {}, 0

-- By number of the key: counters to which hits were given back.
local given_back = {}

-- The limit among the arguments. Fails with the verdict, 5, if the clock of the client is too far from the store's clock for a calendar.
local function limit_at(index)
  local limit, argument = limits[index], ARGV[index + 4]
  if not limit then
    limit = read_limit(argument, true)
    local ends = limit.ends
    if ends and (now < ends[1] or now >= ends[4]) then error(5, 0) end
    -- The most hits that count, debts included, plus one. 0 if nothing bounds them.
    local counted_at_most = unpack_from('<d', argument, #argument - 15)
    if counted_at_most > 0 then limit.counted_at_most = counted_at_most - 1 end
    -- Hits that an empty counter admits.
    limit.admitted_at_most = unpack_from('<d', argument, #argument - 7)
    limits[index] = limit
  end
  return limit
end

-- The state of a counter without leases. If its clock was far ahead, it is dated now, and stored in any case, for the same reason as a
-- state of a changed limit.
local function of_present(key, limit, state, is_bounded)
  if state == '' or not is_ahead(limit, state, is_bounded) then return state end
  local expires
  state, expires = dated_now(limit, state)
  states[key], changed[key] = state, expires or 0
  return state
end

-- The state of a counter with reservations, without those past their deadlines. Stored in any case.
local function of_open(key, limit, state)
  local present, expires = reserved().present(limit, state)
  if expires then states[key], changed[key] = present, expires end
  return present
end

-- The functions for leases, nil until they are needed.
local leasing

-- The state of a counter with leases, with the leases that have ended counted. Also its leases, nil if none are left.
local function open_leased(key, limit)
  leasing = leasing or make_lease_functions()
  local state, leases = states[key], leased[key]
  if not leases then
    state, leases = leasing.split(state)
    leased[key], limits_of[key] = leases, limit
  end
  if limit.kind == SLOTS then
    -- The state is of another algorithm, as the credits are.
    leased[key], states[key], changed[key] = nil, '', 0
    return '', nil
  end
  local unchanged = state
  limits_of[key] = limit
  for i = 1, #leases do
    -- The lease was dated by a clock that was far ahead.
    if lease_length > 0 and leases[i].ends > now + 10 * lease_length then leases[i].ends = now + lease_length end
  end
  state = leasing.present(limit, state, leases)
  states[key] = state
  if leasing.is_empty(leases) and (limit.kind ~= FIRST_HIT or leases.exact >= used_of(limit, state)) then
    changed[key] = state ~= '' and leasing.expiry(limit, state, leases) or 0
    leases, leased[key] = nil, nil
  elseif state ~= unchanged then
    changed[key] = 0
  end
  return state, leases
end

-- The position after a request, and the number of its counters.
local function skip(position)
  local counters = 1
  if byte(requests, position) > 0 then
    position = position + 5
  else
    local _
    _, counters, _, position = unpack_from('<BHH', requests, position)
    for _ = 1, counters do
      local _, _, charges, _, after = unpack_from('<HHHd', requests, position)
      if charges >= RESERVES then charges, after = charges - RESERVES, after + RESERVATION_BYTES end
      position = after + charges * CHARGE_BYTES
    end
  end
  return position, counters
end

-- Replaces the states of counters with leases in the reply to a denied client. Its wait depends on the ends of the credits, which do not
-- count there as hits of now. Hits of quota do.
local function show_leases(counters, replied)
  local charge = 0
  for i = 1, counters do
    local limit, state, leases, taken, given = limits_met[i], before[i], leased[numbers[i]], 0, 0
    for _ = 1, counts[i] do
      charge = charge + 1
      taken, given = taken + takes[charge], given + gives[charge]
    end
    local out = leases and leasing.of_leases_alone(leases) or 0
    if out > 0 and given == 0 and byte(state, 1) ~= RESERVED then
      if limit.kind == LOG and #state > BRIEF_BYTES then
        state = brief_log(limit, state, { 1 + out, taken + out })
      end
      reply[replied - counters + i] = leasing.join(state, leases)
    end
  end
end

-- Decides a request, and charges its counters. Fails if one of these is damaged, or a clock is wrong. Returns its verdict, the position
-- after it, and the length of the reply.
local function decide(position, replied)
  local counters, quotas, hits = 1, 0, byte(requests, position)
  if hits == 0 then
    local _
    _, counters, quotas, position = unpack_from('<BHH', requests, position)
  end
  local has_credits = false
  local is_denied, quotas_over, charge, stops = false, 0, 0, false
  number = number + 1
  for i = 1, counters do
    local key, index, charges, given, descriptor, flag, need, most, take, give
    local begins = position
    if hits == 0 then
      -- Reads the counter together with its first charge, which every counter has.
      key, index, charges, given, descriptor, flag, need, most, take, give, position =
        unpack_from('<HHHdHBdddd', requests, position)
      holds[i] = false
      if charges >= RESERVES then
        charges = charges - RESERVES
        slots[i], holds[i], returns[i], position = unpack_from(RESERVATION, requests, position)
      end
    else
      key, index, position = unpack_from('<HH', requests, position + 1)
      charges, given, descriptor, flag, need, take, give = 1, 0, 0, 0, hits, hits, 0
      holds[i] = false
    end
    local limit = limits[index] or limit_at(index)
    most = most or limit.admitted_at_most
    -- Slots are released by their ids, which the arguments have instead of the hits to give back.
    if limit.kind == SLOTS then slots[i], given = sub(requests, begins + 6, begins + 13), 0 end
    local state, leases = states[key] or '', leased[key]
    -- Credits that are spent count beyond the bound on debts.
    local is_bounded = take > 0 and lease_length == 0
    local first = byte(state, 1)
    if leases or first == 0 then
      state, leases = open_leased(key, limit)
    elseif first == RESERVED then
      state = of_open(key, limit, state)
    elseif state ~= '' and sub(state, 1, #limit.signature) ~= limit.signature then
      -- Stored in any case: if the state was converted at each read instead, its hits would count as taken at the time of the read.
      local expires
      state, expires = convert(limit, state)
      states[key], changed[key] = state, expires or 0
    else
      state = of_present(key, limit, state, is_bounded)
    end
    numbers[i], limits_met[i], before[i], counts[i] = key, limit, state, charges
    if leases then
      -- In the reply, outstanding credits are hits. So are hits that it would give back beyond those that can be.
      local out = leasing.outstanding(leases)
      local beyond = given > 0 and max(0, given - leasing.most_given(limit, state, leases)) or 0
      if out + beyond > 0 then state = add(limit, state, out + beyond) end
      has_credits = has_credits or out > 0
    end
    replied = replied + 1
    local shown = state
    if #state > BRIEF_BYTES and given == 0 and take > 0 and byte(state, 1) == RESERVED then
      shown = reserved().brief(limit, state)
    end
    reply[replied] = shown
    local used = used_of(limit, given > 0 and give_back(limit, state, given) or state)
    local is_long = #shown > BRIEF_BYTES and given == 0 and (limit.kind == LOG or limit.kind == SLOTS)
    local needs = is_long and byte(shown, 1) ~= RESERVED and {}
    while true do
      charge = charge + 1
      descriptors[charge], flags[charge], takes[charge], gives[charge] = descriptor, flag, take, give
      if need >= 0 and used + need > most and over[descriptor] ~= number then
        over[descriptor] = number
        local class = flag % 4
        if class == 0 then is_denied = true end
        if class == 2 then quotas_over = quotas_over + 1 end
      end
      if flag >= 12 and (given > 0 and used_of(limit, state) or used) + take > most then
        over_alone[charge], stops = number, true
      end
      if needs then needs[#needs + 1], needs[#needs + 2] = need, need + take end
      charges = charges - 1
      if charges == 0 then break end
      descriptor, flag, need, most, take, give, position = unpack_from('<HBdddd', requests, position)
    end
    if needs then reply[replied] = (limit.kind == LOG and brief_log or brief_slots)(limit, shown, needs) end
  end
  if quotas > 0 and quotas_over == quotas then is_denied = true end
  if is_denied and has_credits then show_leases(counters, replied) end
  charge = 0
  for i = 1, counters do
    local taken, given, denied, is_always = 0, 0, 0, false
    for _ = 1, counts[i] do
      charge = charge + 1
      local flag = flags[charge]
      if over[descriptors[charge]] == number then denied = denied + takes[charge] end
      if stops and flag >= 12 then
        -- Once one of these charges is over by itself, only charges that are count.
        if over_alone[charge] == number then taken = taken + takes[charge] end
      elseif flag >= 4 or not (is_denied or over[descriptors[charge]] == number) then
        taken, given, is_always = taken + takes[charge], given + gives[charge], is_always or flag >= 4
      end
    end
    local state, expires, key = before[i], nil, numbers[i]
    local leases = leased[key]
    if leases then
      given = given > 0 and min(given, leasing.most_given(limits_met[i], state, leases)) or 0
      leases.exact = max(0, leases.exact - given) + taken
      -- Demand of requests beside parts of quota.
      if denied > taken and #leases.parts > 0 and limits_met[i].kind ~= FIRST_HIT then
        leases.exact, changed[key] = leases.exact + denied - taken, changed[key] or 0
      end
    end
    if given > 0 and state ~= '' then
      state, expires = give_back(limits_met[i], state, given)
      given_back[key] = true
    end
    local most = is_always and taken > 0 and limits_met[i].counted_at_most
    if most then taken = min(taken, max(0, most - used_of(limits_met[i], state))) end
    if taken > 0 and holds[i] then
      state, expires = reserved().start(limits_met[i], state, taken, slots[i], holds[i], returns[i])
    elseif taken > 0 then
      state, expires = add(limits_met[i], state, taken, slots[i])
    end
    if state ~= before[i] then
      states[key], changed[key] = state, expires or 0
    end
  end
  -- Denied, or denied while credits are outstanding: servers may return these.
  return is_denied and (has_credits and 3 or 1) or 0, position, replied
end

-- Grants credits for the request at this position, and appends the grant to the reply. Fails if the counter is damaged, or a clock is wrong.
local function grant(position, is_learning, replied)
  local key, index, node, holder, sequence, spent, acknowledged, spent_ago, kept, demand, after =
    unpack_from(LEASE_REQUEST, ARGV[4], position)
  local grant_min, most, span, report_min, horizon_min, freed = unpack_from(LEASE_TERMS, ARGV[4], after)
  local request = {
    node = node,
    holder = holder,
    sequence = sequence,
    spent = spent,
    acknowledged = acknowledged,
    spent_ago = spent_ago,
    kept = kept,
    demand = demand,
  }
  local terms = {
    length = lease_length,
    grant_min = grant_min,
    limit = most,
    span = span,
    report_min = report_min,
    horizon_min = horizon_min,
    freed = freed,
  }
  local limit = limit_at(index)
  local state, leases = states[key] or '', leased[key]
  if leases or byte(state, 1) == 0 then
    state, leases = open_leased(key, limit)
  elseif byte(state, 1) == RESERVED then
    state = of_open(key, limit, state)
  elseif state ~= '' and sub(state, 1, #limit.signature) ~= limit.signature then
    state = convert(limit, state)
  else
    state = of_present(key, limit, state)
  end
  if not leases then
    leases = { exact = limit.kind == FIRST_HIT and used_of(limit, state) or 0, parts = {} }
    leased[key], limits_of[key] = leases, limit
  end
  local granted
  state, granted = leasing.lease(limit, state, leases, request, terms, is_learning)
  if granted then states[key], changed[key] = state, 0 end
  local is_long = granted and limit.kind == LOG and #state > BRIEF_BYTES and byte(state, 1) ~= RESERVED
  -- The node computes from the log when a grant is worthwhile.
  if is_long then state = brief_log(limit, state, { leasing.outstanding(leases) + floor(freed / 2) + 1 }) end
  reply[replied + 1], reply[replied + 2] = granted or '', granted and state or ''
end

-- Grants credits, and appends the grants to the reply. Nothing is granted of a damaged counter, or if a clock is wrong.
local function grant_all(is_learning, replied)
  local size = #ARGV[4]
  if size > 0 then leasing = leasing or make_lease_functions() end
  for position = 1, size, LEASE_REQUEST_BYTES do
    if not pcall(grant, position, is_learning, replied) then reply[replied + 1], reply[replied + 2] = '', '' end
    replied = replied + 2
  end
end

-- The value of a counter that was changed, and the time at which it may be dropped.
local function value_of(key, state, expires)
  local leases = leased[key]
  if not leases then return state, expires end
  local limit = limits_of[key]
  local is_leased = not leasing.is_empty(leases) or (limit.kind == FIRST_HIT and leases.exact < used_of(limit, state))
  expires = (is_leased or state ~= '') and leasing.expiry(limit, state, leases) or 0
  return is_leased and leasing.join(state, leases) or state, expires
end

-- Marks counters to which hits were given back. The names of the marks are keys too, after those of the counters.
local function mark_given()
  for key in pairs(given_back) do mark(KEYS[key], now) end
end

return {
  leased = leased,
  skip = skip,
  decide = decide,
  grant_all = grant_all,
  value_of = value_of,
  mark_given = mark_given,
  lost = function() return lost end,
}
