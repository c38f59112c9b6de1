//! Doors for the fuzz targets, which see more than others do. Nothing of it is promised.

use crate::scan::{Scanner, Sizes};

/// What of a client's bytes goes on to the HTTP library if they come in these pieces, and what is
/// wrong with the rest.
pub fn scan(pieces: &[&[u8]]) -> (Vec<u8>, Option<&'static str>) {
    let mut scanner = Scanner::new(Sizes { head_max: 1024, target_max: 256 });
    let (mut held, mut passed) = (Vec::new(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        let good = scanner.look(&held);
        passed.extend(held.drain(..good));
    }
    (passed, scanner.fault().map(|fault| fault.detail()))
}

/// How long the PROXY header is that a connection begins with, if it does.
pub fn proxy_header(bytes: &[u8]) -> Option<usize> {
    match crate::proxy_protocol::parse(bytes) {
        crate::proxy_protocol::Header::Whole(length, _) => Some(length),
        _ => None,
    }
}
