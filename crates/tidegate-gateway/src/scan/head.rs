//! The head of a request, read strictly.

use memchr::{memchr, memchr3};

use super::{Fault, Sizes};

const LINE_END: &[u8] = b"\r\n";
/// How many headers a request may have: as many as the parser behind this takes.
const HEADERS_MAX: usize = 100;
/// How many empty lines may stand before a request.
const EMPTY_LINES_MAX: usize = 4;

/// Where a head ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Not within what there is; nothing before `seen` has to be looked at again.
    NotYet { seen: usize },
    /// Behind its empty line. It begins behind the empty lines that stand before it.
    At { begin: usize, end: usize },
}

/// Finds the end of a head. All of its lines end as they should if there is one.
pub(super) fn end(bytes: &[u8], seen: usize, sizes: Sizes) -> Result<End, Fault> {
    let mut begin = 0;
    while bytes[begin..].starts_with(LINE_END) {
        begin += 2;
        if begin > 2 * EMPTY_LINES_MAX {
            return Err(Fault::RequestLine);
        }
    }
    let mut line = begin.max(seen);
    while let Some(length) = memchr(b'\n', &bytes[line..]) {
        let next = line + length + 1;
        if next - begin > sizes.head_max {
            return Err(too_large(&bytes[begin..], sizes));
        }
        if length == 0 || bytes[next - 2] != b'\r' {
            return Err(Fault::LineEnd);
        }
        if length == 1 {
            return Ok(End::At { begin, end: next });
        }
        line = next;
    }
    match bytes.len() - begin > sizes.head_max {
        true => Err(too_large(&bytes[begin..], sizes)),
        false => Ok(End::NotYet { seen: line }),
    }
}

/// What it is that is too large.
fn too_large(head: &[u8], sizes: Sizes) -> Fault {
    let first = head.iter().take(sizes.target_max + 64).position(|byte| *byte == b'\n');
    if first.is_none() { Fault::TargetTooLong } else { Fault::HeadTooLarge }
}

/// How the body of a request is told from what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Sized(u64),
    Chunked,
}

/// What has to be known of a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) framing: Framing,
    pub(super) has_upgrade: bool,
    /// Where it ends.
    pub(super) end: usize,
}

/// Reads a head, which anything may follow.
pub(super) fn check(bytes: &[u8], sizes: Sizes) -> Result<Head, Fault> {
    let (line, mut rest) = split_line(bytes)?;
    let is_current = check_request_line(line, sizes)?;
    let mut count = 0;
    let (mut hosts, mut length, mut is_chunked, mut has_upgrade) = (0, None, false, false);
    while !rest.starts_with(LINE_END) {
        count += 1;
        if count > HEADERS_MAX {
            return Err(Fault::HeadTooLarge);
        }
        let Header { name, value, after } = split_header(rest)?;
        rest = after;
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                hosts += 1;
                if hosts > 1 || !is_host(value) {
                    return Err(Fault::Host);
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect")
                && !value.eq_ignore_ascii_case(b"100-continue") =>
            {
                return Err(Fault::Expectation);
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => has_upgrade = is_current,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                // Two that agree are no harm, but nobody sends them.
                length = match length {
                    None => Some(parse_length(value)?),
                    Some(_) => return Err(Fault::Length),
                };
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if is_chunked || !is_current {
                    return Err(Fault::Length);
                }
                if !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Fault::Coding);
                }
                is_chunked = true;
            }
            _ => {}
        }
    }
    if hosts == 0 && is_current {
        return Err(Fault::Host);
    }
    let framing = match (is_chunked, length) {
        (true, Some(_)) => return Err(Fault::Length),
        (true, None) => Framing::Chunked,
        (false, Some(length)) => Framing::Sized(length),
        (false, None) => Framing::None,
    };
    let end = bytes.len() - rest.len() + LINE_END.len();
    Ok(Head { framing, has_upgrade, end })
}

/// What comes before the end of a line, and what follows it. A carriage return or a line feed alone would
/// be a line's end to somebody else, and a zero the end of all.
fn split_line(bytes: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let end = memchr3(b'\r', b'\n', 0, bytes).ok_or(Fault::LineEnd)?;
    match &bytes[end..] {
        [b'\r', b'\n', rest @ ..] => Ok((&bytes[..end], rest)),
        _ => Err(Fault::LineEnd),
    }
}

/// How many bytes from the first on may stand in a method or in the name of a header.
fn token_length(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !TOKEN[*byte as usize]).unwrap_or(bytes.len())
}

/// Whether it is of HTTP/1.1, rather than 1.0.
fn check_request_line(line: &[u8], sizes: Sizes) -> Result<bool, Fault> {
    let (method, rest) = line.split_at(token_length(line));
    let rest = rest.strip_prefix(b" ").filter(|_| !method.is_empty()).ok_or(Fault::RequestLine)?;
    let end = memchr(b' ', rest).ok_or(Fault::RequestLine)?;
    let (target, version) = (&rest[..end], &rest[end + 1..]);
    if version.contains(&b' ') {
        return Err(Fault::RequestLine);
    }
    if target.len() > sizes.target_max {
        return Err(Fault::TargetTooLong);
    }
    let is_current = match version {
        b"HTTP/1.1" => true,
        b"HTTP/1.0" => false,
        _ if version.starts_with(b"HTTP/") => return Err(Fault::Version),
        _ => return Err(Fault::RequestLine),
    };
    if method == b"CONNECT" {
        return Err(Fault::Connect);
    }
    check_target(method, target)?;
    Ok(is_current)
}

fn check_target(method: &[u8], target: &[u8]) -> Result<(), Fault> {
    if !target.iter().all(|byte| PLAIN_TARGET[*byte as usize]) {
        check_odd_target(target)?;
    }
    let scheme_end = match target {
        [b'/', ..] => return Ok(()),
        b"*" if method == b"OPTIONS" => return Ok(()),
        _ if starts_with(target, b"http://") => 7,
        _ if starts_with(target, b"https://") => 8,
        _ => return Err(Fault::Target),
    };
    let rest = &target[scheme_end..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
    match end > 0 && is_host(&rest[..end]) {
        true => Ok(()),
        false => Err(Fault::Target),
    }
}

/// Takes of a target what the parser behind this takes, and no fragment.
fn check_odd_target(target: &[u8]) -> Result<(), Fault> {
    let query = memchr(b'?', target).unwrap_or(target.len());
    let is_fine = |byte: &u8| *byte > b' ' && !matches!(byte, 0x7f | b'#' | b'<' | b'>');
    let is_text = target.is_ascii() || std::str::from_utf8(target).is_ok();
    if !target.iter().all(is_fine)
        || target[..query].contains(&b'`')
        || target[query..].contains(&b'"')
        || !is_text
    {
        return Err(Fault::Target);
    }
    Ok(())
}

fn starts_with(bytes: &[u8], start: &[u8]) -> bool {
    bytes.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

/// Whether it may be a host with or without a port. An empty one is one, as RFC 9112 has it.
fn is_host(value: &[u8]) -> bool {
    value.iter().all(|byte| HOST[*byte as usize])
}

/// A header, and what follows its line.
struct Header<'a> {
    name: &'a [u8],
    value: &'a [u8],
    after: &'a [u8],
}

fn split_header(bytes: &[u8]) -> Result<Header<'_>, Fault> {
    if matches!(bytes.first(), Some(b' ' | b'\t')) {
        return Err(Fault::Folded);
    }
    let (name, rest) = bytes.split_at(token_length(bytes));
    let value = rest.strip_prefix(b":").filter(|_| !name.is_empty()).ok_or(Fault::Header)?;
    let (value, after) = split_line(value)?;
    Ok(Header { name, value: trim(value), after })
}

/// Without the white space around it: spaces and tabs, and nothing else that others might trim.
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Digits and nothing else, as many as there is sense in.
fn parse_length(value: &[u8]) -> Result<u64, Fault> {
    if value.is_empty() || value.len() > 18 {
        return Err(Fault::Length);
    }
    value.iter().try_fold(0u64, |length, byte| match byte {
        b'0'..=b'9' => Ok(length * 10 + u64::from(byte - b'0')),
        _ => Err(Fault::Length),
    })
}

/// What may stand in a method or in the name of a header.
const TOKEN: [bool; 256] = alphanumeric_and(b"!#$%&'*+-.^_`|~");
/// What may stand in a host with a port.
const HOST: [bool; 256] = alphanumeric_and(b"-._~!$&'()*+,;=:[]%");
/// What may stand anywhere in a target.
const PLAIN_TARGET: [bool; 256] = alphanumeric_and(b"-._~!$&'()*+,;=:@/?%[]{}|^\\");

/// A table of letters, digits, and some others.
const fn alphanumeric_and(others: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        table[others[at] as usize] = true;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_plain_in_a_target_is_fine_everywhere_in_it() {
        let plain: Vec<u8> = (0..=255).filter(|byte| PLAIN_TARGET[*byte as usize]).collect();
        assert!(plain.len() > 80);
        for byte in plain {
            for target in [&[b'/', byte][..], &[b'/', b'?', byte]] {
                assert_eq!(check_odd_target(target), Ok(()), "{}", byte as char);
            }
        }
    }
}
