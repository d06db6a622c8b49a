-- Ends the reservations of one ticket. Keys: counters. Arguments: the id, and the actual cost (or, as a negative number, the difference by
-- which it is less than the estimate). Returns how many were open, and how many others had passed their deadlines.
--
-- A reservation that is no longer open is skipped, so that a second call changes nothing.

local values, ended = redis.call('MGET', unpack(KEYS)), 0
local id, cost = ARGV[1], ARGV[2] + 0
for i = 1, #KEYS do
  local value, expires, is_leased
  if values[i] then
    value, expires, is_leased = reserved().change(values[i], id, function(estimate)
      return 0, cost < 0 and max(0, estimate + cost) or cost
    end)
  end
  if value then
    ended = ended + 1
    write_counter(KEYS[i], value, expires, is_leased)
  end
end
return { ended, lost }
