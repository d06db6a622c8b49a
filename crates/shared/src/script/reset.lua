-- Frees the hits of counters. The first half of the keys are counters, the other half are their marks. Returns how many counters there
-- were.
--
-- Outstanding credits count until they are reported or expire, since their servers may still spend them. A window from the first hit then
-- stays open with one hit, so that hits that are reported later have a window.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local byte, sub, pack, unpack_from = string.byte, string.sub, struct.pack, struct.unpack
-- Bytes before the leases, of a lease, and in a lease before the holder and before the outstanding credits.
local HEAD_BYTES, LEASE_BYTES, HOLDER_AT, CREDITS_AT = 11, 56, 8, 32
-- Instead of the holder: rates of quota that were given up. Their hits were spent.
local LEAVING = -3

-- An open window from the first hit with one hit. Empty if there is no such window.
local function one_hit(state)
  if byte(state, 1) == 255 then
    -- The seen state of a counter with open reservations.
    local settled, seen, position = unpack_from('<I4I4', state, byte(state, 2) + 27)
    state = sub(state, position + settled, position + settled + seen - 1)
  end
  if sub(state, 2, 2) ~= 'H' then return '' end
  local body = byte(state, 1) + 2
  local ends = unpack_from('<d', state, body)
  return ends > now and sub(state, 1, body - 1) .. pack('<dI4', ends, 1) or ''
end

-- The value of a counter with leases, without its hits. Nil if no credits are outstanding.
local function without_hits(value)
  local kept, out, position = {}, 0, HEAD_BYTES + 1
  for _ = 1, (unpack_from('<H', value, 2)) do
    local outstanding, ends = unpack_from('<dd', value, position + CREDITS_AT)
    if ends > now and unpack_from('<d', value, position + HOLDER_AT) ~= LEAVING then
      kept[#kept + 1] = sub(value, position, position + LEASE_BYTES - 1)
      out = out + outstanding
    end
    position = position + LEASE_BYTES
  end
  if out == 0 then return nil end
  local state = one_hit(sub(value, position))
  return pack('<BHd', 0, #kept, state ~= '' and 1 or 0) .. table.concat(kept) .. state
end

local found = 0
for i = 1, #KEYS / 2 do
  local value = redis.call('GET', KEYS[i])
  if value then
    found = found + 1
    local left = byte(value, 1) == 0 and without_hits(value)
    if left then
      redis.call('SET', KEYS[i], left, 'KEEPTTL')
    else
      redis.call('DEL', KEYS[i])
    end
    mark(KEYS[i], now)
  end
end
return found
