//! Which of several patterns a request belongs to: the most specific one.

use super::path::NormalPath;
use super::pattern::{PathPattern, Segment};
use super::request::write_host;
use crate::glob;

/// Patterns of hosts and paths, of which a request belongs to the most specific one: first by
/// host (one without a star before one with, longer ones first, any host last), then by path
/// (literal segments before those with stars, from the left; more segments before fewer).
///
/// ```
/// use tidegate_rules::{RouteScratch, RouteTable};
///
/// let table = RouteTable::new([(None, "/**"), (None, "/api/**"), (Some("b.example"), "/**")])?;
/// let mut scratch = RouteScratch::default();
/// assert_eq!(table.find(Some("a.example"), "/api/x", &mut scratch), Some(1));
/// assert_eq!(table.find(Some("B.example:80"), "/api/x", &mut scratch), Some(2));
/// assert_eq!(table.find(None, "/", &mut scratch), Some(0));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug)]
pub struct RouteTable {
    /// The most specific first, with their positions in the list that they were given in.
    routes: Vec<(Option<Box<str>>, PathPattern, usize)>,
    /// Whether everything belongs to the first one.
    is_single: bool,
}

/// Room to work in, to be used again.
#[derive(Debug, Default)]
pub struct RouteScratch {
    path: NormalPath,
    host: String,
}

impl RouteTable {
    /// Compiles patterns. The error says what is wrong with which of them.
    ///
    /// # Errors
    /// If a path is no pattern.
    pub fn new<'a>(
        patterns: impl IntoIterator<Item = (Option<&'a str>, &'a str)>,
    ) -> Result<Self, String> {
        let mut routes = Vec::new();
        for (position, (host, path)) in patterns.into_iter().enumerate() {
            let path = PathPattern::parse(path).map_err(|wrong| wrong.message)?;
            let host = host.filter(|host| *host != "*").map(|host| {
                let mut text = String::new();
                write_host(&mut text, host);
                text.into_boxed_str()
            });
            routes.push((host, path, position));
        }
        routes.sort_by_cached_key(|(host, path, position)| {
            let stars = host.as_ref().map(|host| (host.contains('*'), usize::MAX - host.len()));
            let host = stars.unwrap_or((true, usize::MAX));
            (host, rank(path), *position)
        });
        let is_single = matches!(&routes[..], [(None, path, _)] if path.is_everything());
        Ok(Self { routes, is_single })
    }

    /// The position of the pattern that everything belongs to, if there is one: nobody needs to know
    /// then what a request is for.
    pub fn only(&self) -> Option<usize> {
        self.is_single.then_some(0)
    }

    /// The position of the pattern that a request belongs to.
    pub fn find(
        &self,
        host: Option<&str>,
        path: &str,
        scratch: &mut RouteScratch,
    ) -> Option<usize> {
        if let Some(only) = self.only() {
            return Some(only);
        }
        scratch.path.set(path);
        scratch.host.clear();
        write_host(&mut scratch.host, host.unwrap_or_default());
        let fits = |pattern: &Option<Box<str>>| {
            pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, &scratch.host))
        };
        let mut routes = self.routes.iter();
        routes
            .find(|(host, pattern, _)| fits(host) && pattern.matches(&scratch.path))
            .map(|(_, _, position)| *position)
    }
}

/// Less is more specific: each segment by its kind, and an end before any rest.
fn rank(pattern: &PathPattern) -> Vec<(u8, usize)> {
    let mut rank: Vec<(u8, usize)> = pattern
        .segments
        .iter()
        .map(|segment| match segment {
            Segment::Literal(_) => (0, 0),
            Segment::Glob(text) => (1, usize::MAX - text.len()),
            Segment::Any | Segment::Name(_) => (2, 0),
        })
        .collect();
    rank.push((if pattern.rest { 4 } else { 3 }, 0));
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_wins_whatever_the_order() {
        let patterns = [
            (None, "/**"),
            (None, "/a/*/c"),
            (None, "/a/b/**"),
            (None, "/a/b"),
            (Some("*.example"), "/**"),
            (Some("x.example"), "/a"),
            (Some("*.x.example"), "/**"),
        ];
        let table = RouteTable::new(patterns).unwrap();
        let mut scratch = RouteScratch::default();
        for (host, path, wanted) in [
            (None, "/", 0),
            (None, "/a/b", 3),
            (None, "/a/b/", 3),
            (None, "/a/b/c", 2),
            (None, "/a/x/c", 1),
            (None, "/a/%62/c", 2),
            (None, "/q/../a/b", 3),
            (Some("y.example"), "/a/b", 4),
            (Some("X.example.:80"), "/a", 5),
            (Some("x.example"), "/b", 4),
            (Some("y.x.example"), "/b", 6),
            (Some("other"), "/b", 0),
        ] {
            assert_eq!(table.find(host, path, &mut scratch), Some(wanted), "{host:?} {path}");
        }
        let table = RouteTable::new([(Some("a"), "/b")]).unwrap();
        assert_eq!(table.find(Some("a"), "/c", &mut scratch), None);
        assert_eq!(table.find(None, "/b", &mut scratch), None);
        assert!(RouteTable::new([(None, "b")]).is_err());
    }
}
