//! HTTP/2 by hand: a client that sends the frames it likes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tidegate_gateway::Gateway;

use crate::support::connect;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const GOAWAY: u8 = 7;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const CONTINUATION: u8 = 9;

/// The head of a GET, as the static table of HPACK has it.
pub(crate) const GET: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
/// The head of a POST.
pub(crate) const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")];

/// A frame that has come.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// A connection whose client says what it likes.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    /// A connection that has begun.
    pub(crate) fn begin(gateway: &Gateway) -> Self {
        Self::begin_on(connect(gateway))
    }

    pub(crate) fn begin_on(mut stream: TcpStream) -> Self {
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let mut client = Self { stream };
        client.send(SETTINGS, 0, 0, &[]);
        client
    }

    pub(crate) fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        // Who was refused may have been cut off.
        let _ = self.stream.write_all(&frame);
    }

    /// Sends a head, literally and whole.
    pub(crate) fn ask(&mut self, stream: u32, flags: u8, head: &[(&str, &str)]) {
        self.send(HEADERS, END_HEADERS | flags, stream, &block(head));
    }

    /// The next frame; `None` if none comes any more.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The next frame of a kind.
    pub(crate) fn next_of(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().expect("a frame");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// What comes of a stream: what it ends with, and the data before.
    pub(crate) fn outcome(&mut self, stream: u32) -> (Outcome, Vec<u8>) {
        let mut data = Vec::new();
        loop {
            let Some(frame) = self.next() else { return (Outcome::Closed, data) };
            match frame.kind {
                GOAWAY => return (Outcome::GoAway, data),
                RST_STREAM if frame.stream == stream => return (Outcome::Reset, data),
                DATA if frame.stream == stream => data.extend(&frame.payload),
                _ => {}
            }
            if frame.stream == stream && frame.flags & END_STREAM != 0 && frame.kind <= HEADERS {
                return (Outcome::Whole, data);
            }
        }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Whole,
    Reset,
    GoAway,
    Closed,
}

/// Headers, as HPACK has them without any table.
pub(crate) fn block(head: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in head {
        block.push(0);
        for text in [name, value] {
            push_length(&mut block, text.len());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A length in HPACK's integers with seven bits in the first byte.
fn push_length(block: &mut Vec<u8>, length: usize) {
    let byte = |length: usize| u8::try_from(length).unwrap();
    if length < 127 {
        return block.push(byte(length));
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(byte(rest % 128) | 128);
        rest /= 128;
    }
    block.push(byte(rest));
}
