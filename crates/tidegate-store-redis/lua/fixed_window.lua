-- Fixed window; mirrors tidegate-core/src/fixed_window.rs.
if band(kinds, 4) ~= 0 then
  local EPOCH, FIRST_REQUEST, CALENDAR = 0, 1, 2

  -- The end of the window that a key without a past is counted in. Of a calendar, the request
  -- brings three windows, because its clock may be just before or after this one.
  local function window_end(p)
    if p.windows == CALENDAR then
      local ends = now < p.second and p.second or (now < p.third and p.third or p.fourth)
      if now < ends then return ends end
    elseif p.windows == FIRST_REQUEST then
      return now + p.length
    end
    return now - math.fmod(now, p.length) + p.length
  end

  local function fresh(p)
    p.ends, p.used = window_end(p), 0
  end

  algorithms[3] = {
    read = function(p, pos)
      p.length, p.cap, p.soft_cap, p.windows, p.n, p.second, p.third, p.fourth, pos =
        unpack('<dddBdddd', args, pos)
      return pos
    end,
    taking = function(pos)
      local taking = {}
      taking.ends, taking.n, pos = unpack('<dd', args, pos)
      return taking, pos
    end,
    fresh = fresh,
    load = function(p)
      p.ends, p.used = unpack('<dd', p.value, p.base + 1)
    end,
    roll = function(p)
      if now >= p.ends then
        fresh(p)
      elseif p.used == 0 then
        p.ends = max(window_end(p), p.windows == FIRST_REQUEST and 0 or p.ends)
      end
    end,
    fits = function(p, soft)
      return p.used + p.n <= (soft and p.soft_cap or p.cap)
    end,
    within = function(p)
      return p.used <= p.cap
    end,
    is_spent = function(p)
      return p.used == 0 or now >= p.ends
    end,
    is_full = function(p)
      return p.used == 0
    end,
    take = function(p)
      p.used = min(p.used + p.n, MOST)
    end,
    refund = function(p)
      p.used = max(p.used - p.n, 0)
    end,
    give_back = function(p, taking)
      if taking.ends == p.ends then p.used = max(p.used - taking.n, 0) end
    end,
    save = function(p)
      return pack('<dd', p.ends, p.used)
    end,
    till = function(p)
      return p.ends
    end,
  }
end
