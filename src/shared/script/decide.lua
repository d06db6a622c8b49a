-- Decides a batch of rate limit requests over counters of one slot. src/shared/script/ encodes the arguments and decodes the reply.
--
-- All reads precede all writes, and an error precedes every write.

local states = redis.call('MGET', unpack(KEYS))
local layout = ARGV[1]
local is_new_store = ''
if layout ~= '' then
  if not states[1] then
    is_new_store = 'new'
  elseif states[1] ~= layout then
    return redis.error_reply('TIDEGATELAYOUT the keys of the store are of another layout or secret: ' .. states[1])
  end
end

local requests, limits = ARGV[2], {}
local reply, verdicts, changed = { string.format('%.0f', now), '', is_new_store }, {}, {}
local position, size, replied = 1, #requests, 3
-- Of one request. Counters: key, limit, state, number of charges. Charges: descriptor, flags, hits taken, hits given.
local keys, kinds, before, counts = {}, {}, {}, {}
local descriptors, flags, takes, gives = {}, {}, {}, {}

while position <= size do
  local counters, quotas
  counters, quotas, position = unpack_from('<HH', requests, position)
  local is_denied, quotas_over, over, charge = false, 0, {}, 0
  for i = 1, counters do
    local key, index, charges, given
    key, index, charges, given, position = unpack_from('<HHHd', requests, position)
    local limit = limits[index]
    if not limit then
      limit = read_limit(ARGV[index + 2], true)
      local ends = limit.ends
      if ends and (now < ends[1] or now >= ends[4]) then
        return redis.error_reply('TIDEGATECLOCK the clocks of the store and of the client are more than an hour apart')
      end
      limits[index] = limit
    end
    local state = states[key] or ''
    if state ~= '' and sub(state, 1, #limit.signature) ~= limit.signature then
      -- Stored in any case: converted at each read instead, its hits would count as taken at the time of the read.
      local expires
      state, expires = convert(limit, state)
      states[key], changed[key] = state, expires or 0
    end
    replied = replied + 1
    reply[replied] = state
    keys[i], kinds[i], before[i], counts[i] = key, limit, state, charges
    local used = used_of(limit, given > 0 and give_back(limit, state, given) or state)
    for _ = 1, charges do
      charge = charge + 1
      local descriptor, flag, need, most
      descriptor, flag, need, most, takes[charge], gives[charge], position =
        unpack_from('<HBdddd', requests, position)
      descriptors[charge], flags[charge] = descriptor, flag
      if need >= 0 and used + need > most and not over[descriptor] then
        over[descriptor] = true
        local class = flag % 4
        if class == 0 then is_denied = true end
        if class == 2 then quotas_over = quotas_over + 1 end
      end
    end
  end
  if quotas > 0 and quotas_over == quotas then is_denied = true end
  verdicts[#verdicts + 1] = is_denied and '1' or '0'
  charge = 0
  for i = 1, counters do
    local taken, given = 0, 0
    for _ = 1, counts[i] do
      charge = charge + 1
      if flags[charge] >= 4 or not (is_denied or over[descriptors[charge]]) then
        taken, given = taken + takes[charge], given + gives[charge]
      end
    end
    local state, expires, key = before[i], nil, keys[i]
    if given > 0 and state ~= '' then state, expires = give_back(kinds[i], state, given) end
    if taken > 0 then state, expires = add(kinds[i], state, taken) end
    if state ~= before[i] then
      states[key], changed[key] = state, expires or 0
    end
  end
end

if is_new_store ~= '' then redis.call('SET', KEYS[1], layout) end
for key, expires in pairs(changed) do
  if expires > now then
    redis.call('SET', KEYS[key], states[key], 'PX', math.ceil((expires - now) / 1000) + SLACK_MS)
  else
    redis.call('DEL', KEYS[key])
  end
end
reply[2] = table.concat(verdicts)
return reply
