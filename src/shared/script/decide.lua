-- Decides a batch of rate limit requests over counters of one slot. src/shared/script/ encodes the arguments and decodes the reply.
--
-- All reads precede all writes, and an error precedes every write.

-- Bytes of one charge.
local CHARGE_BYTES = 35
local LEASE_REQUEST = '<HHc8ddddddddddddd'
local REQUEST_FIELDS = { 'node', 'holder', 'sequence', 'spent', 'acknowledged', 'spent_ago', 'kept', 'demand' }
local TERMS_FIELDS = { 'grant_min', 'limit', 'span', 'report_min', 'horizon_min', 'freed' }

local states = call('MGET', unpack(KEYS))
local layout, run = ARGV[1], ARGV[3]
-- The first key holds the layout and, where servers take leases, the epoch: its beginning and the run of the store that it is of.
-- Another run, or a key that is gone, means that acknowledged writes may be lost.
local is_new_store, header, began, is_learning, lease_length = '', nil, '', false, 0
if layout ~= '' then
  local found = states[1]
  if not found then
    is_new_store, header = 'n', layout
  elseif sub(found, 1, #layout) ~= layout then
    return redis.error_reply('TIDEGATELAYOUT the keys of the store are of another layout or secret: ' .. found)
  end
  if run ~= '' then
    lease_length, run = unpack_from('<d', run), sub(run, 9)
    local known_began, known_run = string.match(found or '', '^ (%d+) (.*)$', #layout + 1)
    if known_run ~= run or now < known_began + 0 then
      known_began = string.format('%.0f', now)
      header = layout .. ' ' .. known_began .. ' ' .. run
    end
    began, is_learning = known_began, now <= known_began + lease_length
  end
end

local requests, limits = ARGV[2], {}
local reply = { string.format('%.0f', now), '', is_new_store .. (is_learning and 'l' or '') .. began }
local verdicts, changed = {}, {}
-- In the place of the expiry of a counter whose key has the right one.
local KEPT = math.huge
-- Of counters with leases: these, and their limits.
local leased, limits_of = {}, {}
local position, size, replied = 1, #requests, 3
-- Of one request. Counters: key, limit, state, number of charges. Charges: descriptor, flags, hits taken, hits given.
local keys, kinds, before, counts = {}, {}, {}, {}
local descriptors, flags, takes, gives = {}, {}, {}, {}
-- By descriptor: number of the last request of which it was over its limit.
local over, number = {}, 0

-- The limit among the arguments; nil if the clock of the client is too far from that of the store.
local function limit_at(index)
  local limit = limits[index]
  if not limit then
    limit = read_limit(ARGV[index + 4], true)
    local ends = limit.ends
    if ends and (now < ends[1] or now >= ends[4]) then return nil end
    limits[index] = limit
  end
  return limit
end

local function clock_error()
  return redis.error_reply('TIDEGATECLOCK the clocks of the store and of the client are more than an hour apart')
end

-- The functions for leases, once made.
local leasing

-- The state of a counter with leases, of which those that have ended are counted; and its leases, nil if none are left.
local function open_leased(key, limit)
  leasing = leasing or make_lease_functions()
  local state, leases = states[key], leased[key]
  if not leases then
    state, leases = leasing.split(state)
    leased[key], limits_of[key] = leases, limit
  end
  local unchanged = state
  if state ~= '' and sub(state, 1, #limit.signature) ~= limit.signature then
    state, limits_of[key] = leasing.convert(limit, state, leases), limit
  end
  state = leasing.expire(limit, state, leases)
  states[key] = state
  if #leases == 0 and (limit.kind ~= FIRST_HIT or leases.exact >= used_of(limit, state)) then
    changed[key] = state ~= '' and leasing.expiry(limit, state, leases) or 0
    leases, leased[key] = nil, nil
  elseif state ~= unchanged then
    changed[key] = 0
  end
  return state, leases
end

-- The store decides nothing while it learns which credits are out.
while is_learning and position <= size do
  local counters, _, after_head = unpack_from('<HH', requests, position)
  position = after_head
  for _ = 1, counters do
    local _, _, charges, _, after = unpack_from('<HHHd', requests, position)
    position, replied = after + charges * CHARGE_BYTES, replied + 1
    reply[replied] = ''
  end
  verdicts[#verdicts + 1] = '2'
end

-- Decides a request that is more than one charge, and charges its counters. Returns its verdict and the position after it; nil if a
-- clock is wrong.
local function decide(position)
  local counters, quotas
  counters, quotas, position = unpack_from('<HH', requests, position)
  local has_credits = false
  local is_denied, quotas_over, charge = false, 0, 0
  number = number + 1
  for i = 1, counters do
    local key, index, charges, given, descriptor, flag, need, most, take, give
    -- With the first charge: every counter has one.
    key, index, charges, given, descriptor, flag, need, most, take, give, position =
      unpack_from('<HHHdHBdddd', requests, position)
    local limit = limits[index] or limit_at(index)
    if not limit then return nil end
    local state, leases = states[key] or '', leased[key]
    if leases or byte(state, 1) == 0 then
      state, leases = open_leased(key, limit)
    elseif state ~= '' and sub(state, 1, #limit.signature) ~= limit.signature then
      -- Stored in any case: converted at each read instead, its hits would count as taken at the time of the read.
      local expires
      state, expires = convert(limit, state)
      states[key], changed[key] = state, expires or 0
    end
    keys[i], kinds[i], before[i], counts[i] = key, limit, state, charges
    if leases then
      -- The client sees credits that are out as hits, and as many hits as it would give back beyond those that can be.
      local out = leasing.outstanding(leases)
      local beyond = given > 0 and max(0, given - leasing.most_given(limit, state, leases)) or 0
      if out + beyond > 0 then state = add(limit, state, out + beyond) end
      has_credits = has_credits or out > 0
    end
    replied = replied + 1
    reply[replied] = state
    local used = used_of(limit, given > 0 and give_back(limit, state, given) or state)
    while true do
      charge = charge + 1
      descriptors[charge], flags[charge], takes[charge], gives[charge] = descriptor, flag, take, give
      if need >= 0 and used + need > most and over[descriptor] ~= number then
        over[descriptor] = number
        local class = flag % 4
        if class == 0 then is_denied = true end
        if class == 2 then quotas_over = quotas_over + 1 end
      end
      charges = charges - 1
      if charges == 0 then break end
      descriptor, flag, need, most, take, give, position = unpack_from('<HBdddd', requests, position)
    end
  end
  if quotas > 0 and quotas_over == quotas then is_denied = true end
  charge = 0
  for i = 1, counters do
    local taken, given = 0, 0
    for _ = 1, counts[i] do
      charge = charge + 1
      if flags[charge] >= 4 or not (is_denied or over[descriptors[charge]] == number) then
        taken, given = taken + takes[charge], given + gives[charge]
      end
    end
    local state, expires, key = before[i], nil, keys[i]
    local leases = leased[key]
    if leases then
      given = given > 0 and min(given, leasing.most_given(kinds[i], state, leases)) or 0
      leases.exact = max(0, leases.exact - given) + taken
    end
    if given > 0 and state ~= '' then state, expires = give_back(kinds[i], state, given) end
    if taken > 0 then state, expires = add(kinds[i], state, taken) end
    if state ~= before[i] then
      states[key], changed[key] = state, expires or 0
    end
  end
  -- Denied, or denied while credits are out, which may be returned.
  return is_denied and (has_credits and '3' or '1') or '0', position
end

while position <= size do
  local verdict
  local low, high = byte(requests, position, position + 1)
  if low == 1 and high == 0 then
    local _, _, key, index, charges, given, _, flag, need, most, take, _, after =
      unpack_from('<HHHHHdHBdddd', requests, position)
    local limit = limits[index] or limit_at(index)
    if not limit then return clock_error() end
    local state = states[key] or ''
    local is_plain = state == '' or sub(state, 1, #limit.signature) == limit.signature
    -- Most requests are one charge of a counter without leases.
    if charges == 1 and flag == 0 and need >= 0 and given == 0 and is_plain and not leased[key] then
      replied = replied + 1
      reply[replied] = state
      local charged, expires, keeps_expiry = take_if_fits(limit, state, need, most, take)
      verdict, position = charged and '0' or '1', after
      if charged and take > 0 then
        states[key] = charged
        -- A counter that was changed before in this call has another expiry to be written.
        changed[key] = keeps_expiry and (changed[key] or KEPT) or expires
      end
    end
  end
  if not verdict then
    verdict, position = decide(position)
    if not verdict then return clock_error() end
  end
  verdicts[#verdicts + 1] = verdict
end

local lease_requests = ARGV[4]
position, size = 1, #lease_requests
if size > 0 then leasing = leasing or make_lease_functions() end
while position <= size do
  local fields = { unpack_from(LEASE_REQUEST, lease_requests, position) }
  local key, index, request, terms = fields[1], fields[2], {}, { length = lease_length }
  for i, name in ipairs(REQUEST_FIELDS) do request[name] = fields[i + 2] end
  for i, name in ipairs(TERMS_FIELDS) do terms[name] = fields[i + 10] end
  position = fields[17]
  local limit = limit_at(index)
  if not limit then return clock_error() end
  local state, leases = states[key] or '', leased[key]
  if leases or byte(state, 1) == 0 then
    state, leases = open_leased(key, limit)
  elseif state ~= '' and sub(state, 1, #limit.signature) ~= limit.signature then
    state = convert(limit, state)
  end
  if not leases then
    leases = { exact = limit.kind == FIRST_HIT and used_of(limit, state) or 0 }
    leased[key], limits_of[key] = leases, limit
  end
  local granted
  state, granted = leasing.lease(limit, state, leases, request, terms, is_learning)
  if granted then states[key], changed[key] = state, 0 end
  reply[replied + 1], reply[replied + 2] = granted or '', granted and state or ''
  replied = replied + 2
end

-- Texts of times until expiry, which most counters of a limit have in common: numbers would be printed anew for each.
local texts = {}

if header then call('SET', KEYS[1], header) end
for key, expires in pairs(changed) do
  local leases, state = leased[key], states[key]
  if leases then
    local limit = limits_of[key]
    local is_leased = #leases > 0 or (limit.kind == FIRST_HIT and leases.exact < used_of(limit, state))
    expires = (is_leased or state ~= '') and leasing.expiry(limit, state, leases) or 0
    if is_leased then state = leasing.join(state, leases) end
  end
  if expires == KEPT then
    call('SET', KEYS[key], state, 'KEEPTTL')
  elseif expires > now then
    local text = texts[expires]
    if not text then
      text = string.format('%.0f', math.ceil((expires - now) / 1000) + SLACK_MS)
      texts[expires] = text
    end
    call('PSETEX', KEYS[key], text, state)
  else
    call('DEL', KEYS[key])
  end
end
reply[2] = table.concat(verdicts)
return reply
