-- Writes a counter that was changed without a decision, or deletes it if it is empty. A counter with leases lasts for the rest of its
-- former lifetime, and then as long as its hits.
local function write_counter(key, value, expires, is_leased)
  local left = max(0, expires - now) / 1000
  if is_leased then left = left + max(0, call('PTTL', key)) end
  if value ~= '' and left > 0 then
    call('SET', key, value, 'PX', ceil(left) + SLACK_MS)
  else
    call('DEL', key)
  end
end
