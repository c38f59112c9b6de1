//! The path of a request in one form, however it was written.

use smallvec::SmallVec;

use super::escape;

/// A path as patterns see it: a list of segments, none of them empty.
///
/// - Percent escapes are undone, segment by segment: `%2F` becomes part of a segment and does not
///   part two. Escapes that are none stay as they are; bytes that are not UTF-8 become `U+FFFD`.
/// - `.` and `..` are resolved, also where they were escaped, and never lead above the root.
/// - Empty segments do not count: `//a///b/` is `/a/b`. Many servers merge slashes and most treat
///   `/a` and `/a/` alike, so a limit on `/a/b` that one more slash could evade would be none. Who
///   does tell them apart loses only that both are counted together.
/// - A path that does not begin with `/`, such as the `*` of `OPTIONS *`, is taken as if it did.
#[derive(Debug, Default)]
pub(crate) struct NormalPath {
    /// A slash and the segment, for each of them.
    text: String,
    /// Where each segment ends in the text.
    ends: SmallVec<[usize; 16]>,
    /// No segment holds a character that would have to be escaped in a path.
    is_plain: bool,
    bytes: Vec<u8>,
}

impl NormalPath {
    /// Takes another path, without query.
    pub(crate) fn set(&mut self, raw: &str) {
        self.text.clear();
        self.ends.clear();
        self.is_plain = !raw.contains('%');
        for raw in raw.split('/').filter(|raw| !raw.is_empty()) {
            let start = self.text.len();
            self.text.push('/');
            if self.is_plain {
                self.text.push_str(raw);
            } else {
                escape::decode(raw, false, &mut self.bytes);
                escape::push_lossy(&mut self.text, &self.bytes);
            }
            match &self.text[start + 1..] {
                "." => self.text.truncate(start),
                ".." => {
                    self.ends.pop();
                    self.text.truncate(self.ends.last().copied().unwrap_or(0));
                }
                _ => self.ends.push(self.text.len()),
            }
        }
    }

    /// A segment by its position.
    pub(crate) fn segment(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = match index {
            0 => 0,
            _ => self.ends[index - 1],
        };
        Some(&self.text[start + 1..end])
    }

    /// How many segments there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Writes the path. Slashes and percent signs within a segment are escaped, so that different
    /// paths are different texts.
    pub(crate) fn write(&self, out: &mut String) {
        if self.ends.is_empty() {
            return out.push('/');
        }
        if self.is_plain {
            return out.push_str(&self.text);
        }
        for segment in (0..self.len()).filter_map(|index| self.segment(index)) {
            out.push('/');
            for character in segment.chars() {
                match character {
                    '/' => out.push_str("%2F"),
                    '%' => out.push_str("%25"),
                    _ => out.push(character),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segments(raw: &str) -> Vec<String> {
        let mut path = NormalPath::default();
        path.set("/left/over%20from/before");
        path.set(raw);
        (0..path.len()).map(|index| path.segment(index).unwrap().to_owned()).collect()
    }

    fn written(raw: &str) -> String {
        let (mut path, mut out) = (NormalPath::default(), String::new());
        path.set(raw);
        path.write(&mut out);
        out
    }

    #[test]
    fn a_path_has_one_form() {
        for (raw, wanted) in [
            ("/", "/"),
            ("", "/"),
            ("*", "/*"),
            ("/v1/posts", "/v1/posts"),
            ("/v1/%70osts", "/v1/posts"),
            ("/v1/posts/", "/v1/posts"),
            ("//v1///posts//", "/v1/posts"),
            ("/a/../b", "/b"),
            ("/a/./b/.", "/a/b"),
            ("/a/b/..", "/a"),
            ("/a//../b", "/b"),
            ("/../../b", "/b"),
            ("/a/%2e%2E/b/%2e", "/b"),
            ("/a/.../b", "/a/.../b"),
            ("/caf%C3%A9", "/café"),
            ("/100%", "/100%25"),
            ("/a%ff", "/a\u{fffd}"),
            ("/A/b", "/A/b"),
        ] {
            assert_eq!(written(raw), wanted, "{raw}");
        }
    }

    #[test]
    fn an_escaped_slash_parts_nothing() {
        assert_eq!(segments("/a%2Fb/c"), ["a/b", "c"]);
        assert_eq!(segments("/a/..%2Fb"), ["a", "../b"]);
        assert_eq!(written("/a%2Fb"), "/a%2Fb");
        assert_ne!(written("/a%2Fb"), written("/a/b"));
        assert_ne!(written("/a%2Fb"), written("/a%252Fb"));
    }

    proptest! {
        #[test]
        fn what_is_written_means_the_same(raw in "[/a.%2eEfF]{0,20}") {
            let again = written(&raw);
            prop_assert_eq!(segments(&again), segments(&raw));
            prop_assert_eq!(written(&again), again);
        }
    }
}
