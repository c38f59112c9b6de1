//! Commands as they go over the wire.

/// Appends a command of these words.
pub(crate) fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    write_count(out, b'*', words.len());
    for word in words {
        write_count(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

pub(crate) fn write_count(out: &mut Vec<u8>, kind: u8, count: usize) {
    out.push(kind);
    out.extend_from_slice(count.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}
