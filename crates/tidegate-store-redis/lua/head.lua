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
local op = string.byte(args)
if op == 1 then
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

-- Buckets and windows without extras, all of them enforced; `bucket.lua` and `fixed_window.lua` say
-- what they do.
if op == 12 then
  local spread = unpack
  local pack, unpack, call = struct.pack, struct.unpack, redis.call
  local now, count, pos = unpack('<dB', args, 2)
  local expires = now < 0
  if expires then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  local values = count == 1 and { call('GET', KEYS[1]) } or call('MGET', spread(KEYS))
  local allowed, reply, states, tills, counted = true, { '' }, {}, {}, {}
  for index = 1, count do
    local value, kind, fits, state, till, tag = values[index], nil, nil, '', nil, nil
    kind, pos = unpack('<B', args, pos)
    if kind == 1 then
      local dq, dr, t, cq, cr
      dq, dr, t, cq, cr, tag, pos = unpack('<dddddBc0', args, pos)
      local q, r = now, 0
      if value then
        local size = #tag
        if string.sub(value, 1, size) ~= tag then return pack('<BdH', 2, now, index - 1) .. value end
        state = string.sub(value, size + 1)
        q, r = unpack('<dd', state)
        if q < now then q, r = now, 0 end
      end
      q, r = q + dq, r + dr
      if r >= t then q, r = q + 1, r - t end
      cq = now + cq
      fits = q < cq or (q == cq and r <= cr)
      states[index], till = tag .. pack('<dd', q, r), r > 0 and q + 1 or q
    else
      local n, second, third, fourth, length, cap, windows, counts
      n, second, third, fourth, length, cap, windows, counts, tag, pos =
        unpack('<ddddddBBBc0', args, pos)
      local ends, used = 0, 0
      if value then
        local size = #tag
        if string.sub(value, 1, size) ~= tag then return pack('<BdH', 2, now, index - 1) .. value end
        state = string.sub(value, size + 1)
        ends, used = unpack('<dd', state)
      end
      if now >= ends or used == 0 then
        if now >= ends or windows == 1 then ends = 0 end
        used = 0
        local next = 0
        if windows == 2 then next = now < second and second or (now < third and third or fourth) end
        if windows == 1 then
          next = now + length
        elseif now >= next then
          next = now - math.fmod(now, length) + length
        end
        if next > ends then ends = next end
      end
      fits = used + n <= cap
      used = used + n
      if used > 4503599627370496 then used = 4503599627370496 end
      states[index], till, counted[index] = tag .. pack('<dd', ends, used), ends, counts == 1
    end
    tills[index] = till
    allowed = allowed and fits
    reply[index + 1] = pack('<BB', fits and 1 or 0, #state) .. state
  end
  for index = 1, count do
    if allowed or counted[index] then
      if expires then
        call('SET', KEYS[index], states[index], 'PXAT', math.ceil(tills[index] / 1000))
      else
        call('SET', KEYS[index], states[index])
      end
    end
  end
  reply[1] = pack('<Bd', allowed and 1 or 0, now)
  return table.concat(reply)
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

local flags, kinds, now, holder, quotas, count, pos = unpack('<BBdc16HH', args, 2)
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
