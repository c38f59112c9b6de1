//! Commands and replies as they go over the wire (RESP2).

use bytes::{Buf as _, Bytes, BytesMut};

use super::{ClientError, Reply};

/// Replies are short. One that is longer than this is no answer to anything that we ask.
const REPLY_LEN_MAX: usize = 32 << 20;
/// A line: an error, a number, a length.
const LINE_LEN_MAX: usize = 64 << 10;
/// Arrays in arrays.
const DEPTH_MAX: u32 = 8;

/// What came is not RESP2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply is not one of Redis: {0}")]
pub(super) struct Garbled(&'static str);

/// A command, encoded.
pub(super) fn encoded(words: &[&[u8]]) -> Vec<u8> {
    let len = words.iter().map(|word| word.len() + 16).sum::<usize>() + 16;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Takes replies from what has come in so far.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// It makes no sense to look before so much is there.
    needed: usize,
}

impl Parser {
    /// Takes the first reply off the buffer; `None` if not all of it is there.
    pub(super) fn take(
        &mut self,
        buffer: &mut BytesMut,
    ) -> Result<Option<Result<Reply, ClientError>>, Garbled> {
        if buffer.len() < self.needed.max(1) {
            return Ok(None);
        }
        // Nearly all replies are one string.
        if buffer.first() == Some(&b'$')
            && let Some((len, start)) = line(buffer, 0)?
            && let Some(len) = length(len)?
        {
            let end = start + len + 2;
            if buffer.len() < end {
                self.needed = end;
                return Ok(None);
            }
            self.needed = 0;
            buffer.advance(start);
            let text = buffer.split_to(len).freeze();
            if buffer.get(..2) != Some(b"\r\n".as_slice()) {
                return Err(Garbled("a string is longer than it says"));
            }
            buffer.advance(2);
            return Ok(Some(Ok(Reply::Bulk(text))));
        }
        match end_of(buffer, 0, 0)? {
            End::At(end) => {
                self.needed = 0;
                let bytes = buffer.split_to(end).freeze();
                build(&bytes, &mut 0).map(Some)
            }
            End::Needs(len) if len > REPLY_LEN_MAX => Err(Garbled("it is too long")),
            End::Needs(len) => {
                self.needed = len;
                Ok(None)
            }
        }
    }
}

/// Where a reply ends, or how much has to be there to say more.
enum End {
    At(usize),
    Needs(usize),
}

fn end_of(bytes: &[u8], from: usize, depth: u32) -> Result<End, Garbled> {
    let needs_more = Ok(End::Needs(bytes.len() + 1));
    let Some(kind) = bytes.get(from) else { return needs_more };
    if !b"+-:$*".contains(kind) {
        return Err(Garbled("it is of no known kind"));
    }
    let Some((text, start)) = line(bytes, from)? else { return needs_more };
    match kind {
        b'$' => match length(text)? {
            None => Ok(End::At(start)),
            Some(len) if start + len + 2 <= bytes.len() => Ok(End::At(start + len + 2)),
            Some(len) => Ok(End::Needs(start + len + 2)),
        },
        b'*' => {
            if depth >= DEPTH_MAX {
                return Err(Garbled("its arrays are too deep"));
            }
            let mut at = start;
            for _ in 0..length(text)?.unwrap_or(0) {
                match end_of(bytes, at, depth + 1)? {
                    End::At(end) => at = end,
                    needs => return Ok(needs),
                }
            }
            Ok(End::At(at))
        }
        _ => Ok(End::At(start)),
    }
}

/// Makes the reply at `at`, all of which is there. An error within an array is that of the whole.
fn build(bytes: &Bytes, at: &mut usize) -> Result<Result<Reply, ClientError>, Garbled> {
    const SHORT: Garbled = Garbled("it ends too early");
    let kind = *bytes.get(*at).ok_or(SHORT)?;
    let (text, start) = line(bytes, *at)?.ok_or(SHORT)?;
    let text_at = *at + 1..*at + 1 + text.len();
    *at = start;
    Ok(Ok(match kind {
        b'+' => Reply::Bulk(bytes.slice(text_at)),
        b'-' => return Ok(Err(ClientError::Reply(String::from_utf8_lossy(text).into_owned()))),
        b':' => Reply::Integer(number(text)?),
        b'$' => match length(text)? {
            None => Reply::Null,
            Some(len) => {
                *at = start + len + 2;
                if bytes.get(start + len..*at) != Some(b"\r\n".as_slice()) {
                    return Err(Garbled("a string is longer than it says"));
                }
                Reply::Bulk(bytes.slice(start..start + len))
            }
        },
        _ => match length(text)? {
            None => Reply::Null,
            Some(len) => {
                // Each takes three bytes at least.
                let mut all = Vec::with_capacity(len.min(bytes.len() / 3));
                let mut error = None;
                for _ in 0..len {
                    match build(bytes, at)? {
                        Ok(reply) => all.push(reply),
                        Err(found) => error = error.or(Some(found)),
                    }
                }
                match error {
                    None => Reply::Array(all),
                    Some(error) => return Ok(Err(error)),
                }
            }
        },
    }))
}

/// The line that begins at `from`, without its kind, and where the next thing begins.
fn line(bytes: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, Garbled> {
    let rest = bytes.get(from + 1..).unwrap_or_default();
    let seen = rest.get(..LINE_LEN_MAX).unwrap_or(rest);
    match seen.iter().position(|byte| *byte == b'\r') {
        Some(len) => match rest.get(len + 1) {
            None => Ok(None),
            Some(b'\n') => Ok(Some((rest.get(..len).unwrap_or_default(), from + len + 3))),
            Some(_) => Err(Garbled("a line ends without a line feed")),
        },
        None if seen.len() == LINE_LEN_MAX => Err(Garbled("a line is too long")),
        None => Ok(None),
    }
}

/// A length; `None` for -1, which is nothing at all.
fn length(text: &[u8]) -> Result<Option<usize>, Garbled> {
    match number(text)? {
        -1 => Ok(None),
        n => match usize::try_from(n) {
            Ok(n) if n <= REPLY_LEN_MAX => Ok(Some(n)),
            _ => Err(Garbled("a length is out of bounds")),
        },
    }
}

fn number(text: &[u8]) -> Result<i64, Garbled> {
    const WRONG: Garbled = Garbled("a number is none");
    let (digits, sign) = match text.split_first() {
        Some((b'-', digits)) => (digits, -1),
        _ => (text, 1),
    };
    if digits.is_empty() {
        return Err(WRONG);
    }
    digits.iter().try_fold(0_i64, |n, byte| {
        let digit = char::from(*byte).to_digit(10).ok_or(WRONG)?;
        n.checked_mul(10).and_then(|n| n.checked_add(sign * i64::from(digit))).ok_or(WRONG)
    })
}
