-- Sliding window counter; mirrors tidegate-core/src/sliding_counter.rs.
if band(kinds, 8) ~= 0 then
  -- A product in three limbs of 26 bits, the highest first; for a < 2^52 and b < 2^46.
  local function product(a, b)
    local a1, b1 = floor(a / 67108864), floor(b / 67108864)
    local a0, b0 = a - a1 * 67108864, b - b1 * 67108864
    local low, middle = a0 * b0, a1 * b0 + a0 * b1
    local carry = floor(low / 67108864)
    low, middle = low - carry * 67108864, middle + carry
    carry = floor(middle / 67108864)
    return a1 * b1 + carry, middle - carry * 67108864, low
  end

  -- Whether a * b < c * d. A product that comes out below 2^53 is exact.
  local function is_less(a, b, c, d)
    local x, y = a * b, c * d
    if x <= NEVER or y <= NEVER then return x < y end
    local x2, x1, x0 = product(a, b)
    local y2, y1, y0 = product(c, d)
    if x2 ~= y2 then return x2 < y2 end
    if x1 ~= y1 then return x1 < y1 end
    return x0 < y0
  end

  -- Whether the previous window's share is at most `room` units.
  local function weighs_at_most(p, previous, left, room)
    if p.exact == 1 then return not is_less(room, p.length, previous, left) end
    return is_less(previous, left, room + 1, p.length)
  end

  local function left_of(p)
    return p.length - min(max(now - p.start, 0), p.length)
  end

  local function is_within(p, n, cap)
    local room = cap - p.current - n
    return room >= 0 and weighs_at_most(p, p.previous, left_of(p), room)
  end

  local function roll(p)
    local start = now - math.fmod(now, p.length)
    if start <= p.start then return end
    p.previous = start - p.start == p.length and p.current or 0
    p.start, p.current = start, 0
  end

  algorithms[4] = {
    read = function(p, pos)
      p.length, p.cap, p.soft_cap, p.exact, p.n, pos = unpack('<dddBd', args, pos)
      return pos
    end,
    taking = function(pos)
      local taking = {}
      taking.start, taking.n, pos = unpack('<dd', args, pos)
      return taking, pos
    end,
    fresh = function(p)
      p.start, p.previous, p.current = now - math.fmod(now, p.length), 0, 0
    end,
    load = function(p)
      p.start, p.previous, p.current = unpack('<ddd', p.value, p.base + 1)
    end,
    roll = roll,
    fits = function(p, soft)
      return is_within(p, p.n, soft and p.soft_cap or p.cap)
    end,
    within = function(p)
      return is_within(p, 0, p.cap)
    end,
    is_spent = function(p)
      local rolled = { start = p.start, previous = p.previous, current = p.current,
        length = p.length, exact = p.exact }
      roll(rolled)
      return is_within(rolled, 0, 0)
    end,
    is_full = function(p)
      return is_within(p, 0, 0)
    end,
    take = function(p)
      p.current = min(p.current + p.n, MOST - 1)
    end,
    refund = function(p)
      p.current = max(p.current - p.n, 0)
    end,
    give_back = function(p, taking)
      if taking.start == p.start then
        p.current = max(p.current - taking.n, 0)
      elseif taking.start + p.length == p.start then
        p.previous = max(p.previous - taking.n, 0)
      end
    end,
    save = function(p)
      return pack('<ddd', p.start, p.previous, p.current)
    end,
    -- When the last unit weighs nothing any more.
    till = function(p)
      local start, units = p.start, p.previous
      if p.current > 0 then start, units = p.start + p.length, p.current end
      if p.exact == 1 or units == 0 then return start + p.length end
      return start + p.length - (ceil(p.length / units) - 1)
    end,
  }
end
