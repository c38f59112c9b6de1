-- What is the same for all algorithms: reading the request, deciding on the whole, and writing.

-- Flags: other slots have a say too, so that quotas are not decided here; a refusal writes nothing.
local APART, ONLY_IF_ALLOWED = 1, 2
-- An episode that is over, but whose key has not been replenished yet.
local OVER = 1
local NO_STATE = '\0'

-- What the script does beside deciding, on the three keys that a limit may have.
if op == PROBE then
  call('SET', KEYS[1], '', 'PX', 1000)
  return pack('<Bd', 1, now)
end

local holders_of
if op == DUMP or op == SWAP then
  -- All holders of permits, in the order of their leases.
  function holders_of(units, ends)
    local found, all = call('ZRANGE', ends, 0, -1, 'WITHSCORES'), {}
    for place = 1, #found, 2 do
      local who = found[place]
      all[#all + 1] = pack('<c16dd', who, tonumber(call('HGET', units, who)) or 0,
        tonumber(found[place + 1]))
    end
    return concat(all)
  end
end

if op == DUMP then
  local value = call('GET', KEYS[1]) or ''
  return pack('<BdI4', 1, now, #value) .. value .. holders_of(KEYS[2], KEYS[3])
end

-- Puts another value in the place of one that nobody has changed since it was read.
if op == SWAP then
  local till, had_holders, length
  till, had_holders, length, pos = unpack('<dBI4', args, pos)
  local old = sub(args, pos, pos + length - 1)
  pos = pos + length
  length, pos = unpack('<I4', args, pos)
  local old_holders = sub(args, pos, pos + length - 1)
  pos = pos + length
  length, pos = unpack('<I4', args, pos)
  local new = sub(args, pos, pos + length - 1)
  pos = pos + length
  if (call('GET', KEYS[1]) or '') ~= old then return pack('<Bd', 0, now) end
  if had_holders == 1 and holders_of(KEYS[2], KEYS[3]) ~= old_holders then
    return pack('<Bd', 0, now)
  end
  if had_holders == 1 or pos <= #args then call('DEL', KEYS[2], KEYS[3]) end
  if new == '' then
    call('DEL', KEYS[1])
    return pack('<Bd', 1, now)
  end
  set(KEYS[1], new, till)
  while pos <= #args do
    local who, units, ends
    who, units, ends, pos = unpack('<c16dd', args, pos)
    call('HSET', KEYS[2], who, units)
    call('ZADD', KEYS[3], ends, who)
    if pos > #args then
      expire(KEYS[2], till)
      expire(KEYS[3], till)
    end
  end
  return pack('<Bd', 1, now)
end

if op == RESET then
  -- The limit may have been another once, so all that it may have left behind goes.
  for place = 1, #KEYS, 3 do
    local first = call('GETRANGE', KEYS[place], 0, 0)
    if first ~= '' and first ~= '\1' then
      return pack('<BdH', 2, now, (place - 1) / 3) .. call('GET', KEYS[place])
    end
  end
  call('DEL', spread(KEYS))
  return pack('<Bd', 1, now)
end

-- Groups of items: the first for those that are enforced, then one for each quota.
local admits = {}
for group = 0, quotas do
  admits[group], pos = unpack('<B', args, pos)
  admits[group] = admits[group] == 1
end

local parts, plain, next_key = {}, {}, 1
for index = 1, count do
  local kind, asks, counts, first_sight, span, tag, groups
  kind, asks, counts, first_sight, span, tag, pos = unpack('<BBBBdBc0', args, pos)
  local algorithm = algorithms[kind]
  -- Named here, so that the table is made as large as it will be at once.
  local p = { algorithm = algorithm, key = KEYS[next_key], tag = tag, base = #tag, value = false,
    asks = asks, counts = counts, first_sight = first_sight, span = span, episode = 0,
    fits = false, unseen = false, groups = false, n = nil, t = 0, cq = 0, cr = 0, dq = 0, dr = 0 }
  pos = algorithm.read(p, pos)
  if algorithm.keys then
    p.units, p.ends = KEYS[next_key + 1], KEYS[next_key + 2]
    next_key = next_key + 3
  else
    next_key = next_key + 1
  end
  groups, pos = unpack('<H', args, pos)
  p.groups = {}
  for place = 1, groups do p.groups[place], pos = unpack('<H', args, pos) end
  if op == GIVE_BACK or op == UNDO then
    local takings
    takings, pos = unpack('<H', args, pos)
    p.takings = {}
    for place = 1, takings do p.takings[place], pos = algorithm.taking(pos) end
  end
  if op == UNDO then p.till, p.after, p.before, pos = unpack('<dBc0Bc0', args, pos) end
  parts[index] = p
  if not algorithm.find then plain[#plain + 1] = p.key end
end

-- What is stored. A value under another tag belongs to another limit, and is not for this one to
-- understand.
local values = #plain > 1 and call('MGET', spread(plain)) or { plain[1] and call('GET', plain[1]) }
local next_value = 1
for index, p in ipairs(parts) do
  if p.algorithm.find then
    p.value = p.algorithm.find(p)
  else
    p.value, next_value = values[next_value], next_value + 1
  end
  if p.value and sub(p.value, 1, p.base) ~= p.tag then
    return pack('<BdH', 2, now, index - 1) .. call('GET', p.key)
  end
end

-- The state as it is stored, or that of a new key.
local function load_state(p)
  if not p.value then
    p.algorithm.fresh(p)
    return
  end
  p.algorithm.load(p)
  if p.span > 0 then p.episode = unpack('<d', p.value, #p.value - 7) end
end

-- Brings it to now, and forgets an episode that full replenishment has ended.
local function roll(p)
  local algorithm = p.algorithm
  if not p.value then return end
  if p.episode ~= 0 and algorithm.is_spent(p) then p.episode = 0 end
  algorithm.roll(p)
  if p.episode ~= 0 and algorithm.is_full(p) then p.episode = 0 end
end

local function body(p)
  return p.algorithm.save(p) .. (p.span > 0 and pack('<d', p.episode) or '')
end

local function save(p)
  local algorithm = p.algorithm
  if algorithm.find then
    algorithm.write(p, algorithm.save(p) .. pack('<d', p.episode), algorithm.till(p))
  elseif algorithm.write then
    algorithm.write(p)
  else
    set(p.key, p.tag .. body(p), algorithm.till(p))
  end
end

local function forget(p)
  if p.algorithm.forget then p.algorithm.forget(p) else call('DEL', p.key) end
end

-- Uses the units. The first above a soft limit opens an episode; one that is over stays as a mark,
-- so that a clock that goes back does not open it again.
local function take(p)
  p.algorithm.take(p)
  if p.span == 0 then return end
  if p.episode == 0 then
    if not p.algorithm.within(p) then p.episode = now + p.span + 1 end
  elseif now >= p.episode - 1 then
    p.episode = OVER
  end
end

-- For the reply: the state that was found. Of lists, what the answer needs when `adding` units are
-- added and `asked` do not fit.
local function found(p, adding, asked)
  if not p.value then return NO_STATE end
  local summary = p.algorithm.summary
  local state = summary and summary(p, adding, asked) or sub(p.value, p.base + 1)
  return pack('<B', #state) .. state
end

local reply = { '' }
local function tell(p, state)
  reply[#reply + 1] = p.fits and '\1' or '\0'
  reply[#reply + 1] = state
end

if op == CHECK or op == PEEK or op == FORCE then
  for _, p in ipairs(parts) do
    load_state(p)
    local first_sight = p.first_sight == 1
    p.unseen = first_sight and (not p.value or p.algorithm.is_spent(p))
    roll(p)
    local soft = p.span > 0 and (p.episode == 0 or now < p.episode - 1)
    p.fits = op == FORCE or p.asks == 0 or p.algorithm.fits(p, soft)
    if not p.fits then
      for _, group in ipairs(p.groups) do admits[group] = false end
    end
  end
  local allowed = admits[0]
  if allowed and quotas > 0 and band(flags, APART) == 0 then
    allowed = false
    for quota = 1, quotas do allowed = allowed or admits[quota] end
  end
  local writes = op ~= PEEK and (allowed or band(flags, ONLY_IF_ALLOWED) == 0)
  for _, p in ipairs(parts) do
    if p.asks == 0 or not writes then
      tell(p, found(p, 0, not p.fits and p.n))
    elseif op == FORCE then
      tell(p, found(p, p.n, 0))
      take(p)
      save(p)
    elseif p.fits and (allowed or p.counts == 1) then
      tell(p, found(p))
      take(p)
      save(p)
    elseif p.counts == 1 then
      -- Counted, but not an admission, so it opens no episode.
      tell(p, found(p, p.n, p.n))
      p.algorithm.take(p)
      save(p)
    else
      tell(p, found(p, 0, not p.fits and p.n))
      if p.unseen then
        p.algorithm.fresh(p)
        p.episode = 0
        save(p)
      end
    end
  end
  reply[1] = pack('<Bd', allowed and 1 or 0, now)
  return concat(reply)
end

-- Giving back: replies carry the state afterwards.
local function is_gone(p)
  if not p.value then return true end
  if not p.algorithm.is_spent(p) then return false end
  forget(p)
  p.value = false
  return true
end

local function afterwards(p)
  local algorithm = p.algorithm
  if not p.value then return NO_STATE end
  if algorithm.keys then algorithm.roll(p) end
  local state = algorithm.summary and algorithm.summary(p) or body(p)
  return pack('<B', #state) .. state
end

-- Puts back what was there, if nobody has changed it since. Whether it was so.
local function restore(p)
  if p.algorithm.keys then
    local units, till = call('HGET', p.units, holder), call('ZSCORE', p.ends, holder)
    if not units or pack('<dd', units, till) ~= p.after then return false end
    load_state(p)
    call('HDEL', p.units, holder)
    call('ZREM', p.ends, holder)
    p.total = p.total - units
    if p.before ~= '' then
      units, till = unpack('<dd', p.before)
      call('HSET', p.units, holder, units)
      call('ZADD', p.ends, till, holder)
      p.total = p.total + units
    end
    if not is_gone(p) then save(p) end
    return true
  end
  if p.after == '' or p.value ~= p.tag .. p.after then return false end
  if p.before == '' then call('DEL', p.key) else set(p.key, p.tag .. p.before, p.till) end
  return true
end

for _, p in ipairs(parts) do
  local holds = p.algorithm.keys
  if op == UNDO and p.value and restore(p) then
    tell(p, NO_STATE)
  elseif op == REFUND and p.asks == 0 and not holds or op ~= REFUND and #p.takings == 0 then
    load_state(p)
    roll(p)
    tell(p, found(p, 0))
  else
    if p.value then load_state(p) end
    if not is_gone(p) then
      roll(p)
      if op == REFUND then
        p.algorithm.refund(p)
      elseif op ~= UNDO or not holds or p.before == '' then
        -- Permits that were held before the request are not given back with it.
        for _, taking in ipairs(p.takings) do p.algorithm.give_back(p, taking) end
      end
      if not is_gone(p) then save(p) end
    end
    tell(p, afterwards(p))
  end
end
reply[1] = pack('<Bd', 1, now)
return concat(reply)
