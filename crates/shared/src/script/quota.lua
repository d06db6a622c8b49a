-- Changes the parts of quota that a server has of counters, as tests/sim/divided_counter.rs does, in microseconds. The first key is that of
-- the layout, the others are counters. Arguments: the layout, the run of the store, the life of a part, and for each counter a request with
-- its limit. Returns the time, and for each counter the part, the hits of exact decisions, the demand of leases, the free hits, and the
-- parts of other servers. For a request that is not newer than the last one, or a damaged counter, nothing. The reply is empty if the epoch
-- is not known to last: the next decision begins another.

local PART_REQUEST, GRANT, OTHER = '<c8dddddddddddd', '<ddddd', '<ddddd'
-- The burst in the request of a server that has lost its part: it keeps what the store has recorded.
local KNOWN_BURST = 2 ^ 64
local life = ARGV[3] + 0
local leasing = make_lease_functions()

-- Whether the store is learning which parts there are. Nil if it has no epoch.
local function is_learning(found, layout, run)
  if not found or sub(found, 1, #layout) ~= layout then return nil end
  local began, known_run = string.match(found, '^ (%d+) (.*)$', #layout + 1)
  if known_run ~= run or now < began + 0 then return nil end
  return now <= began + life
end

-- Takes this server's part out of `parts`. Returns the part if it is older than the request, and whether a newer one is there.
local function take_part(parts, node, sequence)
  for i, part in ipairs(parts) do
    if part.node == node then
      if sequence <= part.sequence then return nil, true end
      return table.remove(parts, i), false
    end
  end
  return nil, false
end

-- Spent hits that are not counted yet. If the store has no part of the server, the part has ended and all of it counts, or it was lost.
-- Before its first response, a server cannot report what it spent.
local function newly_spent(had, spent, acknowledged, learns)
  if had then return acknowledged < 0 and had.burst or max(0, spent - had.settled) end
  return learns and acknowledged >= 0 and max(0, spent - acknowledged) or 0
end

-- Grows a part into what is free. In a window, its rate first replaces a rate that is being given up: this needs room only for hits that
-- were not spent of that rate since.
local function grow(leases, part, wanted_rate, wanted_burst, rate_max, free)
  local rates = 0
  for _, each in ipairs(leases.parts) do rates = rates + each.rate end
  part.burst = part.burst + min(max(0, wanted_burst - part.burst), free())
  local missing = min(max(0, wanted_rate - part.rate), max(0, rate_max - rates))
  local replaced = leasing.replace(leases, missing, part.span, free())
  part.rate = part.rate + replaced
  part.rate = part.rate + leasing.affordable(missing - replaced, part.span, free())
end

-- Changes a part. Returns the value of the counter, the time at which it may be dropped, and the grant.
local function change(value, request, learns)
  local node, sequence, kept_rate, kept_burst, spent, acknowledged, wanted_rate, wanted_burst, rate_max, span, most, demand, clients, position =
    unpack_from(PART_REQUEST, request)
  local limit = read_limit(sub(request, position), true)
  limit.admitted_at_most = most
  local state, leases = value or '', { exact = 0, parts = {} }
  local was_leased = byte(state, 1) == 0
  if was_leased then state, leases = leasing.split(state) end
  state = leasing.present(limit, state, leases)
  if not was_leased and limit.kind == FIRST_HIT then leases.exact = used_of(limit, state) end
  local parts = leases.parts
  local had, is_late = take_part(parts, node, sequence)
  if is_late then return nil end
  local hits = newly_spent(had, spent, acknowledged, learns)
  had = had or { rate = 0, burst = 0, counted = now, span = span }
  local declares = learns and kept_burst ~= KNOWN_BURST
  local part = {
    node = node,
    sequence = sequence,
    rate = declares and kept_rate or min(kept_rate, had.rate),
    burst = declares and kept_burst or min(kept_burst, had.burst),
    ends = now + life,
    demand = demand,
    counted = now,
    clients = clients,
    settled = spent,
    span = span,
  }
  state = leasing.add_of_parts(limit, state, hits, now)
  -- Under a changed limit, all of the rate is held as long as under the former limit.
  leasing.leave(leases, max(0, had.rate - (had.span == span and part.rate or 0)), had.span, now)
  local grants, leased = {}, 0
  for _, other in ipairs(parts) do
    grants[#grants + 1] = pack(OTHER, other.rate, other.burst, other.ends - now, other.demand, other.clients)
  end
  for i = 1, #leases do leased = leased + leases[i].demand end
  parts[#parts + 1] = part
  local function free() return max(0, max(0, most - used_of(limit, state)) - leasing.outstanding(leases)) end
  if not learns then grow(leases, part, wanted_rate, wanted_burst, rate_max, free) end
  if had.counted > now and part.rate > 0 then part.counted = now + (divmod(had.counted - now, had.rate, 0, part.rate)) end
  table.insert(grants, 1, pack(GRANT, part.rate, part.burst, leases.exact, leased, free()))
  return leasing.join(state, leases), leasing.expiry(limit, state, leases), table.concat(grants)
end

local values = call('MGET', unpack(KEYS))
local learns = is_learning(values[1], ARGV[1], sub(ARGV[2], 9))
if learns == nil then return {} end
local reply, writes = { pack('<d', now) }, {}
for i = 2, #KEYS do
  local is_good, value, expires, grant = pcall(change, values[i], ARGV[i + 2], learns)
  reply[i] = is_good and grant or ''
  if is_good and value then writes[#writes + 1] = { KEYS[i], value, expires } end
end
for _, write in ipairs(writes) do
  call('SET', write[1], write[2], 'PX', ceil(max(0, write[3] - now) / 1000) + SLACK_MS)
end
return reply
