-- Counts the processes that share a store, and tells whether there are new notes.
-- KEYS[1]: a sorted set of nodes by the time, in ms, at which they last said that they live
-- KEYS[2]: the notes, see notes.lua
-- ARGV[1]: the node that says so; ARGV[2]: after how many ms of silence a node is gone
-- Reply: how many nodes live, how many of them come before this one in the order of their ids, and
-- the number of the last change of notes.
-- Called by Member::live in src/fleet.rs.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. string.format('%.0f', now - ARGV[2]))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
local rank, nodes = 0, redis.call('ZRANGE', KEYS[1], 0, -1)
for _, node in ipairs(nodes) do
  if node < ARGV[1] then
    rank = rank + 1
  end
end
return { #nodes, rank, tonumber(redis.call('HGET', KEYS[2], '') or 0) }
