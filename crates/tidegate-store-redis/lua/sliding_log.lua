-- Sliding window log; mirrors tidegate-core/src/sliding_log.rs.
--
-- One string: the tag, a header (six doubles: head, before, count, newest, total, episode) and records
-- of 16 bytes (time, running total), oldest first. Those before `head` have left the log, those from
-- `count` on are left over; `before` is the total before `head`, `newest` and `total` are those of
-- the last record. A record is found by bisection with a read of 16 bytes per step; what has left
-- is cut off when it is more than half, so that a step costs the same however long the log is.
if band(kinds, 16) ~= 0 then
  local HEADER = 48

  local function record(p, index)
    local from = p.base + HEADER + 16 * index
    return unpack('<dd', call('GETRANGE', p.key, from, from + 15))
  end

  -- The first record from `low` on that `is_it`, with the total before it, given that `high` is
  -- it if no other is. Looks near `low` first.
  local function first(p, low, high, before, is_it)
    local step, top = 1, low
    while top < high do
      local at, total = record(p, top)
      if is_it(at, total) then high = top break end
      low, before = top + 1, total
      top, step = top + step, step * 2
    end
    while low < high do
      local middle = floor((low + high) / 2)
      local at, total = record(p, middle)
      if is_it(at, total) then high = middle else low, before = middle + 1, total end
    end
    return low, before
  end

  -- Finds the first record in the window. A clock that went back sees the window that the newest saw.
  local function roll(p)
    local oldest = max(now, p.newest) - p.length
    if p.count == p.head or p.newest <= oldest then
      p.first, p.gone = p.count, p.total
    else
      p.first, p.gone =
        first(p, p.head, p.count - 1, p.before, function(at) return at > oldest end)
    end
    p.used = p.total - p.gone
  end

  local function drop_gone(p)
    p.head, p.before = p.first, p.gone
    if p.used == 0 then p.head, p.before, p.count, p.newest, p.total = 0, 0, 0, 0, 0 end
  end

  -- The record with the unit whose leaving makes room, as its time and the units up to it.
  local function leaving(p, units)
    if units <= 0 or units > p.used then return 0, 0 end
    local enough = p.gone + units
    local index = first(p, p.first, p.count - 1, 0, function(_, total) return total >= enough end)
    local at, total = record(p, index)
    return at, total - p.gone
  end

  algorithms[5] = {
    read = function(p, pos)
      p.length, p.cap, p.soft_cap, p.most, p.n, pos = unpack('<ddddd', args, pos)
      return pos
    end,
    taking = function(pos)
      local taking = {}
      taking.at, taking.n, pos = unpack('<dd', args, pos)
      return taking, pos
    end,
    find = function(p)
      local value = call('GETRANGE', p.key, 0, p.base + HEADER - 1)
      return value ~= '' and value
    end,
    fresh = function(p)
      p.head, p.before, p.count, p.newest, p.total = 0, 0, 0, 0, 0
      p.first, p.gone, p.used = 0, 0, 0
    end,
    load = function(p)
      p.head, p.before, p.count, p.newest, p.total = unpack('<ddddd', p.value, p.base + 1)
    end,
    roll = roll,
    fits = function(p, soft)
      return p.used + p.n <= (soft and p.soft_cap or p.cap)
    end,
    within = function(p)
      return p.used <= p.cap
    end,
    is_spent = function(p)
      return p.count == p.head or now >= p.newest + p.length
    end,
    is_full = function(p)
      return p.used == 0
    end,
    -- What the answer needs: what is used, the newest time, and where units leave if `asked` more are
    -- to fit, once `adding` have been added; under the plain limit and under the soft one.
    summary = function(p, adding, asked)
      local episode, used, newest = p.episode, p.used, p.newest
      local at, upto, soft_at, soft_upto = 0, 0, 0, 0
      if asked then
        adding = min(adding, p.most)
        local after = used + adding + asked
        if asked <= p.cap then at, upto = leaving(p, after - p.cap) end
        if p.soft_cap > p.cap and asked <= p.soft_cap then
          soft_at, soft_upto = leaving(p, after - p.soft_cap)
        end
      end
      return pack('<ddddddd', episode, used, newest, at, upto, soft_at, soft_upto)
    end,
    take = function(p)
      drop_gone(p)
      -- A clock that went back writes at the newest time, so that the log stays in order.
      local at = max(now, p.newest)
      local total = p.total + min(p.n, p.most)
      if p.count == p.head or at ~= p.newest then p.count = p.count + 1 end
      p.newest, p.total = at, total
      -- Only the newest units are kept.
      local surplus = total - p.before - p.most
      if surplus > 0 then
        local least = p.before + surplus
        p.head = first(p, p.head, p.count - 1, 0, function(_, upto) return upto > least end)
        p.before = least
      end
      p.used = total - p.before
      p.from, p.records = p.count - 1, pack('<dd', at, total)
    end,
    -- The newest units go first.
    refund = function(p)
      drop_gone(p)
      p.used = max(p.used - p.n, 0)
      if p.used == 0 then
        p.head = p.count
        return
      end
      local total = p.before + p.used
      local last = first(p, p.head, p.count - 1, 0, function(_, upto) return upto >= total end)
      p.newest = record(p, last)
      p.count, p.total = last + 1, total
      p.from, p.records = last, pack('<dd', p.newest, total)
    end,
    give_back = function(p, taking)
      if p.count == p.head or taking.at > p.newest then return end
      local from, before = first(p, p.head, p.count - 1, p.before,
        function(at) return at >= taking.at end)
      local tail = call('GETRANGE', p.key, p.base + HEADER + 16 * from,
        p.base + HEADER + 16 * p.count - 1)
      local at, total = unpack('<dd', tail)
      if at ~= taking.at then return end
      local units = min(total - before, taking.n)
      local rest = {}
      if units < total - before then rest[1] = pack('<dd', at, total - units) end
      for place = 17, #tail, 16 do
        at, total = unpack('<dd', tail, place)
        rest[#rest + 1] = pack('<dd', at, total - units)
      end
      p.count, p.total = from + #rest, p.total - units
      if #rest > 0 then
        p.newest = at
      elseif p.count > p.head then
        p.newest = record(p, p.count - 1)
      end
      -- At once, because another taking may follow.
      if #rest > 0 then call('SETRANGE', p.key, p.base + HEADER + 16 * from, concat(rest)) end
      if p.count > p.head then
        p.from, p.records = p.count - 1, pack('<dd', p.newest, p.total)
        roll(p)
      else
        p.used = 0
      end
    end,
    save = function(p)
      return pack('<ddddd', p.head, p.before, p.count, p.newest, p.total)
    end,
    till = function(p)
      return p.newest + p.length
    end,
    write = function(p, header, till)
      -- Nothing was found that could have been given back.
      if not p.records then return end
      local records_at = p.base + HEADER
      if p.count - p.head == 1 then
        -- One record is all there is, so the rest may go.
        p.head, p.count = 0, 1
        p.before, p.total = 0, p.total - p.before
        set(p.key, p.tag .. algorithms[5].save(p) .. pack('<ddd', p.episode, p.newest, p.total), till)
        return
      end
      if p.head < 64 or p.head * 2 < p.count then
        call('SETRANGE', p.key, p.base, header)
        call('SETRANGE', p.key, records_at + 16 * p.from, p.records)
        expire(p.key, till)
        return
      end
      local kept = call('GETRANGE', p.key, records_at + 16 * p.head, records_at + 16 * p.from - 1)
      p.head, p.count = 0, p.count - p.head
      if p.total > MOST then
        -- Totals begin again before they become inexact.
        local records = {}
        for place = 1, #kept, 16 do
          local at, total = unpack('<dd', kept, place)
          records[#records + 1] = pack('<dd', at, total - p.before)
        end
        kept = concat(records)
        p.total = p.total - p.before
        p.before, p.records = 0, pack('<dd', p.newest, p.total)
      end
      local value = p.tag .. algorithms[5].save(p) .. pack('<d', p.episode)
      set(p.key, value .. kept .. p.records, till)
    end,
  }
end
