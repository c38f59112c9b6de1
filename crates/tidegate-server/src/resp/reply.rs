//! Answers as bytes, in both versions of the protocol.

use std::fmt;
use std::io::Write as _;

/// The version of the protocol that a client has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// What every client begins with.
    #[default]
    Resp2,
    /// Since `HELLO 3`: maps, doubles and nulls are told apart.
    Resp3,
}

/// Where the answers of a connection are written.
pub(crate) struct Reply<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) protocol: Protocol,
}

impl Reply<'_> {
    fn is_3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// A word that is not to be misunderstood, such as `OK`.
    pub(crate) fn simple(&mut self, text: &str) {
        self.out.push(b'+');
        self.out.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// An error; `text` begins with its code.
    pub(crate) fn error(&mut self, text: fmt::Arguments<'_>) {
        self.out.push(b'-');
        let start = self.out.len();
        // Writing to memory does not fail.
        let _ = self.out.write_fmt(text);
        // What a client has sent may be quoted in it, and must not end it.
        for byte in &mut self.out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
        self.end();
    }

    #[inline]
    pub(crate) fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// A number of seconds, or the like. It is a text in the older version.
    pub(crate) fn double(&mut self, number: f64) {
        let text = number.to_string();
        match self.is_3() {
            true => {
                self.out.push(b',');
                self.out.extend_from_slice(text.as_bytes());
                self.end();
            }
            false => self.bulk(text.as_bytes()),
        }
    }

    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', signed(bytes.len()));
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// A text for people.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if !self.is_3() {
            return self.bulk(text.as_bytes());
        }
        self.number(b'=', signed(text.len() + 4));
        self.out.extend_from_slice(b"txt:");
        self.out.extend_from_slice(text.as_bytes());
        self.end();
    }

    pub(crate) fn null(&mut self) {
        self.out.extend_from_slice(if self.is_3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// The beginning of an array; so many answers have to follow.
    #[inline]
    pub(crate) fn array(&mut self, length: usize) {
        self.number(b'*', signed(length));
    }

    /// The beginning of a map; twice as many answers have to follow.
    pub(crate) fn map(&mut self, length: usize) {
        match self.is_3() {
            true => self.number(b'%', signed(length)),
            false => self.number(b'*', signed(length * 2)),
        }
    }

    /// The beginning of a set.
    pub(crate) fn set(&mut self, length: usize) {
        self.number(if self.is_3() { b'~' } else { b'*' }, signed(length));
    }

    #[inline]
    fn number(&mut self, sign: u8, number: i64) {
        /// A sign, a minus, nineteen digits and the end of the line.
        const LONGEST: usize = 23;
        let mut text = [0; LONGEST];
        text[LONGEST - 2] = b'\r';
        text[LONGEST - 1] = b'\n';
        let (mut at, mut rest) = (LONGEST - 2, number.unsigned_abs());
        loop {
            at -= 1;
            text[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            text[at] = b'-';
        }
        at -= 1;
        text[at] = sign;
        self.out.extend_from_slice(&text[at..]);
    }

    #[inline]
    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply { out: &mut out, protocol });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_of_all_lengths() {
        for number in [0, 7, 10, -1, 99, 1000, i64::MAX, i64::MIN] {
            let reply = written(Protocol::Resp2, |reply| reply.integer(number));
            assert_eq!(reply, format!(":{number}\r\n"));
        }
    }

    #[test]
    fn an_error_is_one_line_whatever_it_quotes() {
        let reply = written(Protocol::Resp2, |reply| reply.error(format_args!("ERR a\r\nb\n")));
        assert_eq!(reply, "-ERR a  b \r\n");
    }

    #[test]
    fn the_versions_differ_where_they_should() {
        let all = |reply: &mut Reply<'_>| {
            reply.map(1);
            reply.bulk(b"k");
            reply.double(0.25);
            reply.double(-1.0);
            reply.null();
            reply.set(0);
            reply.verbatim("x");
            reply.simple("OK");
        };
        assert_eq!(
            written(Protocol::Resp2, all),
            "*2\r\n$1\r\nk\r\n$4\r\n0.25\r\n$2\r\n-1\r\n$-1\r\n*0\r\n$1\r\nx\r\n+OK\r\n"
        );
        assert_eq!(
            written(Protocol::Resp3, all),
            "%1\r\n$1\r\nk\r\n,0.25\r\n,-1\r\n_\r\n~0\r\n=5\r\ntxt:x\r\n+OK\r\n"
        );
    }
}
