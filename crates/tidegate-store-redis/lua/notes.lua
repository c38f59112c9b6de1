-- Notes that all processes of a store follow: a hash from name to the note's end and text.
-- KEYS[1]: the hash; the field without a name counts changes
-- ARGV[1]: `put` with ARGV[2..5] name, time to live in ms, text, how many there may be
--          `remove` with ARGV[2] name
--          `all`
-- Reply: put: 1, or 0 if there are too many; remove: 1 if it was there; all: for each note its name,
-- the ms that are left, its text.
-- Called by the methods of Board in src/fleet.rs.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local op, name = ARGV[1], ARGV[2]

local function all(look)
  local found = redis.call('HGETALL', KEYS[1])
  for place = 1, #found, 2 do
    if found[place] ~= '' then
      look(found[place], (struct.unpack('<d', found[place + 1])), found[place + 1])
    end
  end
end

local function changed()
  redis.call('HINCRBY', KEYS[1], '', 1)
  -- The hash lasts as long as its last note, and its count of changes somewhat longer.
  local last = 0
  all(function(_, ends) last = math.max(last, ends) end)
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', math.max(last, now) + 3600000))
end

if op == 'put' then
  if redis.call('HEXISTS', KEYS[1], name) == 0 and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[5]) then
    all(function(other, ends) if ends <= now then redis.call('HDEL', KEYS[1], other) end end)
    if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[5]) then return 0 end
  end
  redis.call('HSET', KEYS[1], name, struct.pack('<d', now + ARGV[3]) .. ARGV[4])
  changed()
  return 1
end

if op == 'remove' then
  local value = redis.call('HGET', KEYS[1], name)
  if not value then return 0 end
  redis.call('HDEL', KEYS[1], name)
  changed()
  return struct.unpack('<d', value) > now and 1 or 0
end

local reply = {}
all(function(other, ends, value)
  if ends > now then
    reply[#reply + 1] = other
    reply[#reply + 1] = ends - now
    reply[#reply + 1] = string.sub(value, 9)
  end
end)
return reply
