-- Counts the processes that share a store.
-- KEYS[1]: a sorted set of nodes by the time, in ms, at which they last said that they live
-- ARGV[1]: the node that says so; ARGV[2]: after how many ms of silence a node is gone
-- Reply: how many nodes live, and how many of them come before this one in the order of their ids.
-- Called by Member::live in fleet.rs.
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
return { #nodes, rank }
