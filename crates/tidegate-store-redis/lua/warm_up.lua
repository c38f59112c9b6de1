-- Warm-up; mirrors tidegate-core/src/warm_up.rs.
--
-- State: how cold the key is in ticks (a 64-bit integer in two halves), and when all is paid, as whole
-- microseconds `q` and nanoseconds `r`.
if band(kinds, 64) ~= 0 then
  local THOUSAND = { 1000 }

  local function up(quotient, rest)
    return #rest == 1 and rest[1] == 0 and quotient or plus(quotient, { 1 })
  end

  -- What the units cost in nanoseconds, and the coldness they leave.
  local function price(p)
    local n = wide(p.n)
    local left = minus(p.cold, times(p.per_unit, n))
    local above, still = minus(p.cold, p.warm), minus(left, p.warm)
    local squares = minus(times(above, above), times(still, still))
    local extra = up(divide(times(p.factor_less_one, squares), p.scale))
    return up(divide(plus(times(n, p.interval), extra), p.rate)), left
  end

  local function is_paid(p)
    return p.q < now or (p.q == now and p.r == 0)
  end

  local function lower(p, q, r)
    q, r = p.q - q, p.r - r
    if r < 0 then q, r = q - 1, r + 1000 end
    if q < now then q, r = now, 0 end
    p.q, p.r = q, r
  end

  local function roll(p)
    if p.q >= now then return end
    local rest = minus(times(wide(now - p.q), THOUSAND), wide(p.r))
    local colder = plus(p.cold, times(rest, p.ticks))
    p.cold = is_below(colder, p.coldest) and colder or p.coldest
    p.q, p.r = now, 0
  end

  algorithms[7] = {
    read = function(p, pos)
      p.cap, p.lq, p.lr, pos = unpack('<ddd', args, pos)
      for _, name in ipairs({ 'coldest', 'warm', 'per_unit', 'ticks', 'interval', 'rate',
        'factor_less_one', 'scale' }) do
        p[name], pos = wide_at(pos)
      end
      p.n, p.steady_q, p.steady_r, pos = unpack('<ddd', args, pos)
      return pos
    end,
    taking = function(pos)
      local taking = {}
      taking.q, taking.r, taking.steady_q, taking.steady_r, pos = unpack('<dddd', args, pos)
      return taking, pos
    end,
    fresh = function(p)
      p.cold, p.q, p.r = p.coldest, now, 0
    end,
    load = function(p)
      local low, high
      low, high, p.q, p.r = unpack('<I4I4dd', p.value, p.base + 1)
      p.cold = plus(wide(high * 4294967296), wide(low))
      if is_below(p.coldest, p.cold) then p.cold = p.coldest end
    end,
    roll = roll,
    fits = function(p)
      if p.n > p.cap then return false end
      return p.q < now + p.lq or (p.q == now + p.lq and p.r <= p.lr)
    end,
    is_spent = function(p)
      if not is_paid(p) then return false end
      local rolled = { cold = p.cold, coldest = p.coldest, ticks = p.ticks, q = p.q, r = p.r }
      roll(rolled)
      return not is_below(rolled.cold, p.coldest)
    end,
    take = function(p)
      local nanos, left = price(p)
      local q, r = divide(nanos, THOUSAND)
      q, r = p.q + as_number(q), p.r + r[1]
      if r >= 1000 then q, r = q + 1, r - 1000 end
      p.cold, p.q, p.r = left, min(q, NEVER - 1), r
    end,
    refund = function(p)
      lower(p, p.steady_q, p.steady_r)
    end,
    -- Only the last taking comes back.
    give_back = function(p, taking)
      if taking.q == p.q and taking.r == p.r then lower(p, taking.steady_q, taking.steady_r) end
    end,
    save = function(p)
      local low, middle, high = p.cold[1], p.cold[2] or 0, p.cold[3] or 0
      local upper = floor(middle / 256)
      return pack('<I4I4dd', low + (middle - upper * 256) * 16777216, upper + high * 65536, p.q, p.r)
    end,
    till = function(p)
      local rest = as_number(minus(p.coldest, p.cold)) / as_number(p.ticks) / 1000
      return min(p.q + 1 + ceil(rest), NEVER - 1)
    end,
  }
end
