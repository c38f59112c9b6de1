//! Percent escapes, and text from bytes that may not be any.

/// Undoes percent escapes. What is no escape stays as it is.
pub(crate) fn decode(raw: &str, plus_is_space: bool, out: &mut Vec<u8>) {
    out.clear();
    let mut rest = raw.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let byte = match (byte, after) {
            (b'%', [high, low, after @ ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    high << 4 | low
                }
                _ => byte,
            },
            (b'+', _) if plus_is_space => b' ',
            _ => byte,
        };
        out.push(byte);
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Appends bytes as text; what is not UTF-8 becomes `U+FFFD`.
pub(crate) fn push_lossy(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(raw: &str, plus_is_space: bool) -> String {
        let (mut bytes, mut text) = (Vec::new(), String::new());
        decode(raw, plus_is_space, &mut bytes);
        push_lossy(&mut text, &bytes);
        text
    }

    #[test]
    fn escapes_are_undone_once_and_the_rest_stays() {
        for (raw, wanted) in [
            ("%70osts", "posts"),
            ("a%2Fb%2fc", "a/b/c"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz%+1", "%zz%+1"),
            ("%%41", "%A"),
            ("%2541", "%41"),
            ("caf%C3%A9", "café"),
            ("%ff%C3", "\u{fffd}\u{fffd}"),
            ("a+b", "a+b"),
        ] {
            assert_eq!(decoded(raw, false), wanted, "{raw}");
        }
        assert_eq!(decoded("a+b%2B", true), "a b+");
    }

    proptest! {
        #[test]
        fn what_was_escaped_comes_back(text in "\\PC{0,20}") {
            let escaped: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(decoded(&escaped, true), text);
        }
    }
}
