//! Patterns with `*`, and the first of many that matches a text.

use std::collections::HashMap;

use hashbrown::HashTable;
use rapidhash::v3::rapidhash_v3;
use smallvec::SmallVec;

/// The character that stands for anything.
const ANY: char = '*';

/// Whether a text is a pattern.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(ANY)
}

/// Whether a pattern matches all of a text. `*` stands for any number of characters, also none;
/// every other character for itself.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once(ANY) else { return pattern == text };
    let Some(text) = text.strip_prefix(first) else { return false };
    match rest.rsplit_once(ANY) {
        None => text.ends_with(rest),
        Some((middle, last)) => {
            text.strip_suffix(last).is_some_and(|text| contains_in_order(middle, text))
        }
    }
}

/// Whether the parts of a pattern are found in a text, one after the other. Taking each at its
/// first occurrence leaves the most for those to come.
fn contains_in_order(parts: &str, mut text: &str) -> bool {
    for part in parts.split(ANY) {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Many patterns, of which the first that matches is found without trying them all.
///
/// They are kept by what stands before the first `*` and after the last one. A text is looked up
/// once for each pair of lengths of the two that occurs, and these are few however many patterns
/// there are. Only what stands between stars is tried one by one.
#[derive(Debug, Default)]
pub(crate) struct Globs {
    globs: Vec<Glob>,
    shapes: Vec<(usize, usize)>,
    table: HashTable<Bucket>,
}

/// A pattern, its place in the order, and what it leads to.
#[derive(Debug)]
pub(crate) struct Glob {
    pub(crate) order: u32,
    pub(crate) pattern: Box<str>,
    pub(crate) target: u32,
}

/// The patterns with one beginning and one end, in order.
#[derive(Debug)]
struct Bucket {
    hash: u64,
    shape: (usize, usize),
    globs: SmallVec<[u32; 2]>,
}

impl Globs {
    /// Builds the index of patterns, which are given in their order.
    pub(crate) fn new(globs: Vec<Glob>) -> Self {
        let mut shapes: Vec<(usize, usize)> = Vec::new();
        let mut buckets: HashMap<(&str, &str), SmallVec<[u32; 2]>> = HashMap::new();
        for (index, glob) in globs.iter().enumerate() {
            let ends = glob.ends();
            shapes.push((ends.0.len(), ends.1.len()));
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            buckets.entry(ends).or_default().push(index);
        }
        shapes.sort_unstable();
        shapes.dedup();
        let mut table = HashTable::with_capacity(buckets.len());
        for ((first, last), globs) in buckets {
            let hash = hash_ends(first, last);
            let shape = (first.len(), last.len());
            let bucket = Bucket { hash, shape, globs };
            table.insert_unique(hash, bucket, |bucket| bucket.hash);
        }
        Self { globs, shapes, table }
    }

    /// The first pattern that matches: its order and what it leads to.
    pub(crate) fn find(&self, text: &str) -> Option<(u32, u32)> {
        let first = self.buckets(text).filter_map(|bucket| {
            let mut globs = bucket.globs.iter().map(|index| &self.globs[*index as usize]);
            globs.find(|glob| matches(&glob.pattern, text))
        });
        first.min_by_key(|glob| glob.order).map(|glob| (glob.order, glob.target))
    }

    /// What all patterns that match lead to, in no order.
    pub(crate) fn each(&self, text: &str, mut each: impl FnMut(u32)) {
        for bucket in self.buckets(text) {
            let globs = bucket.globs.iter().map(|index| &self.globs[*index as usize]);
            globs.filter(|glob| matches(&glob.pattern, text)).for_each(|glob| each(glob.target));
        }
    }

    /// The buckets whose beginning and end are those of a text.
    fn buckets<'s>(&'s self, text: &'s str) -> impl Iterator<Item = &'s Bucket> {
        self.shapes.iter().filter_map(move |(first, last)| {
            let start = text.get(..*first)?;
            let end = text.get(text.len().checked_sub(*last)?..)?;
            (first + last <= text.len()).then_some(())?;
            self.bucket(start, end)
        })
    }

    fn bucket(&self, first: &str, last: &str) -> Option<&Bucket> {
        self.table.find(hash_ends(first, last), |bucket| {
            let glob = &self.globs[bucket.globs[0] as usize];
            bucket.shape == (first.len(), last.len()) && glob.ends() == (first, last)
        })
    }
}

impl Glob {
    /// What stands before the first star and after the last.
    fn ends(&self) -> (&str, &str) {
        let first = self.pattern.split_once(ANY).map_or(&*self.pattern, |(first, _)| first);
        let last = self.pattern.rsplit_once(ANY).map_or("", |(_, last)| last);
        (first, last)
    }
}

fn hash_ends(first: &str, last: &str) -> u64 {
    rapidhash_v3(first.as_bytes()).rotate_left(1) ^ rapidhash_v3(last.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: a star takes nothing, or one character and then the same again.
    fn by_definition(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(('*', rest)), None) => by_definition(rest, text),
            (Some(('*', rest)), Some((_, after))) => {
                by_definition(rest, text) || by_definition(pattern, after)
            }
            (Some(_), None) => false,
            (Some((wanted, rest)), Some((found, after))) => {
                wanted == found && by_definition(rest, after)
            }
        }
    }

    proptest! {
        #[test]
        fn matching_is_by_definition(pattern in "[abä*]{0,8}", text in "[abä*]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &text), by_definition(&chars(&pattern), &chars(&text)));
        }

        #[test]
        fn the_index_finds_the_first(
            patterns in proptest::collection::vec("[abä]{0,2}\\*[abä*]{0,4}", 0..30),
            text in "[abä]{0,6}",
        ) {
            let numbered = patterns.iter().zip(0u32..);
            let globs = numbered.map(|(text, at)| Glob { order: at, pattern: text.as_str().into(), target: at });
            let first = patterns.iter().position(|pattern| matches(pattern, &text));
            let found = Globs::new(globs.collect()).find(&text).map(|(order, _)| order as usize);
            prop_assert_eq!(found, first);
        }
    }
}
