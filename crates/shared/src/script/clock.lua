#!lua
-- The beginning of every script. Reads the time once, because TIME advances within a script.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
-- A key outlives the time at which its counter is empty by this many milliseconds.
local SLACK_MS = 1000
