-- Decides a batch of rate limit requests over counters of one slot. crates/shared/src/script/ encodes the arguments and decodes the reply.
--
-- All reads precede all writes, and an error precedes every write.
--
-- Most requests are one charge of one counter without leases. They are decided here, outside any function: the variables that a function
-- captures cost as much as a part of a decision. `make_general` makes the functions for all other requests, when a call has one.

local floor, pack, unpack_from, byte, call = math.floor, struct.pack, struct.unpack, string.byte, redis.call
local keys, requests, layout, run = KEYS, ARGV[2], ARGV[1], ARGV[3]
-- The value of each counter: false if there is none, and only the state once its leases were read.
local states = call('MGET', unpack(keys))
-- The first key holds the layout. If servers take leases, it also holds the epoch: its beginning, and the store's run that it belongs to.
-- If the run is another one, or the key is missing, acknowledged writes may be lost.
local is_new_store, header, began, is_learning, lease_length = '', nil, '', false, 0
if layout ~= '' then
  local found = states[1]
  if not found then
    is_new_store, header = 'n', layout
  elseif found ~= layout and string.sub(found, 1, #layout) ~= layout then
    return redis.error_reply('TIDEGATELAYOUT the keys of the store are of another layout or secret: ' .. found)
  end
  if run ~= '' then
    lease_length, run = unpack_from('<d', run), string.sub(run, 9)
    local known_began, known_run = string.match(found or '', '^ (%d+) (.*)$', #layout + 1)
    if known_run ~= run or now < known_began + 0 then
      known_began = string.format('%.0f', now)
      header = layout .. ' ' .. known_began .. ' ' .. run
    end
    began, is_learning = known_began, now <= known_began + lease_length
  end
end

-- Stands for the expiry if the key already has the right one and a state of as many bytes.
local KEPT = math.huge
-- The `nil`s are room for a batch of 16: a table that grows is copied.
local changed = { nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil }
local reply = {
  pack('<d', now), '', is_new_store .. (is_learning and 'l' or '') .. began,
  nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil,
}
-- Verdicts by number of the request, other than the default, admitted (0): denied (1), not decided (2), denied while credits are
-- outstanding (3), not decided because a counter is damaged (4), or because a clock is wrong (5).
local verdicts = {}
local position, size, replied, decided = 1, #requests, 3, 0
local general = (is_learning or ARGV[4] ~= '') and make_general(now, states, changed, reply, lease_length)
local leased = general and general.leased

-- The store decides nothing while it learns about outstanding credits.
while is_learning and position <= size do
  local counters
  position, counters = general.skip(position)
  for i = replied + 1, replied + counters do reply[i] = '' end
  replied, decided = replied + counters, decided + 1
  verdicts[decided] = 2
end

-- Limit of the last request: kind, signature, greatest number of hits, bytes and format of a state. Then numbers of its kind: the window's
-- length, number and rest, the ends of a window that begins now and of the next one, the rate, and the most hits that `is_ahead` accepts.
local last, kind, signature, most, bytes, format, length, number, rest, window_end, next_end, rate_hits, rate_per, bound

while position <= size do
  decided = decided + 1
  -- Whether the request is decided here, the state if it is admitted, and the time at which that state is empty.
  local is_decided, charged, expires = false, nil, nil
  -- A request for one charge begins with its hits, all other requests with a zero.
  local hits, low, high, limit_low, limit_high = byte(requests, position, position + 4)
  if hits > 0 then
    local key, index = low + 256 * high, limit_low + 256 * limit_high
    if index ~= last then
      local argument, numbers, signature_length = ARGV[index + 4], 'dd', nil
      last, signature_length, kind = index, byte(argument, 1, 2)
      signature, most = string.sub(argument, 1, signature_length + 1), unpack_from('<d', argument, #argument - 7)
      bytes = signature_length + 17
      -- The letters of the kinds, as in `read_limit`.
      if kind == 87 then
        kind, numbers, length = 'window', 'dI4I4', unpack_from('<d', argument, 3)
        number = floor(now / length)
        rest = length - (now - number * length)
      elseif kind == 67 or kind == 72 or kind == 75 then
        numbers, bytes = 'dI4', signature_length + 13
        if kind == 75 then
          local known_from, first, second, third = unpack_from('<dddd', argument, signature_length + 2)
          window_end = now < first and first or now < second and second or third
          next_end = now < first and second or third
          kind = now >= known_from and now < third and 'fixed' or nil
        else
          length = unpack_from('<d', argument, 3)
          window_end, kind = kind == 67 and floor(now / length) * length + length or now + length, 'fixed'
          next_end = window_end + length
        end
      elseif kind == 84 or kind == 76 then
        kind, rate_hits, rate_per = 'meter', unpack_from('<dd', argument, 3)
        local counted = unpack_from('<d', argument, #argument - 15)
        bound = counted > 0 and counted - 1 + most
      end
      format = '<c' .. signature_length + 1 .. numbers
    end
    local state = states[key]
    if (state and #state ~= bytes and state ~= '') or (leased and leased[key]) then
      -- The functions decide all other kinds.
    elseif kind == 'window' then
      local found, stored, previous, current = signature, nil, 0, 0
      if state and state ~= '' then
        found, stored, previous, current = unpack_from(format, state)
        if stored ~= number then
          if number == stored + 1 then
            previous, current = current, 0
          else
            -- The stored window is an older one, or the clock was set back.
            previous, current, found = 0, 0, number > stored and found
          end
        end
      end
      if found == signature then
        local used = previous + current
        is_decided = true
        if used + hits > most and previous > 0 then
          -- The part of the window before that still counts.
          local product = previous * rest
          used, is_decided = current + floor(product / length), product < 9007199254740992
        end
        if used + hits <= most then
          charged = pack(format, signature, number, previous, current + hits)
          expires = stored == number and KEPT or (number + 2) * length
        end
      end
    elseif kind == 'fixed' then
      local found, ends, count = signature, 0, 0
      if state and state ~= '' then found, ends, count = unpack_from(format, state) end
      expires = KEPT
      if now >= ends or count == 0 then ends, count, expires = window_end, 0, window_end end
      -- The functions decide windows of a clock that was far ahead.
      if found == signature and ends <= next_end then
        is_decided = true
        if count + hits <= most then charged = pack(format, signature, ends, count + hits) end
      end
    elseif kind == 'meter' then
      local found, dry, part = signature, now, 0
      if state and state ~= '' then found, dry, part = unpack_from(format, state) end
      if dry < now then dry, part = now, 0 end
      local level, more = (dry - now) * rate_hits + part, hits * rate_per
      if found == signature and level < 9007199254740992 and more < 9007199254740992 then
        is_decided = true
        if math.ceil(level / rate_per) + hits <= most then
          local added = floor(more / rate_hits)
          dry, part = dry + added, part + more - added * rate_hits
          if part >= rate_hits then dry, part = dry + 1, part - rate_hits end
          charged, expires = pack(format, signature, dry, part), part > 0 and dry + 1 or dry
        elseif bound and level > bound * rate_per then
          -- The functions decide buckets of a clock that was far ahead.
          is_decided = false
        end
      end
    end
    if is_decided then
      replied, position = replied + 1, position + 5
      reply[replied] = state or ''
      if charged then
        -- If this call has changed the counter before, its expiry has to be written anyway.
        if expires == KEPT then expires = changed[key] or KEPT end
        states[key], changed[key] = charged, expires
      else
        verdicts[decided] = 1
      end
    end
  end
  if not is_decided then
    general = general or make_general(now, states, changed, reply, lease_length)
    leased = general.leased
    local is_good, verdict, after, of_reply = pcall(general.decide, position, replied)
    if not is_good then
      local counters
      verdict, after, counters = verdict == 5 and 5 or 4, general.skip(position)
      of_reply = replied + counters
      for i = replied + 1, of_reply do reply[i] = '' end
    end
    position, replied = after, of_reply
    if verdict > 0 then verdicts[decided] = verdict end
  end
end
if general then general.grant_all(is_learning, replied) end

if header then call('SET', keys[1], header) end
if general then
  general.mark_given()
  local lost = general.lost()
  if lost > 0 then reply[3] = reply[3] .. ' ' .. lost end
end
local last_expires, text
for key = 2, #keys do
  local expires, state = changed[key], states[key]
  if expires and general then state, expires = general.value_of(key, state, expires) end
  if expires == KEPT then
    -- SETRANGE keeps the expiry, and returns no table.
    call('SETRANGE', keys[key], '0', state)
  elseif expires and expires > now then
    -- Most counters of a limit have the same expiry: its text is made once.
    if expires ~= last_expires then
      last_expires, text = expires, string.format('%.0f', math.ceil((expires - now) / 1000) + SLACK_MS)
    end
    call('PSETEX', keys[key], text, state)
  elseif expires then
    call('DEL', keys[key])
  end
end
if next(verdicts) then
  for i = 1, decided do verdicts[i] = verdicts[i] or 0 end
  reply[2] = table.concat(verdicts)
else
  reply[2] = string.rep('0', decided)
end
return reply
