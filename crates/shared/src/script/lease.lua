-- Leases: credits of a counter that servers may spend without the store. The functions are those of crates/shared/src/lease/
-- (`SharedCounter`), in microseconds. docs/decisions/0009-leases-never-over-admit.md gives the reasons.
--
-- The value of a counter with leases begins with a zero byte, the leases, and the hits of exact decisions in a window from the first hit.
-- The state of the used hits follows. Outstanding credits count as hits of the present moment.
--
-- Parts of quota are among the leases (crates/shared/src/quota/part.rs), as two records each. Their bursts count as credits. Their rates
-- count as time passes; in a window, they count as credits as long as the window, also after they were given up. While there are parts, the
-- hits of all exact decisions are counted, including denied ones except in windows from the first hit.
--
-- Made when a script reads the first lease: most calls read none, and save the time.
local function make_lease_functions()
  local LEASE = '<c8dddddd'
  -- Numbers in the field of the holder, which mark other records. A part has the server, sequence, rate, burst, end and demand. Its second
  -- record has the microsecond up to which its rate is counted (below zero: the microseconds for which its hits are held), the number of
  -- clients, the held hits, the end, and the counted spent hits. A rate that was given up has the rate, the time, the held hits, the end,
  -- and the microseconds of its window.
  local PART, PART_COUNTED, LEAVING = -1, -2, -3
  -- A hit in thousandths of a hit per second times microseconds.
  local HIT = 1e9
  -- Supply of credits.
  local AMPLE, SCARCE, TOO_SMALL, LEARNING = 0, 1, 2, 3

  -- The state in a counter's value, and its leases (nil if it has none).
  local function split_value(value)
    if byte(value, 1) ~= 0 then return value, nil end
    local count, exact, position = unpack_from('<Hd', value, 2)
    local parts = {}
    local leases = { exact = exact, parts = parts }
    for _ = 1, count do
      local node, holder, sequence, settled, outstanding, ends, demand, after = unpack_from(LEASE, value, position)
      if holder == PART then
        parts[#parts + 1] =
          { node = node, sequence = sequence, rate = settled, burst = outstanding, ends = ends, demand = demand }
      elseif holder == PART_COUNTED then
        local part = parts[#parts]
        part.counted, part.span = max(sequence, 0), max(-sequence, 0)
        part.clients, part.settled = settled, demand
      elseif holder == LEAVING then
        leases.leaving = { rate = sequence, since = settled, span = demand }
      else
        leases[#leases + 1] = {
          node = node,
          holder = holder,
          sequence = sequence,
          settled = settled,
          outstanding = outstanding,
          ends = ends,
          demand = demand,
        }
      end
      position = after
    end
    return sub(value, position), leases
  end

  -- Microseconds before a rate was given up that are still in its window.
  local function left_of(leaving) return max(0, leaving.span - max(0, now - leaving.since)) end

  -- The hits of a rate in `time` microseconds, rounded up.
  local function hits_in(rate, time)
    local hits, rest = divmod(rate, time, 0, HIT)
    return rest > 0 and hits + 1 or hits
  end

  local function join_value(state, leases)
    local leaving = leases.leaving
    local pieces = { pack('<BHd', 0, #leases + 2 * #leases.parts + (leaving and 1 or 0), leases.exact) }
    for i = 1, #leases do
      local lease = leases[i]
      pieces[i + 1] =
        pack(LEASE, lease.node, lease.holder, lease.sequence, lease.settled, lease.outstanding, lease.ends, lease.demand)
    end
    for _, part in ipairs(leases.parts) do
      pieces[#pieces + 1] = pack(LEASE, part.node, PART, part.sequence, part.rate, part.burst, part.ends, part.demand)
      local counted, held = part.counted, 0
      if part.span > 0 then
        counted, held = -part.span, hits_in(part.rate, part.span)
      end
      pieces[#pieces + 1] = pack(LEASE, part.node, PART_COUNTED, counted, part.clients, held, part.ends, part.settled)
    end
    if leaving then
      local ends, node = leaving.since + leaving.span, string.rep('\0', 8)
      local held = hits_in(leaving.rate, left_of(leaving))
      pieces[#pieces + 1] = pack(LEASE, node, LEAVING, leaving.rate, leaving.since, held, ends, leaving.span)
    end
    pieces[#pieces + 1] = state
    return table.concat(pieces)
  end

  local function is_empty(leases) return #leases == 0 and #leases.parts == 0 and not leases.leaving end

  -- Outstanding credits, bursts of parts, and hits of rates of a window.
  local function outstanding_of(leases)
    local sum, parts, rest, hits = 0, leases.parts, 0, 0
    for i = 1, #leases do sum = sum + leases[i].outstanding end
    for i = 1, #parts do
      local part = parts[i]
      sum = sum + part.burst
      if part.span > 0 then
        hits, rest = divmod(part.rate, part.span, rest, HIT)
        sum = sum + hits
      end
    end
    if leases.leaving then
      hits, rest = divmod(leases.leaving.rate, left_of(leases.leaving), rest, HIT)
      sum = sum + hits
    end
    return rest > 0 and sum + 1 or sum
  end

  -- Outstanding credits of a counter without quota; zero if it has quota.
  local function of_leases_alone(leases)
    return #leases.parts == 0 and not leases.leaving and outstanding_of(leases) or 0
  end

  -- Adds a rate of a window that was given up at a time. Such rates are merged into one rate, with as many hits in the window at that time,
  -- and no fewer later.
  local function leave(leases, rate, span, at)
    if rate == 0 or span == 0 then return end
    local present, before = now, leases.leaving
    now = at
    local left = before and before.rate > 0 and left_of(before) or 0
    local longest = left > 0 and max(span, before.span) or span
    local function spread(of, time) return (divmod(of, time, longest - 1, longest)) end
    local of_both = (left > 0 and spread(before.rate, left) or 0) + spread(rate, span)
    leases.leaving = { rate = of_both, since = at, span = longest }
    now = present
  end

  -- The part of a rate whose hits in `time` microseconds fit into `free`.
  local function affordable(rate, time, free)
    if time == 0 or divmod(rate, time, 0, HIT) < free then return rate end
    return min(rate, (divmod(free, HIT, 0, time)))
  end

  -- Moves up to `rate` of the rate that was given up to a part that grows, if there is room for the hits of the time since. Returns the
  -- moved rate.
  local function replace(leases, rate, span, free)
    local leaving = leases.leaving
    if not leaving or span ~= leaving.span or left_of(leaving) == 0 then return 0 end
    local replaced = affordable(min(rate, leaving.rate), span - left_of(leaving), free)
    leaving.rate = leaving.rate - replaced
    return replaced
  end

  -- Adds hits of a lease at their date. If no window from the first hit is open, they are of an earlier window, and open none. The windows
  -- of a calendar are known from an hour ago: earlier hits count in the window of that time.
  local function add_leased(limit, state, hits, at)
    local present = now
    now = at
    if hits > 0 and (limit.kind ~= FIRST_HIT or used_of(limit, state) > 0) then state = add(limit, state, hits) end
    now = present
    return state
  end

  -- Adds hits of parts at their date. They open a window from the first hit: clients may spend without an exact decision.
  local function add_of_parts(limit, state, hits, at)
    local present = now
    now = at
    if hits > 0 then state = add(limit, state, hits) end
    now = present
    return state
  end

  -- The hits of a part's rate until `till` that are not counted yet, rounded up.
  local function accrued(part, till)
    if part.span > 0 or till <= part.counted then return 0 end
    return hits_in(part.rate, till - part.counted)
  end

  -- Counts the hits of the rates of parts as used, and then the bursts of parts that have ended, in the order of their ends. The last hit
  -- of a rate may not be spent yet: it is dated at the beginning of its time.
  local function expire_parts(limit, state, leases)
    local left, ended, last_hits = {}, {}, {}
    for _, part in ipairs(leases.parts) do
      local till = min(now, part.ends)
      local hits = accrued(part, till)
      if hits > 0 then
        state = add_of_parts(limit, state, hits - 1, part.counted)
        last_hits[#last_hits + 1] = part.counted + (divmod(hits - 1, HIT, 0, part.rate))
      end
      part.counted = part.rate > 0 and part.span == 0 and part.counted + (divmod(hits, HIT, 0, part.rate)) or till
      local list = part.ends <= now and ended or left
      list[#list + 1] = part
    end
    table.sort(last_hits)
    for _, at in ipairs(last_hits) do state = add_of_parts(limit, state, 1, at) end
    table.sort(ended, function(part, other) return part.ends < other.ends end)
    for _, part in ipairs(ended) do
      state = add_of_parts(limit, state, part.burst, part.ends)
      leave(leases, part.rate, part.span, part.ends)
    end
    leases.parts = left
    return state
  end

  -- Counts the hits of leases that have ended as used, dated at their ends, in the order of the ends.
  local function expire_leases(limit, state, leases)
    if #leases.parts > 0 then state = expire_parts(limit, state, leases) end
    if leases.leaving and left_of(leases.leaving) == 0 then leases.leaving = nil end
    while true do
      local first
      for i = 1, #leases do
        if leases[i].ends <= now and not (first and leases[first].ends <= leases[i].ends) then first = i end
      end
      if not first then break end
      local lease = table.remove(leases, first)
      state = add_leased(limit, state, lease.outstanding, lease.ends)
    end
    if #leases.parts == 0 and (limit.kind ~= FIRST_HIT or used_of(limit, state) == 0) then leases.exact = 0 end
    return state
  end

  -- Hits that can be given back. A window from the first hit that was leased is not closed.
  local function most_given(limit, state, leases)
    local used = used_of(limit, state)
    if limit.kind == FIRST_HIT and (outstanding_of(leases) > 0 or used > leases.exact) then
      return max(0, leases.exact - 1)
    end
    return used
  end

  -- The state under a changed limit: used hits, and credits that have expired, count as taken now.
  local function convert_leased(limit, state, leases)
    local unspent = 0
    for i = #leases, 1, -1 do
      if leases[i].ends <= now then unspent = unspent + table.remove(leases, i).outstanding end
    end
    state = byte(state, 1) == RESERVED and reserved().convert(limit, state) or convert(limit, state)
    unspent = within_bound(limit, used_of(limit, state) + unspent) - used_of(limit, state)
    return unspent > 0 and add(limit, state, unspent) or state
  end

  -- The time at which the value may be dropped. It is an upper bound: a lease ends with at most as many hits as credits.
  local function expiry_of(limit, state, leases)
    local present, last, hits = now, now, outstanding_of(leases)
    for i = 1, #leases do last = max(last, leases[i].ends) end
    for _, part in ipairs(leases.parts) do
      last, hits = max(last, part.ends + part.span), hits + accrued(part, part.ends)
    end
    if leases.leaving then last = max(last, leases.leaving.since + leases.leaving.span) end
    now = last
    local _, expires
    if limit.kind == WINDOW and byte(state, 1) ~= RESERVED then
      -- The expiry that `add` returns, computed without a state.
      expires = (view_window(limit, state) + 2) * limit.length
    else
      _, expires = add(limit, state, max(1, hits))
    end
    now = present
    return max(last, expires)
  end

  -- The end of a lease that is granted now, clipped to the window. Nil if nothing can be granted.
  local function lease_end(limit, state, length)
    local ends, kind = now + length, limit.kind
    if kind ~= CLOCK and kind ~= FIRST_HIT and kind ~= CALENDAR then return ends end
    local is_open = used_of(limit, state) > 0
    if kind == FIRST_HIT and not is_open then return nil end
    local seen = byte(state, 1) == RESERVED and reserved().seen(state) or state
    local window = is_open and unpack_from('<d', seen, limit.body) or window_end(limit)
    ends = min(ends, window - 1)
    return ends > now and ends or nil
  end

  -- The greatest share for which all shares, each no greater than its claim, fit into the pool.
  local function water_level(wants, pool)
    table.sort(wants)
    for i, want in ipairs(wants) do
      local level = floor(pool / (#wants - i + 1))
      if want > level then return level end
      pool = pool - want
    end
    return math.huge
  end

  -- Time for which nodes are granted credits, if together they demand `demand` hits in one lease length.
  local function horizon_of(terms, demand)
    demand = max(demand, 1)
    local used = demand * terms.span / terms.length
    if used < 1e12 then used = divmod(demand, terms.span, 0, terms.length) end
    local slack = max(0, terms.limit - used)
    if slack >= 2 * demand then return terms.length end
    return max(terms.horizon_min, (divmod(slack, terms.length, 0, 2 * demand)))
  end

  -- The credits for a node beyond those that it keeps, the supply, the time until its next report, and its share of all credits.
  local function grant(terms, leases, demand, kept, free, ends)
    local length, sum = terms.length, demand
    for i = 1, #leases do sum = sum + leases[i].demand end
    local horizon = horizon_of(terms, sum)
    local report_after = horizon == length and floor(length / 4) * 3 or floor(horizon / 2)
    if demand == 0 then return 0, AMPLE, report_after, 0 end
    local granted_for = min(ends - now, horizon)
    local function want_of(number) return floor((divmod(number, granted_for, 0, length)) * 5 / 4) + 1 end
    local want, outstanding = want_of(demand), 0
    local wants = { want }
    local wanted = want
    for i = 1, #leases do
      local other = leases[i]
      outstanding = outstanding + other.outstanding
      if other.demand > 0 then
        local wants_other = want_of(other.demand)
        wants[#wants + 1], wanted = wants_other, wanted + wants_other
      end
    end
    local available = free + kept + outstanding
    local half = floor(available / 2)
    -- There is enough for all, which is the common case.
    if wanted <= half then return min(max(0, want - kept), free), AMPLE, report_after, want end
    local function need_of(number) return floor((divmod(number, terms.report_min, 0, length)) * 3 / 2) + 1 end
    local need = need_of(demand)
    for i = 1, #leases do
      if leases[i].demand > 0 then need = need + need_of(leases[i].demand) end
    end
    local pool = max(half, min(need, available - floor(available / 16)))
    local credits = min(want, water_level(wants, pool))
    local freed = divmod(terms.freed, want, 0, max(wanted, 1))
    local supply = AMPLE
    if credits < want and max(credits, freed) < terms.grant_min then
      credits, supply = 0, TOO_SMALL
    elseif pool < wanted and pool < need then
      supply = SCARCE
    end
    return min(max(0, credits - kept), free), supply, report_after, credits
  end

  -- Counts credits that a node has spent, takes back credits that it does not keep, and grants its share. Returns the state and the grant;
  -- nil if the request is not newer than the node's last one.
  local function lease(limit, state, leases, request, terms, is_learning)
    local kept, index, former = 0, nil, nil
    for i = 1, #leases do
      if leases[i].node == request.node and leases[i].holder == request.holder then index = i end
    end
    if index then
      if request.sequence <= leases[index].sequence then return state, nil end
      former = table.remove(leases, index)
      local spent, at = max(0, request.spent - former.settled), now
      if limit.kind ~= TOKENS and limit.kind ~= LEAKY and limit.kind ~= INTERVALS then
        at = max(0, now - floor((request.spent_ago - math.ceil(request.spent_ago / 1024)) / 1000))
      end
      state = add_leased(limit, state, spent, at)
      kept = is_learning and request.kept or min(request.kept, max(0, former.outstanding - spent))
    elseif is_learning and limit.kind ~= FIRST_HIT then
      -- The lease was lost: what the node declares counts.
      local lost = max(0, request.spent - request.acknowledged)
      if lost > 0 then state = add(limit, state, lost) end
      kept = request.kept
    end
    local ends = lease_end(limit, state, terms.length)
    if not ends then kept = 0 end
    local free = max(0, max(0, terms.limit - used_of(limit, state)) - outstanding_of(leases) - kept)
    local credits, supply, report_after, share = 0, TOO_SMALL, floor(terms.length / 2), kept
    if is_learning then
      supply = LEARNING
    elseif ends then
      credits, supply, report_after, share = grant(terms, leases, request.demand, kept, free, ends)
    end
    -- Credits that a server keeps beyond its share are not renewed. They cannot be taken back at once, as the server goes on to spend them.
    if former and kept > share then ends = min(ends, former.ends) end
    local outstanding = kept + credits
    if request.demand > 0 or outstanding > 0 then
      local granted = former or { node = request.node, holder = request.holder }
      granted.sequence, granted.settled, granted.demand = request.sequence, request.spent, request.demand
      granted.outstanding, granted.ends = outstanding, outstanding > 0 and ends or now + terms.length
      leases[#leases + 1] = granted
    end
    local valid_for = (ends or now) - now
    return state, pack('<ddBdd', request.spent + outstanding, valid_for, supply, report_after, outstanding_of(leases))
  end

  -- The state under this limit as of now, with the leases that have ended counted.
  local function present_state(limit, state, leases)
    local begins = byte(state, 1) == RESERVED and 2 or 1
    if state ~= '' and sub(state, begins, begins + #limit.signature - 1) ~= limit.signature then
      state = convert_leased(limit, state, leases)
    end
    state = expire_leases(limit, state, leases)
    if byte(state, 1) == RESERVED then return reserved().present(limit, state) end
    return state ~= '' and is_ahead(limit, state, false) and dated_now(limit, state) or state
  end

  return {
    split = split_value,
    join = join_value,
    is_empty = is_empty,
    present = present_state,
    add_of_parts = add_of_parts,
    outstanding = outstanding_of,
    of_leases_alone = of_leases_alone,
    leave = leave,
    replace = replace,
    affordable = affordable,
    most_given = most_given,
    expiry = expiry_of,
    lease = lease,
  }
end
