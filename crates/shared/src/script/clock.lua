#!lua
-- The beginning of every script. TIME advances within a script: it is read once.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- Milliseconds that a key outlives the time at which its counter is empty.
local SLACK_MS = 1000
