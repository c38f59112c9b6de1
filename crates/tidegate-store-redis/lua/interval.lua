-- Token bucket that is refilled at intervals; mirrors tidegate-core/src/interval.rs.
if band(kinds, 2) ~= 0 then
  local function anchor(p, at)
    return p.aligned == 1 and at - math.fmod(at, p.period) or at
  end

  local function fresh(p)
    p.used, p.since = p.missing, anchor(p, now)
  end

  local function full_at(p)
    return min(p.since + ceil(p.used / p.units) * p.period, NEVER - 1)
  end

  local function is_spent(p)
    return now >= full_at(p) + p.memory
  end

  local function lower(p, n)
    p.used = max(p.used - n, 0)
    if p.used == 0 then p.since = max(p.since, now) end
  end

  algorithms[2] = {
    read = function(p, pos)
      p.units, p.period, p.cap, p.soft_cap, p.missing, p.memory, p.aligned, p.n, pos =
        unpack('<ddddddBd', args, pos)
      return pos
    end,
    taking = function(pos)
      local taking = {}
      taking.since, taking.units, taking.n, pos = unpack('<ddd', args, pos)
      return taking, pos
    end,
    fresh = fresh,
    load = function(p)
      p.used, p.since = unpack('<dd', p.value, p.base + 1)
    end,
    roll = function(p)
      local elapsed = floor(max(now - p.since, 0) / p.period)
      local needed = ceil(p.used / p.units)
      if elapsed < needed then
        p.used, p.since = p.used - elapsed * p.units, p.since + elapsed * p.period
        return
      end
      local since = p.since + needed * p.period
      p.used, p.since = 0, since
      if now - since >= p.memory then
        fresh(p)
        -- A clock behind the last refill must not open a period that already ended.
        p.since = max(p.since, since)
      end
    end,
    fits = function(p, soft)
      return p.used + p.n <= (soft and p.soft_cap or p.cap)
    end,
    within = function(p)
      return p.used <= p.cap
    end,
    is_spent = is_spent,
    is_full = function(p)
      return p.used == 0
    end,
    take = function(p)
      if p.used == 0 then p.since = anchor(p, max(now, p.since)) end
      p.used = min(p.used + p.n, MOST)
    end,
    refund = function(p)
      lower(p, p.n)
    end,
    give_back = function(p, taking)
      local refills = floor(max(p.since - taking.since, 0) / p.period)
      lower(p, min(max(taking.units - refills * p.units, 0), taking.n))
    end,
    save = function(p)
      return pack('<dd', p.used, p.since)
    end,
    till = function(p)
      return full_at(p) + p.memory
    end,
  }
end
