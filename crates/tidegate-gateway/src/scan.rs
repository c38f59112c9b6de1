//! What a client sends over HTTP/1, looked at before anybody acts on it.
//!
//! The library that parses requests is lenient: it takes bare line feeds for line ends, two `Host`
//! headers, and a `Content-Length` beside a `Transfer-Encoding`. Where two programs that handle one
//! request read it differently, requests can be smuggled past the first one. So the bytes of a
//! connection pass here first: the scanner follows the bounds of messages, and what is not plainly
//! one request after the other gets no further.

pub(crate) mod chunked;
pub(crate) mod head;

use self::chunked::Chunks;
use self::head::{Framing, Head};

/// Why a client's message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A line does not end as lines do.
    LineEnd,
    /// The first line is none of a request.
    RequestLine,
    /// The target is too long.
    TargetTooLong,
    /// The target is in none of the forms that there are.
    Target,
    /// A version that is not spoken here.
    Version,
    /// A header line that is none.
    Header,
    /// A header that goes on in the next line.
    Folded,
    /// No host, or more than one.
    Host,
    /// The length of the body is told wrongly, or in more than one way.
    Length,
    /// The body is to come in a form that is not known.
    Coding,
    /// The head is too large.
    HeadTooLarge,
    /// A body in chunks that are none.
    Chunk,
    /// An expectation that nobody knows.
    Expectation,
    /// A tunnel to somewhere else.
    Connect,
    /// The head did not come in time.
    Late,
}

impl Fault {
    /// The status to answer with.
    pub(crate) fn status(self) -> http::StatusCode {
        use http::StatusCode as Status;
        match self {
            Self::TargetTooLong => Status::URI_TOO_LONG,
            Self::Version => Status::HTTP_VERSION_NOT_SUPPORTED,
            Self::Coding => Status::NOT_IMPLEMENTED,
            Self::HeadTooLarge => Status::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Expectation => Status::EXPECTATION_FAILED,
            Self::Connect => Status::METHOD_NOT_ALLOWED,
            Self::Late => Status::REQUEST_TIMEOUT,
            _ => Status::BAD_REQUEST,
        }
    }

    /// What to tell the client.
    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::LineEnd => {
                "a line does not end in a carriage return and a line feed, or has one of them or a zero within"
            }
            Self::RequestLine => "the first line is not `METHOD target HTTP/1.1`",
            Self::TargetTooLong => "the request's target is too long",
            Self::Target => "the request's target is neither a path nor an http URL",
            Self::Version => "the protocol is neither HTTP/1.1 nor HTTP/1.0",
            Self::Header => "a header line is not `name: value`",
            Self::Folded => "a header goes on in the next line, which nobody does any more",
            Self::Host => "the request has no Host header, or more than one, or a wrong one",
            Self::Length => "the length of the body is told wrongly or in more than one way",
            Self::Coding => "the only transfer coding that is known is `chunked`",
            Self::HeadTooLarge => "the headers are too large",
            Self::Chunk => "the body is not made of chunks as it should be",
            Self::Expectation => "the only expectation that is known is `100-continue`",
            Self::Connect => "this is no proxy for CONNECT",
            Self::Late => "the request did not come in time",
        }
    }
}

/// How large things may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) head_max: usize,
    pub(crate) target_max: usize,
}

impl Sizes {
    /// What follows a head that is there as a whole, and where it ends. Whatever else it may be is for
    /// others to find out.
    fn take_whole(self, bytes: &[u8]) -> Option<(At, usize)> {
        let head = head::check(bytes, self).ok().filter(|head| head.end <= self.head_max)?;
        Some((At::behind(&head), head.end))
    }
}

/// Where in a connection the next byte is.
#[derive(Debug)]
enum At {
    /// In a head, of which so many bytes are known not to be its end.
    Head { seen: usize },
    /// In a body that has so many bytes to come.
    Body(u64),
    /// In a body of chunks.
    Chunks(Chunks),
    /// Behind a request that may turn the connection into something else.
    Parked,
    /// Behind something that is wrong.
    Refused(Fault),
}

impl At {
    /// What follows a head.
    fn behind(head: &Head) -> Self {
        match head.framing {
            // What follows may not be HTTP, which the answer will tell.
            Framing::None | Framing::Sized(0) if head.has_upgrade => Self::Parked,
            Framing::None | Framing::Sized(0) => Self::Head { seen: 0 },
            Framing::Sized(length) => Self::Body(length),
            Framing::Chunked => Self::Chunks(Chunks::new()),
        }
    }
}

/// Follows the messages of a connection.
#[derive(Debug)]
pub(crate) struct Scanner {
    sizes: Sizes,
    at: At,
}

impl Scanner {
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self { sizes, at: At::Head { seen: 0 } }
    }

    /// How many of the bytes may go on. The others have to be given again together with those that
    /// follow, unless something is [wrong](Self::fault) with them or it is [parked](Self::is_parked).
    pub(crate) fn look(&mut self, bytes: &[u8]) -> usize {
        let mut good = 0;
        while good < bytes.len() {
            let rest = &bytes[good..];
            // Most heads come in one piece, and nothing is wrong with them.
            if matches!(self.at, At::Head { seen: 0 })
                && let Some((at, end)) = self.sizes.take_whole(rest)
            {
                self.at = at;
                good += end;
                continue;
            }
            match &mut self.at {
                At::Head { seen } => match head::end(rest, *seen, self.sizes) {
                    Err(fault) => self.at = At::Refused(fault),
                    Ok(head::End::NotYet { seen: so_far }) => {
                        *seen = so_far;
                        return good;
                    }
                    Ok(head::End::At { begin, end }) => {
                        match head::check(&rest[begin..end], self.sizes) {
                            Err(fault) => self.at = At::Refused(fault),
                            Ok(head) => {
                                self.at = At::behind(&head);
                                good += end;
                            }
                        }
                    }
                },
                At::Body(left) => {
                    let some = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= some as u64;
                    good += some;
                    if *left == 0 {
                        self.at = At::Head { seen: 0 };
                    }
                }
                At::Chunks(chunks) => match chunks.look(rest) {
                    Err(()) => self.at = At::Refused(Fault::Chunk),
                    Ok((some, is_over)) => {
                        good += some;
                        if is_over {
                            self.at = At::Head { seen: 0 };
                        }
                    }
                },
                At::Parked | At::Refused(_) => return good,
            }
        }
        good
    }

    /// What is wrong, if anything is. Nothing goes on any more then.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self.at {
            At::Refused(fault) => Some(fault),
            _ => None,
        }
    }

    /// Refuses whatever comes.
    pub(crate) fn refuse(&mut self, fault: Fault) {
        self.at = At::Refused(fault);
    }

    /// Whether it waits to be told if what follows is HTTP.
    pub(crate) fn is_parked(&self) -> bool {
        matches!(self.at, At::Parked)
    }

    /// What follows is HTTP.
    pub(crate) fn go_on(&mut self) {
        if self.is_parked() {
            self.at = At::Head { seen: 0 };
        }
    }

    /// Whether the next byte is the first of a head, or one of its first ones.
    pub(crate) fn is_at_head(&self) -> bool {
        matches!(self.at, At::Head { .. })
    }
}

#[cfg(test)]
mod tests;
