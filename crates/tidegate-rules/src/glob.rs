//! Patterns with `*`, and the first of many that matches a text.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

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

/// A pattern, its place in the order, and what it leads to.
#[derive(Debug)]
pub(crate) struct Glob<T> {
    pub(crate) order: u32,
    pub(crate) pattern: Box<str>,
    pub(crate) target: T,
}

/// Many patterns, of which the first that matches is found without trying them all.
///
/// They are kept by what stands before the first `*` and after the last one. A text is looked up
/// once for each pair of lengths of the two that occurs, and these are few however many patterns
/// there are. Only what stands between stars is tried one by one.
#[derive(Debug, Default)]
pub(crate) struct Globs<T> {
    /// The lengths of beginnings and ends that occur.
    shapes: Vec<(usize, usize)>,
    table: HashTable<Bucket<T>>,
    /// Beginnings and ends, one after the other.
    text: String,
    /// The patterns of each bucket that ask for more than its beginning and its end, in order.
    others: Vec<Vec<Glob<T>>>,
}

/// How much of a beginning and an end lies in the table itself.
const INLINE: usize = 24;

/// The patterns with one beginning and one end. With many of them a request pays for the memory
/// that it touches, so what is compared lies here if there is room.
#[derive(Debug)]
struct Bucket<T> {
    start: u32,
    first: u32,
    last: u32,
    inline: [u8; INLINE],
    /// The pattern that asks for nothing else.
    simple: Option<(u32, T)>,
    /// Where those are that do; the first place is for nobody.
    others: u32,
}

impl<T: Copy> Globs<T> {
    /// Builds the index of patterns, which are given in their order.
    pub(crate) fn new(globs: Vec<Glob<T>>) -> Self {
        let mut index = Self {
            shapes: Vec::new(),
            table: HashTable::new(),
            text: String::new(),
            others: vec![Vec::new()],
        };
        for glob in globs {
            let (first, last) = ends(&glob.pattern);
            index.shapes.push((first.len(), last.len()));
            let is_simple = first.len() + 1 + last.len() == glob.pattern.len();
            let free = u32::try_from(index.others.len()).unwrap_or(u32::MAX);
            let bucket = index.bucket_mut(first, last);
            if is_simple && bucket.simple.is_none() {
                bucket.simple = Some((glob.order, glob.target));
                continue;
            }
            if bucket.others == 0 {
                bucket.others = free;
            }
            let place = bucket.others as usize;
            index.others.resize_with(index.others.len().max(place + 1), Vec::new);
            index.others[place].push(glob);
        }
        index.shapes.sort_unstable();
        index.shapes.dedup();
        index
    }

    fn bucket_mut(&mut self, first: &str, last: &str) -> &mut Bucket<T> {
        let narrow = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let start = self.text.len();
        // Kept if the bucket is new, and taken away again if it is not.
        self.text.push_str(first);
        self.text.push_str(last);
        let Self { table, text, .. } = self;
        let written: &str = text;
        let entry = table.entry(
            hash_ends(first, last),
            |bucket| bucket.ends(written) == (first, last),
            |bucket| {
                let (first, last) = bucket.ends(written);
                hash_ends(first, last)
            },
        );
        let is_new = matches!(entry, Entry::Vacant(_));
        let bucket = entry.or_insert_with(|| {
            let mut inline = [0; INLINE];
            let bytes = first.bytes().chain(last.bytes());
            inline.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
            Bucket {
                start: narrow(start),
                first: narrow(first.len()),
                last: narrow(last.len()),
                inline,
                simple: None,
                others: 0,
            }
        });
        if !is_new {
            text.truncate(start);
        }
        bucket.into_mut()
    }

    /// The first pattern that matches: its order and what it leads to.
    pub(crate) fn find(&self, text: &str) -> Option<(u32, T)> {
        let mut found: Option<(u32, T)> = None;
        for bucket in self.buckets(text) {
            let is_earlier = |order: u32| found.is_none_or(|(earliest, _)| order < earliest);
            if let Some(simple) = bucket.simple.filter(|(order, _)| is_earlier(*order)) {
                found = Some(simple);
            }
            let is_earlier = |order: u32| found.is_none_or(|(earliest, _)| order < earliest);
            let others = self.others[bucket.others as usize].iter();
            let earlier = others.take_while(|glob| is_earlier(glob.order));
            if let Some(glob) = earlier.into_iter().find(|glob| matches(&glob.pattern, text)) {
                found = Some((glob.order, glob.target));
            }
        }
        found
    }

    /// What all patterns that match lead to, in no order.
    pub(crate) fn each(&self, text: &str, mut each: impl FnMut(T)) {
        for bucket in self.buckets(text) {
            if let Some((_, target)) = bucket.simple {
                each(target);
            }
            let others = self.others[bucket.others as usize].iter();
            let others = others.filter(|glob| matches(&glob.pattern, text));
            others.for_each(|glob| each(glob.target));
        }
    }

    /// The buckets whose beginning and end are those of a text.
    fn buckets<'s>(&'s self, text: &'s str) -> impl Iterator<Item = &'s Bucket<T>> {
        // Shapes are in order, so that a longer beginning is hashed from where a shorter one ended.
        let (mut hashed, mut hash) = (0, SEED);
        self.shapes.iter().filter_map(move |(first, last)| {
            if first + last > text.len() {
                return None;
            }
            hash = hash_more(hash, &text.as_bytes()[hashed..*first]);
            hashed = *first;
            let ends = (text.get(..*first)?, text.get(text.len() - last..)?);
            let hash = join_hashes(hash, hash_more(SEED, ends.1.as_bytes()));
            self.table.find(hash, |bucket| bucket.is_for(ends, &self.text))
        })
    }
}

impl<T> Bucket<T> {
    fn is_for(&self, (first, last): (&str, &str), text: &str) -> bool {
        let (start, end) = (first.len(), first.len() + last.len());
        if self.first as usize != start || self.last as usize != last.len() {
            return false;
        }
        if end > INLINE {
            return self.ends(text) == (first, last);
        }
        self.inline[..start] == *first.as_bytes() && self.inline[start..end] == *last.as_bytes()
    }

    fn ends<'a>(&self, text: &'a str) -> (&'a str, &'a str) {
        let start = self.start as usize;
        let middle = start + self.first as usize;
        (&text[start..middle], &text[middle..middle + self.last as usize])
    }
}

/// What stands before the first star and after the last.
fn ends(pattern: &str) -> (&str, &str) {
    let first = pattern.split_once(ANY).map_or(pattern, |(first, _)| first);
    let last = pattern.rsplit_once(ANY).map_or("", |(_, last)| last);
    (first, last)
}

fn hash_ends(first: &str, last: &str) -> u64 {
    join_hashes(hash_more(SEED, first.as_bytes()), hash_more(SEED, last.as_bytes()))
}

const SEED: u64 = 0x2d35_8dcc_aa6c_78a5;

/// The hash of a text and these bytes after it, from the hash of the text.
fn hash_more(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

fn join_hashes(first: u64, last: u64) -> u64 {
    let wide = u128::from(first) * u128::from(last | 1);
    (wide as u64) ^ ((wide >> 64) as u64)
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
