//! Any bytes as a gateway's client's: in whatever pieces they come, the same ones go on, or up to the same
//! fault; they are a beginning of what came, and no head among them has a line that ends otherwise than it
//! should.
//!
//! The first byte says how large the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_gateway::fuzzing;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let whole = fuzzing::scan(&[bytes]);
    let pieces: Vec<_> = bytes.chunks(usize::from(*first) + 1).collect();
    let (in_pieces, fault_in_pieces) = fuzzing::scan(&pieces);
    let (passed, fault) = whole;
    assert_eq!(fault_in_pieces, fault);
    assert!(bytes.starts_with(&passed) && bytes.starts_with(&in_pieces));
    // What came before the fault may have gone on already.
    assert!(fault.is_some() || in_pieces == passed);
    // The first head is at the beginning; bodies may hold whatever they like.
    let blank = |at: &usize| passed[*at..].starts_with(b"\r\n\r\n");
    if let Some(end) = (0..passed.len()).find(blank) {
        let head = &passed[..end];
        let feeds = head.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        for (at, _) in feeds {
            assert!(at > 0 && head[at - 1] == b'\r', "a bare line feed went on");
        }
    }
    if let Some(length) = fuzzing::proxy_header(bytes) {
        assert!(length <= bytes.len());
    }
});
