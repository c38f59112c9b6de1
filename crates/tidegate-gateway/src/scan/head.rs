//! The head of a request, read strictly.

use super::{Fault, Sizes};

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
    while bytes[begin..].starts_with(b"\r\n") {
        begin += 2;
        if begin > 2 * EMPTY_LINES_MAX {
            return Err(Fault::RequestLine);
        }
    }
    let mut line = begin.max(seen);
    while let Some(length) = bytes[line..].iter().position(|byte| *byte == b'\n') {
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
}

/// Reads a head, all of whose lines end as they should.
pub(super) fn check(head: &[u8], sizes: Sizes) -> Result<Head, Fault> {
    let (line, mut rest) = split_line(head).ok_or(Fault::LineEnd)?;
    let is_current = check_request_line(line, sizes)?;
    let mut count = 0;
    let (mut hosts, mut length, mut is_chunked, mut has_upgrade) = (0, None, false, false);
    while let Some((line, after)) = split_line(rest) {
        rest = after;
        if line.is_empty() {
            break;
        }
        count += 1;
        if count > HEADERS_MAX {
            return Err(Fault::HeadTooLarge);
        }
        let (name, value) = split_header(line)?;
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
    Ok(Head { framing, has_upgrade })
}

/// A line without its end, and what follows. A carriage return elsewhere is no line's end, and
/// makes the line wrong.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes[..end].strip_suffix(b"\r")?, &bytes[end + 1..]))
}

/// Whether it is of HTTP/1.1, rather than 1.0.
fn check_request_line(line: &[u8], sizes: Sizes) -> Result<bool, Fault> {
    let mut parts = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Fault::RequestLine);
    };
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
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
    // What the parser behind this takes, and no fragment.
    let query = target.iter().position(|byte| *byte == b'?').unwrap_or(target.len());
    let is_fine = |byte: &u8| *byte > b' ' && !matches!(byte, 0x7f | b'#' | b'<' | b'>');
    let is_text = target.is_ascii() || std::str::from_utf8(target).is_ok();
    if !target.iter().all(is_fine)
        || target[..query].contains(&b'`')
        || target[query..].contains(&b'"')
        || !is_text
    {
        return Err(Fault::Target);
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

fn starts_with(bytes: &[u8], start: &[u8]) -> bool {
    bytes.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

/// Whether it may be a host with or without a port. An empty one is one, as RFC 9112 has it.
fn is_host(value: &[u8]) -> bool {
    let is_in = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(byte);
    value.iter().all(is_in)
}

fn split_header(line: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    if matches!(line[0], b' ' | b'\t') {
        return Err(Fault::Folded);
    }
    let colon = line.iter().position(|byte| *byte == b':').ok_or(Fault::Header)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
        return Err(Fault::Header);
    }
    // A lone carriage return would be a line's end to somebody else.
    if value.iter().any(|byte| matches!(byte, b'\r' | 0)) {
        return Err(Fault::LineEnd);
    }
    Ok((name, trim(value)))
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

/// Whether a byte may stand in a method or in the name of a header.
fn is_token(byte: u8) -> bool {
    const TABLE: [bool; 256] = {
        let mut table = [false; 256];
        let mut byte = 0;
        while byte < 256 {
            table[byte] = (byte as u8).is_ascii_alphanumeric();
            byte += 1;
        }
        let others = b"!#$%&'*+-.^_`|~";
        let mut at = 0;
        while at < others.len() {
            table[others[at] as usize] = true;
            at += 1;
        }
        table
    };
    TABLE[byte as usize]
}
