-- Decides a request on all its limits at once: asks all, then writes all or nothing.
--
-- KEYS     for each part (a key under a limit) one, but three for those that hold permits: the
--          state, the holders' units (hash), the ends of their leases (sorted set)
-- ARGV[1]  packed, little-endian, numbers as doubles: the operation, the time, and for each part its
--          tag, its terms and what is asked of it; see src/engine/request.rs
-- reply    one string: what became of it, the time that counted, and for each part whether it
--          fits and the state that was found; see src/engine/reply.rs
--
-- Mirrors `Limit::settle` and its neighbours in tidegate-core. Times are microseconds; all numbers
-- are integers below 2^53, which doubles keep exactly.

local args = ARGV[1]

-- The commonest of all: one bucket without extras. `bucket.lua` says what it does; this is the
-- same without a function or a table, because those take longer than the rest.
if string.byte(args) == 1 then
  local now, dq, dr, t, cq, cr, tag = struct.unpack('<ddddddBc0', args, 2)
  local expires = now < 0
  if expires then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  local key = KEYS[1]
  local value = redis.call('GET', key)
  local q, r = now, 0
  if value then
    local length = #tag
    if string.sub(value, 1, length) ~= tag then
      return struct.pack('<BdH', 2, now, 0) .. value
    end
    q, r = struct.unpack('<dd', value, length + 1)
    if q < now then q, r = now, 0 end
  end
  q, r = q + dq, r + dr
  if r >= t then q, r = q + 1, r - t end
  cq = now + cq
  if q > cq or (q == cq and r > cr) then
    return struct.pack('<Bd', 0, now) .. (value or '')
  end
  local new = tag .. struct.pack('<dd', q, r)
  if expires then
    if r > 0 then q = q + 1 end
    redis.call('SET', key, new, 'PXAT', math.ceil(q / 1000))
  else
    redis.call('SET', key, new)
  end
  return struct.pack('<Bd', 1, now) .. (value or '')
end

local call, band = redis.call, bit.band
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local concat, spread = table.concat, unpack
local pack, unpack, sub = struct.pack, struct.unpack, string.sub

local CHECK, PEEK, FORCE, REFUND, GIVE_BACK, RESET, DUMP, SWAP, UNDO, PROBE =
  2, 3, 4, 5, 6, 7, 8, 9, 10, 11
-- What a count is cut off at: far above every limit, and sums of them stay exact.
local MOST = 4503599627370496
-- A lease without an end, and the last moment that can be told.
local NEVER = 9007199254740991

local op, flags, kinds, now, holder, quotas, count, pos = unpack('<BBBdc16HH', args)
local expires = now < 0
if expires then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Writes a key that lasts until a moment in microseconds; `NEVER` for as long as nobody deletes it.
local function set(key, value, till)
  if expires and till < NEVER then
    call('SET', key, value, 'PXAT', ceil(till / 1000))
  else
    call('SET', key, value)
  end
end

-- The same for a key that is there.
local function expire(key, till)
  if not expires then return end
  if till < NEVER then
    call('PEXPIREAT', key, ceil(till / 1000))
  else
    call('PERSIST', key)
  end
end

-- What each algorithm can do, by its number:
--   read(p, pos)          reads the terms and the units asked for; returns where it ended
--   taking(pos)           reads what is to be given back
--   fresh(p)              the state of a key that was never seen
--   load(p)               the state that was found, as it is
--   roll(p)               brings it to now
--   fits(p, soft)         whether the units fit, under the plain limit or the soft one
--   within(p)             whether what is used is within the plain limit
--   is_spent(p)           whether it equals no state, before it is rolled
--   is_full(p)            whether nothing is used, after it is rolled
--   take(p)               uses the units
--   refund(p)             gives them back
--   give_back(p, taking)  gives back what is left of a taking
--   save(p)               the state as a string
--   till(p)               when it will be spent
-- and those that are not one string: find, summary, write, forget.
local algorithms = {}
