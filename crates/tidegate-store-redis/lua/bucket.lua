-- Token bucket, leaky bucket and GCRA; mirrors tidegate-core/src/bucket.rs.
--
-- The moment at which all is paid is kept as whole microseconds `q` and a rest `r` of `t` ticks each,
-- 0 <= r < t. What `n` units and the full bucket come to is told as such pairs too, so that
-- there is nothing to multiply.
if band(kinds, 1) ~= 0 then
  local function at_most(q, r, a, b)
    return q < a or (q == a and r <= b)
  end

  local function is_spent(p)
    return at_most(p.q + p.memory, p.r, now, 0)
  end

  local function fresh(p)
    p.q, p.r = now + p.iq, p.ir
  end

  local function lower(p, dq, dr)
    local q, r = p.q - dq, p.r - dr
    if r < 0 then q, r = q - 1, r + p.t end
    if at_most(q, r, now, 0) then q, r = now, 0 end
    p.q, p.r = q, r
  end

  algorithms[1] = {
    read = function(p, pos)
      p.t, p.cq, p.cr, p.sq, p.sr, p.iq, p.ir, p.memory, p.queue, p.lq, p.lr, p.dq, p.dr, pos =
        unpack('<ddddddddBdddd', args, pos)
      return pos
    end,
    taking = function(pos)
      local taking = {}
      taking.q, taking.r, taking.dq, taking.dr, pos = unpack('<dddd', args, pos)
      return taking, pos
    end,
    fresh = fresh,
    load = function(p)
      p.q, p.r = unpack('<dd', p.value, p.base + 1)
    end,
    roll = function(p)
      if at_most(p.q, p.r, now, 0) then
        if is_spent(p) then fresh(p) else p.q, p.r = now, 0 end
      end
    end,
    fits = function(p, soft)
      local q, r = p.q + p.dq, p.r + p.dr
      if r >= p.t then q, r = q + 1, r - p.t end
      if soft then
        if not at_most(q, r, now + p.sq, p.sr) then return false end
      elseif not at_most(q, r, now + p.cq, p.cr) then
        return false
      end
      return p.queue < 2 or at_most(p.q, p.r, now + p.lq, p.lr)
    end,
    within = function(p)
      return at_most(p.q, p.r, now + p.cq, p.cr)
    end,
    is_spent = is_spent,
    is_full = function(p)
      return at_most(p.q, p.r, now, 0)
    end,
    take = function(p)
      local q, r = p.q + p.dq, p.r + p.dr
      if r >= p.t then q, r = q + 1, r - p.t end
      p.q, p.r = min(q, NEVER - 1), r
    end,
    refund = function(p)
      lower(p, p.dq, p.dr)
    end,
    -- A queue takes back its last slot and no other.
    give_back = function(p, taking)
      local q, r = taking.q, taking.r
      if p.queue > 0 and (q ~= p.q or r ~= p.r) then return end
      if at_most(q, r, now, 0) then return end
      q = q - now
      if at_most(q, r, taking.dq, taking.dr) then lower(p, q, r) else lower(p, taking.dq, taking.dr) end
    end,
    save = function(p)
      return pack('<dd', p.q, p.r)
    end,
    till = function(p)
      return p.q + p.memory + (p.r > 0 and 1 or 0)
    end,
  }
end
