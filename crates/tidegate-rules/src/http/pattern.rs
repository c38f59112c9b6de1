//! Patterns of paths.

use std::borrow::Cow;
use std::collections::HashSet;

use super::escape;
use super::path::NormalPath;
use crate::glob;

/// The longest pattern. A segment of one letter takes a hundred times its text once it is compiled.
const PATTERN_BYTES_MAX: usize = 4096;

/// What is wrong with a text, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Wrong {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// A pattern of paths: `*` stands for anything within a segment, `{name}` for one segment, and
/// `**` at the end for any number of segments, also none.
///
/// It is compared with a path in its [normal form](NormalPath), so a slash at the end means
/// nothing, neither here nor there: `/a` and `/a/` both match `/a` and `/a/`. No segment of that
/// form is empty: `/a/*` and `/a/{x}` do not match `/a/`, `/a/**` does, and `/a` too. Percent
/// escapes of a pattern are undone as those of a path are: `/a%2Fb` has one segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathPattern {
    text: Box<str>,
    pub(crate) segments: Box<[Segment]>,
    /// Whether `**` follows.
    pub(crate) rest: bool,
}

/// One segment of a pattern.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(Box<str>),
    /// With a star, and more than that.
    Glob(Box<str>),
    /// A star alone.
    Any,
    Name(Box<str>),
}

impl PathPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, Wrong> {
        let wrong = |why: &str| Wrong::new(format!("`{text}` is not a path pattern: {why}"));
        if text.len() > PATTERN_BYTES_MAX {
            return Err(Wrong::new(format!(
                "a path pattern of {} bytes; the most is {PATTERN_BYTES_MAX}",
                text.len()
            )));
        }
        if text.contains("://") {
            return Err(wrong("it is a URL").hint("the host goes into `host`, beside `path`"));
        }
        if text.contains(['?', '#']) {
            return Err(wrong("the query is no part of a path"));
        }
        let Some(inner) = text.strip_prefix('/') else {
            return Err(wrong("it has to begin with `/`").hint(format!("`/{text}`")));
        };
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let (inner, rest) = match inner.strip_suffix("**") {
            Some("") => (None, true),
            Some(before) if before.ends_with('/') => (before.strip_suffix('/'), true),
            _ => (Some(inner).filter(|_| text != "/"), false),
        };
        let mut segments: Vec<Segment> = Vec::new();
        let mut names: HashSet<Box<str>> = HashSet::new();
        for raw in inner.into_iter().flat_map(|inner| inner.split('/')) {
            let segment = Segment::parse(raw).map_err(|(why, hint)| {
                let wrong = wrong(why);
                if hint.is_empty() { wrong } else { wrong.hint(hint) }
            })?;
            if let Segment::Name(name) = &segment
                && !names.insert(name.clone())
            {
                return Err(wrong(&format!("two segments are named `{{{name}}}`")));
            }
            segments.push(segment);
        }
        Ok(Self { text: text.into(), segments: segments.into(), rest })
    }

    /// As it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The position of the segment with this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        let is_it = |segment: &Segment| matches!(segment, Segment::Name(it) if **it == *name);
        self.segments.iter().position(is_it)
    }

    /// The names of its segments.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Name(name) => Some(&**name),
            _ => None,
        })
    }

    /// Whether it matches every path.
    pub(crate) fn is_everything(&self) -> bool {
        self.rest && self.segments.is_empty()
    }

    /// Whether it matches a path. For explanations; requests are looked up in the trie.
    pub(crate) fn matches(&self, path: &NormalPath) -> bool {
        let enough = match self.rest {
            true => path.len() >= self.segments.len(),
            false => path.len() == self.segments.len(),
        };
        enough
            && self.segments.iter().enumerate().all(|(index, segment)| {
                path.segment(index).is_some_and(|text| segment.matches(text))
            })
    }
}

impl Segment {
    /// A segment, or what is wrong with it and a hint that may be empty.
    fn parse(raw: &str) -> Result<Self, (&'static str, &'static str)> {
        match raw {
            "" => {
                return Err((
                    "it has an empty segment",
                    "slashes in a row count as one in requests; write one",
                ));
            }
            "*" => return Ok(Self::Any),
            "**" => {
                return Err(("`**` can only be the last segment", "`*` stands for one segment"));
            }
            _ => {}
        }
        if raw.contains("**") {
            return Err(("`**` has to be a segment of its own", "`*` stands for a part of one"));
        }
        if raw.contains(['{', '}']) {
            return Self::parse_name(raw);
        }
        let mut text = Cow::Borrowed(raw);
        if raw.contains('%') {
            let mut bytes = Vec::new();
            escape::decode(raw, false, &mut bytes);
            text.to_mut().clear();
            escape::push_lossy(text.to_mut(), &bytes);
        }
        if matches!(&*text, "." | "..") {
            return Err(("`.` and `..` are resolved in requests, so it would match none", ""));
        }
        match glob::is_pattern(raw) {
            false => Ok(Self::Literal(text.into())),
            true if raw.matches('*').count() != text.matches('*').count() => {
                Err(("an escaped star cannot stand in a segment with stars", ""))
            }
            true => Ok(Self::Glob(text.into())),
        }
    }

    fn parse_name(raw: &str) -> Result<Self, (&'static str, &'static str)> {
        const WHOLE: &str = "`{name}` stands for a whole segment; for a part of one there is `*`";
        let Some(name) = raw.strip_prefix('{').and_then(|raw| raw.strip_suffix('}')) else {
            return Err(("a brace in the middle of a segment", WHOLE));
        };
        if name.starts_with('*') || name.ends_with("...") {
            return Err(("the rest of a path has no name", "`**` stands for any rest"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err((
                "the name of a segment consists of letters, digits, `_` and `-`",
                "such as `{id}`, which `${path.id}` gives",
            ));
        }
        Ok(Self::Name(name.into()))
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Literal(literal) => **literal == *text,
            Self::Glob(pattern) => glob::matches(pattern, text),
            Self::Any | Self::Name(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let mut normal = NormalPath::default();
        normal.set(path);
        PathPattern::parse(pattern).unwrap().matches(&normal)
    }

    #[test]
    fn patterns_match_what_they_say() {
        for (pattern, yes, no) in [
            ("/", &["/", "//", "/.", "/a/.."][..], &["/a"][..]),
            ("/**", &["/", "/a", "/a/b/", "*", "//"], &[]),
            ("/**/", &["/", "/a"], &[]),
            ("/a", &["/a", "/a/", "//a", "/b/../a", "/%61"], &["/", "/A", "/a/b", "/ab"]),
            ("/a/", &["/a", "/a/"], &["/", "/a/b"]),
            ("/a/**", &["/a", "/a/", "/a/b/c"], &["/", "/ab", "/b/a"]),
            ("/a/*", &["/a/b", "/a/b/"], &["/a", "/a/", "/a//", "/a/b/c"]),
            ("/v*/x", &["/v/x", "/v1/x", "/v%2F1/x"], &["/w/x", "/x"]),
            ("/*.json", &["/a.json", "/.json"], &["/a.jsonp", "/b/a.json"]),
            ("/a*b*c", &["/abc", "/a-b-c"], &["/acb"]),
            ("/{x}/y", &["/a/y", "/a%2Fb/y"], &["/y", "//y", "/a/b/y"]),
            ("/{x}/**", &["/a", "/a/b"], &["/"]),
            ("/a%2Fb", &["/a%2fb"], &["/a/b", "/a%252Fb"]),
            ("/a%20b", &["/a%20b", "/a b"], &["/a+b"]),
            ("/%2A", &["/*"], &["/a"]),
        ] {
            yes.iter().for_each(|path| assert!(matches(pattern, path), "{pattern} {path}"));
            no.iter().for_each(|path| assert!(!matches(pattern, path), "{pattern} {path}"));
        }
    }

    #[test]
    fn what_can_never_match_is_an_error() {
        for (pattern, why) in [
            ("", "begin with `/`"),
            ("a", "begin with `/`"),
            ("**", "begin with `/`"),
            ("/a//b", "empty segment"),
            ("//", "empty segment"),
            ("/a//", "empty segment"),
            ("//**", "empty segment"),
            ("/a//**", "empty segment"),
            ("/**/a", "last segment"),
            ("/**/**", "last segment"),
            ("/a**", "of its own"),
            ("/***", "of its own"),
            ("/a/./b", "resolved"),
            ("/%2e%2e", "resolved"),
            ("/a?b=c", "query"),
            ("http://a/b", "URL"),
            ("/v{x}", "brace"),
            ("/{x", "brace"),
            ("/{}", "letters"),
            ("/{a b}", "letters"),
            ("/{*rest}", "the rest"),
            ("/{x}/{x}", "two segments"),
            ("/a%2A*", "escaped star"),
        ] {
            let wrong = PathPattern::parse(pattern).expect_err(pattern);
            assert!(wrong.message.contains(why), "{pattern}: {}", wrong.message);
        }
    }
}
