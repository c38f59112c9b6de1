-- Integers of any size, as digits of 24 bits, the lowest first; for what squares need.
local wide, wide_at, plus, minus, times, is_below, divide, as_number
if band(kinds, 64) ~= 0 then
  local DIGIT = 16777216

  -- Of a number that is whole, however large: scaling by a power of two is exact.
  function wide(number)
    local digits = {}
    repeat
      local rest = floor(number / DIGIT)
      digits[#digits + 1] = number - rest * DIGIT
      number = rest
    until number == 0
    return digits
  end

  -- As the request brings it: how many digits, and they.
  function wide_at(pos)
    local length
    length, pos = unpack('<B', args, pos)
    local digits = {}
    for place = 1, length do digits[place], pos = unpack('<I3', args, pos) end
    return digits, pos
  end

  local function trim(digits)
    while #digits > 1 and digits[#digits] == 0 do digits[#digits] = nil end
    return digits
  end

  function plus(a, b)
    local sum, carry = {}, 0
    for place = 1, max(#a, #b) do
      local digit = (a[place] or 0) + (b[place] or 0) + carry
      carry = digit >= DIGIT and 1 or 0
      sum[place] = digit - carry * DIGIT
    end
    if carry > 0 then sum[#sum + 1] = carry end
    return sum
  end

  function is_below(a, b)
    if #a ~= #b then return #a < #b end
    for place = #a, 1, -1 do
      if a[place] ~= b[place] then return a[place] < b[place] end
    end
    return false
  end

  -- Zero if there is less than nothing left.
  function minus(a, b)
    if is_below(a, b) then return { 0 } end
    local rest, borrow = {}, 0
    for place = 1, #a do
      local digit = a[place] - (b[place] or 0) - borrow
      borrow = digit < 0 and 1 or 0
      rest[place] = digit + borrow * DIGIT
    end
    return trim(rest)
  end

  -- Of at most 32 digits each, so that sums of products stay below 2^53.
  function times(a, b)
    local product = {}
    for place = 1, #a + #b do product[place] = 0 end
    for i = 1, #a do
      for j = 1, #b do product[i + j - 1] = product[i + j - 1] + a[i] * b[j] end
    end
    local carry = 0
    for place = 1, #product do
      local digit = product[place] + carry
      carry = floor(digit / DIGIT)
      product[place] = digit - carry * DIGIT
    end
    return trim(product)
  end

  -- To the nearest that a double can tell.
  function as_number(digits)
    local number = 0
    for place = #digits, 1, -1 do number = number * DIGIT + digits[place] end
    return number
  end

  -- Rounded down, and the rest. Guesses are a little too small, and what they leave is divided again.
  function divide(a, b)
    local quotient, rest, divisor = { 0 }, a, as_number(b)
    while not is_below(rest, b) do
      local guess = wide(max(floor(as_number(rest) / divisor * (1 - 2 ^ -40)), 1))
      quotient, rest = plus(quotient, guess), minus(rest, times(guess, b))
    end
    return quotient, rest
  end
end
