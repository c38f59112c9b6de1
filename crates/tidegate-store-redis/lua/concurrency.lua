-- Permits; mirrors tidegate-core/src/concurrency.rs.
--
-- Three keys: the state (tag, and the units of all holders), the units of each holder (hash), the
-- end of each lease (sorted set). Leases that have ended are dropped by the next taking, not
-- before: a clock that goes back must still find them.
if band(kinds, 32) ~= 0 then
  local function units_of(p, holders)
    local sum = 0
    for from = 1, #holders, 500 do
      local some = call('HMGET', p.units, spread(holders, from, min(from + 499, #holders)))
      for _, units in ipairs(some) do sum = sum + (tonumber(units) or 0) end
    end
    return sum
  end

  local function roll(p)
    p.ended = p.leased and call('ZRANGEBYSCORE', p.ends, '-inf', now) or {}
    p.ended_units = #p.ended > 0 and units_of(p, p.ended) or 0
    local last = call('ZREVRANGE', p.ends, 0, 0, 'WITHSCORES')
    p.newest = tonumber(last[2]) or 0
    if p.leased and p.newest <= now then p.newest = 0 end
    p.own, p.own_till = 0, 0
    local own = call('HGET', p.units, holder)
    if own then
      local till = tonumber(call('ZSCORE', p.ends, holder)) or 0
      if not p.leased or till > now then p.own, p.own_till = tonumber(own), till end
    end
    p.others = p.total - p.ended_units - p.own
  end

  -- When so many units of others will have ended, and how many that are then.
  local function leaving(p, units)
    if not p.leased or units <= 0 or units > p.others then return 0, 0 end
    local sum, from = 0, 0
    while true do
      local some = call('ZRANGEBYSCORE', p.ends, '(' .. string.format('%.0f', now), '+inf',
        'WITHSCORES', 'LIMIT', from, 100)
      if #some == 0 then return 0, 0 end
      for place = 1, #some, 2 do
        if some[place] ~= holder then
          sum = sum + (tonumber(call('HGET', p.units, some[place])) or 0)
          if sum >= units then return tonumber(some[place + 1]), sum end
        end
      end
      from = from + 100
    end
  end

  local function forget(p)
    call('DEL', p.key, p.units, p.ends)
  end

  local function drop(p, who)
    call('HDEL', p.units, who)
    call('ZREM', p.ends, who)
  end

  algorithms[6] = {
    keys = 3,
    read = function(p, pos)
      p.lease, p.cap, p.n, pos = unpack('<ddd', args, pos)
      p.leased = p.lease > 0
      return pos
    end,
    taking = function(pos)
      local taking = {}
      taking.holder, taking.n, pos = unpack('<c16d', args, pos)
      return taking, pos
    end,
    fresh = function(p)
      p.total, p.ended, p.ended_units, p.newest, p.own, p.own_till, p.others = 0, {}, 0, 0, 0, 0, 0
    end,
    load = function(p)
      p.total = unpack('<d', p.value, p.base + 1)
    end,
    roll = roll,
    fits = function(p)
      return p.others + p.n <= p.cap
    end,
    is_spent = function(p)
      local last = call('ZREVRANGE', p.ends, 0, 0, 'WITHSCORES')
      return not last[2] or (p.leased and tonumber(last[2]) <= now)
    end,
    summary = function(p, _, asked)
      local till, units = 0, 0
      if asked and asked <= p.cap then till, units = leaving(p, p.others + asked - p.cap) end
      return pack('<dddddd', p.own, p.own_till, p.others, p.newest, till, units)
    end,
    take = function(p)
      p.takes = true
    end,
    -- All that the holder has, however much is asked for.
    refund = function(p)
      local own = call('HGET', p.units, holder)
      if not own then return end
      drop(p, holder)
      p.total = p.total - tonumber(own)
    end,
    give_back = function(p, taking)
      local own = tonumber(call('HGET', p.units, taking.holder))
      if not own then return end
      local left = max(own - taking.n, 0)
      if left == 0 then drop(p, taking.holder) else call('HSET', p.units, taking.holder, left) end
      p.total = p.total - own + left
    end,
    write = function(p)
      if p.takes then
        if not p.value then call('DEL', p.units, p.ends) end
        for _, who in ipairs(p.ended) do drop(p, who) end
        -- Leases end in the order they were given: a clock that went back cuts none short.
        local till = max(p.leased and now + p.lease or NEVER, p.newest)
        call('HSET', p.units, holder, p.n)
        call('ZADD', p.ends, till, holder)
        p.total = p.others + p.n
      end
      local last = call('ZREVRANGE', p.ends, 0, 0, 'WITHSCORES')
      local till = p.leased and tonumber(last[2]) or NEVER
      set(p.key, p.tag .. pack('<d', p.total), till)
      expire(p.units, till)
      expire(p.ends, till)
    end,
    forget = forget,
  }
end
