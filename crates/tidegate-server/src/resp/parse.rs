//! From bytes to commands, without copying them.
//!
//! A command is an array of bulk strings, or a line of words for people who type. The parser looks at
//! what has arrived and says whether there is a command at its beginning; it keeps nothing, so that
//! bytes may come in any pieces.

use smallvec::SmallVec;

/// How many bytes a command that is typed as a line may have.
pub(crate) const INLINE_MAX: usize = 64 * 1024;
/// How many bytes a command may have altogether.
pub(crate) const COMMAND_MAX: usize = 64 * 1024;
/// How many bytes one argument may have.
pub(crate) const BULK_MAX: usize = 16 * 1024;
/// How many arguments a command may have, its name among them.
pub(crate) const ARGUMENTS_MAX: usize = 4096;
/// The same for those who have yet to say the password: enough to say it.
pub(crate) const STRANGER_BULK_MAX: usize = 1024;
pub(crate) const STRANGER_ARGUMENTS_MAX: usize = 16;
/// How many bytes the number after `*` or `$` may have.
const NUMBER_MAX: usize = 32;

/// The words of a command, the first of which is its name.
pub(crate) type Words<'a> = SmallVec<[&'a [u8]; 8]>;

/// What is at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed<'a> {
    /// A command of so many bytes.
    Command(usize, Words<'a>),
    /// A command with quotes, which are undone here.
    Quoted(usize, Vec<Vec<u8>>),
    /// So many bytes that ask for nothing.
    Nothing(usize),
    /// The beginning of a command, of which nothing more can be said before there are so many bytes.
    Partial(usize),
}

/// Bytes that are no command. There is no telling where the next one would begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Garbled {
    InlineTooLong,
    Unbalanced,
    CountTooLong,
    Count,
    StrangerCount,
    LengthTooLong,
    Length,
    StrangerLength,
    NoBulk(u8),
    NoEnd,
    CommandTooLong,
}

impl Garbled {
    /// What the client is told, in Redis's words where Redis has some.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let text: &[u8] = match self {
            Self::InlineTooLong => b"too big inline request",
            Self::Unbalanced => b"unbalanced quotes in request",
            Self::CountTooLong => b"too big mbulk count string",
            Self::Count => b"invalid multibulk length",
            Self::StrangerCount => b"unauthenticated multibulk length",
            Self::LengthTooLong => b"too big bulk count string",
            Self::Length => b"invalid bulk length",
            Self::StrangerLength => b"unauthenticated bulk length",
            Self::NoBulk(_) => b"expected '$', got '",
            Self::NoEnd => b"expected the end of a bulk string",
            Self::CommandTooLong => b"too big command",
        };
        out.extend_from_slice(b"-ERR Protocol error: ");
        out.extend_from_slice(text);
        if let Self::NoBulk(byte) = self {
            out.push(if byte.is_ascii_graphic() { byte } else { b' ' });
            out.push(b'\'');
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Looks for a command at the beginning of `bytes`.
#[inline]
pub(crate) fn parse(bytes: &[u8], is_stranger: bool) -> Result<Parsed<'_>, Garbled> {
    match bytes.first() {
        None => Ok(Parsed::Partial(1)),
        Some(b'*') => parse_array(bytes, is_stranger),
        Some(_) => parse_line(bytes),
    }
}

fn parse_array(bytes: &[u8], is_stranger: bool) -> Result<Parsed<'_>, Garbled> {
    let (count, mut at) = match number(bytes, 1) {
        Number::Is(count, end) => (count, end),
        Number::Partial => return Ok(Parsed::Partial(bytes.len() + 1)),
        Number::TooLong => return Err(Garbled::CountTooLong),
        Number::Not => return Err(Garbled::Count),
    };
    let count = match usize::try_from(count) {
        Ok(0) => return Ok(Parsed::Nothing(at)),
        Ok(count) if count > ARGUMENTS_MAX => return Err(Garbled::Count),
        Ok(count) if is_stranger && count > STRANGER_ARGUMENTS_MAX => {
            return Err(Garbled::StrangerCount);
        }
        Ok(count) => count,
        // An array that is none, as Redis takes it.
        Err(_) => return Ok(Parsed::Nothing(at)),
    };
    let bulk_max = if is_stranger { STRANGER_BULK_MAX } else { BULK_MAX };
    let mut words = Words::new();
    fits(at, count)?;
    for left in (0..count).rev() {
        match bytes.get(at) {
            Some(b'$') => {}
            Some(other) => return Err(Garbled::NoBulk(*other)),
            None => return Ok(Parsed::Partial(at + 1)),
        }
        let (length, start) = match number(bytes, at + 1) {
            Number::Is(length, end) => (length, end),
            Number::Partial => return Ok(Parsed::Partial(bytes.len() + 1)),
            Number::TooLong => return Err(Garbled::LengthTooLong),
            Number::Not => return Err(Garbled::Length),
        };
        let length = match usize::try_from(length) {
            Ok(length) if length <= bulk_max => length,
            Ok(length) if is_stranger && length <= BULK_MAX => return Err(Garbled::StrangerLength),
            _ => return Err(Garbled::Length),
        };
        let end = start + length;
        fits(end + 2, left)?;
        let Some(after) = bytes.get(end..end + 2) else { return Ok(Parsed::Partial(end + 2)) };
        if after != b"\r\n" {
            return Err(Garbled::NoEnd);
        }
        words.push(&bytes[start..end]);
        at = end + 2;
    }
    Ok(Parsed::Command(at, words))
}

/// Whether a command may be as long as one at the least is that goes on with so many arguments at
/// `end`.
#[inline]
fn fits(end: usize, arguments: usize) -> Result<(), Garbled> {
    /// The shortest argument: `$0`, and twice the end of a line.
    const ARGUMENT_MIN: usize = 6;
    if end + arguments * ARGUMENT_MIN > COMMAND_MAX { Err(Garbled::CommandTooLong) } else { Ok(()) }
}

enum Number {
    /// A number, and where what follows it begins.
    Is(i64, usize),
    Partial,
    TooLong,
    Not,
}

/// The number that begins at `start` and ends with its line.
#[inline]
fn number(bytes: &[u8], start: usize) -> Number {
    let line = &bytes[start..];
    // Nearly all numbers have a digit or two.
    match line {
        [a @ b'0'..=b'9', b'\r', b'\n', ..] => return Number::Is(i64::from(a - b'0'), start + 3),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Number::Is(i64::from(a - b'0') * 10 + i64::from(b - b'0'), start + 4);
        }
        _ => {}
    }
    let window = &line[..line.len().min(NUMBER_MAX + 2)];
    let Some(end) = window.iter().position(|byte| *byte == b'\r') else {
        return if line.len() > NUMBER_MAX { Number::TooLong } else { Number::Partial };
    };
    if end > NUMBER_MAX {
        return Number::TooLong;
    }
    match line.get(end + 1) {
        None => Number::Partial,
        Some(b'\n') => {
            integer(&line[..end]).map_or(Number::Not, |number| Number::Is(number, start + end + 2))
        }
        Some(_) => Number::Not,
    }
}

/// A decimal number as Redis reads it: no plus, no zeros before, nothing around.
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [] => return None,
        [b'0'] if is_negative => return None,
        [b'0', _, ..] => return None,
        _ => {}
    }
    let mut value = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        let digit = i64::from(digit - b'0');
        value = value.checked_mul(10)?;
        // Downwards, where there is one more.
        value = if is_negative { value.checked_sub(digit)? } else { value.checked_add(digit)? };
    }
    Some(value)
}

fn parse_line(bytes: &[u8]) -> Result<Parsed<'_>, Garbled> {
    let window = &bytes[..bytes.len().min(INLINE_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return match bytes.len() >= INLINE_MAX {
            true => Err(Garbled::InlineTooLong),
            false => Ok(Parsed::Partial(bytes.len() + 1)),
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        return unquote(line).map(|words| match words.is_empty() {
            true => Parsed::Nothing(end + 1),
            false => Parsed::Quoted(end + 1, words),
        });
    }
    let words: Words<'_> =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    match words.len() {
        0 => Ok(Parsed::Nothing(end + 1)),
        count if count > ARGUMENTS_MAX => Err(Garbled::Count),
        _ => Ok(Parsed::Command(end + 1, words)),
    }
}

/// The words of a line with quotes: `"a\x20\n"` with escapes, `'a\'b'` without.
fn unquote(line: &[u8]) -> Result<Vec<Vec<u8>>, Garbled> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [first, more @ ..] = rest
            && first.is_ascii_whitespace()
        {
            rest = more;
        }
        if rest.is_empty() {
            return Ok(words);
        }
        if words.len() == ARGUMENTS_MAX {
            return Err(Garbled::Count);
        }
        let mut word = Vec::new();
        loop {
            match rest {
                [] => break,
                [first, ..] if first.is_ascii_whitespace() => break,
                [quote @ (b'"' | b'\''), more @ ..] => {
                    rest = quoted(*quote, more, &mut word)?;
                    // A quote ends its word.
                    if rest.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                        return Err(Garbled::Unbalanced);
                    }
                }
                [byte, more @ ..] => {
                    word.push(*byte);
                    rest = more;
                }
            }
        }
        words.push(word);
    }
}

/// Adds what stands before the closing quote, and gives what is after it.
fn quoted<'a>(quote: u8, text: &'a [u8], word: &mut Vec<u8>) -> Result<&'a [u8], Garbled> {
    let mut rest = text;
    loop {
        rest = match rest {
            [] => return Err(Garbled::Unbalanced),
            [byte, more @ ..] if *byte == quote => return Ok(more),
            [b'\\', b'\'', more @ ..] if quote == b'\'' => {
                word.push(b'\'');
                more
            }
            [b'\\', b'x', high, low, more @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) << 4 | hex(*low));
                more
            }
            [b'\\', escaped, more @ ..] if quote == b'"' => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                more
            }
            [byte, more @ ..] => {
                word.push(*byte);
                more
            }
        };
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        other => other.to_ascii_lowercase().wrapping_sub(b'a').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests;
