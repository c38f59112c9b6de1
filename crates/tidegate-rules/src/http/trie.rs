//! Which patterns match a path, found without trying them all.
//!
//! A trie over segments: from a node lead the literal segments, all in one hash table, the ones
//! with stars in an index of their own, and one for any segment. A request visits only nodes whose
//! patterns match so far, and each of them once.

use std::collections::HashMap;

use hashbrown::HashTable;
use rapidhash::v3::rapidhash_v3;
use smallvec::SmallVec;

use super::path::NormalPath;
use super::pattern::{PathPattern, Segment};
use crate::glob::{Glob, Globs};

/// No node.
const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;

/// The compiled patterns of a list.
#[derive(Debug)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    literals: HashTable<u32>,
}

#[derive(Debug)]
struct Node {
    parent: u32,
    /// The literal segment that leads here, if it is one.
    text: Box<str>,
    any: u32,
    globs: Globs<u32>,
    /// Patterns that end here, by their position in the list.
    here: Vec<u32>,
    /// Patterns that end here in `**`.
    rest: Vec<u32>,
}

/// Nodes to visit, with how many segments lead there. Use one again for the next path.
pub(crate) type Visits = SmallVec<[(u32, u32); 8]>;
/// The patterns that match, by their position in the list.
pub(crate) type Candidates = SmallVec<[u32; 16]>;

impl Trie {
    /// Compiles patterns; where there is none, any path will do.
    pub(crate) fn new<'p>(patterns: impl IntoIterator<Item = Option<&'p PathPattern>>) -> Self {
        let mut trie = Self { nodes: vec![Node::new(NONE, "")], literals: HashTable::new() };
        let mut globs: HashMap<(u32, &'p str), u32> = HashMap::new();
        for (position, pattern) in (0u32..).zip(patterns) {
            let (segments, rest) = pattern.map_or((&[][..], true), |it| (&it.segments, it.rest));
            let node = segments.iter().fold(ROOT, |node, segment| match segment {
                Segment::Literal(text) => trie.literal(node, text),
                Segment::Glob(pattern) => {
                    *globs.entry((node, pattern)).or_insert_with(|| trie.push(node, ""))
                }
                Segment::Any | Segment::Name(_) => trie.any(node),
            });
            let node = &mut trie.nodes[node as usize];
            if rest { &mut node.rest } else { &mut node.here }.push(position);
        }
        trie.add_globs(globs);
        trie
    }

    /// All patterns, if each of them matches any path.
    pub(crate) fn for_any_path(&self) -> Option<&[u32]> {
        match &self.nodes[..] {
            [root] if root.here.is_empty() => Some(&root.rest),
            _ => None,
        }
    }

    /// Finds the patterns that match a path, in the order of the list.
    pub(crate) fn find(&self, path: &NormalPath, visits: &mut Visits, found: &mut Candidates) {
        found.clear();
        visits.clear();
        visits.push((ROOT, 0));
        while let Some((index, depth)) = visits.pop() {
            let node = &self.nodes[index as usize];
            found.extend_from_slice(&node.rest);
            let Some(segment) = path.segment(depth as usize) else {
                found.extend_from_slice(&node.here);
                continue;
            };
            if let Some(next) = self.find_literal(index, segment) {
                visits.push((next, depth + 1));
            }
            if node.any != NONE {
                visits.push((node.any, depth + 1));
            }
            node.globs.each(segment, |next| visits.push((next, depth + 1)));
        }
        found.sort_unstable();
    }

    fn find_literal(&self, parent: u32, text: &str) -> Option<u32> {
        let found = self.literals.find(hash(parent, text), |index| {
            let node = &self.nodes[*index as usize];
            node.parent == parent && *node.text == *text
        });
        found.copied()
    }
}

/// Building.
impl Trie {
    fn literal(&mut self, parent: u32, text: &str) -> u32 {
        if let Some(found) = self.find_literal(parent, text) {
            return found;
        }
        let node = self.push(parent, text);
        let Self { nodes, literals } = self;
        literals.insert_unique(hash(parent, text), node, |index| {
            let node = &nodes[*index as usize];
            hash(node.parent, &node.text)
        });
        node
    }

    fn any(&mut self, parent: u32) -> u32 {
        if self.nodes[parent as usize].any == NONE {
            self.nodes[parent as usize].any = self.push(parent, "");
        }
        self.nodes[parent as usize].any
    }

    fn push(&mut self, parent: u32, text: &str) -> u32 {
        // Files are bounded far below what 32 bits can count.
        let index = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        self.nodes.push(Node::new(parent, text));
        index
    }

    fn add_globs(&mut self, globs: HashMap<(u32, &str), u32>) {
        let mut by_parent: HashMap<u32, Vec<Glob<u32>>> = HashMap::new();
        for ((parent, pattern), target) in globs {
            let glob = Glob { order: target, pattern: pattern.into(), target };
            by_parent.entry(parent).or_default().push(glob);
        }
        for (parent, globs) in by_parent {
            self.nodes[parent as usize].globs = Globs::new(globs);
        }
    }
}

impl Node {
    fn new(parent: u32, text: &str) -> Self {
        let (here, rest) = (Vec::new(), Vec::new());
        Self { parent, text: text.into(), any: NONE, globs: Globs::default(), here, rest }
    }
}

fn hash(parent: u32, text: &str) -> u64 {
    // The table takes the highest and the lowest bits, and a product fills both.
    (rapidhash_v3(text.as_bytes()) ^ u64::from(parent)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn find(patterns: &[String], path: &str) -> Vec<u32> {
        let patterns: Vec<_> = patterns.iter().map(|it| PathPattern::parse(it).unwrap()).collect();
        let mut normal = NormalPath::default();
        normal.set(path);
        let (mut visits, mut found) = (Visits::new(), Candidates::new());
        let trie = Trie::new(patterns.iter().map(Some));
        trie.find(&normal, &mut visits, &mut found);
        assert!(trie.for_any_path().is_none_or(|all| all == &found[..]));
        found.to_vec()
    }

    /// The definition, on lists of segments: `**` takes nothing, or one segment and then the rest.
    fn by_definition(pattern: &[&str], path: &[&str]) -> bool {
        match (pattern.split_first(), path.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((&"**", after)), None) => by_definition(after, path),
            (Some((&"**", after)), Some((_, rest))) => {
                by_definition(after, path) || by_definition(pattern, rest)
            }
            (Some(_), None) => false,
            (Some((wanted, after)), Some((found, rest))) => {
                segment_by_definition(wanted, found) && by_definition(after, rest)
            }
        }
    }

    fn segment_by_definition(pattern: &str, text: &str) -> bool {
        if pattern.starts_with('{') {
            return !text.is_empty();
        }
        match (pattern.chars().next(), text.chars().next()) {
            (None, None) => true,
            (Some('*'), None) => segment_by_definition(&pattern[1..], text),
            (Some('*'), Some(_)) => {
                segment_by_definition(&pattern[1..], text)
                    || segment_by_definition(pattern, &text[1..])
            }
            (Some(wanted), Some(found)) if wanted == found => {
                segment_by_definition(&pattern[1..], &text[1..])
            }
            _ => false,
        }
    }

    fn list(text: &str) -> Vec<&str> {
        text.split('/').filter(|segment| !segment.is_empty()).collect()
    }

    fn pattern() -> impl Strategy<Value = String> {
        let segment = prop_oneof![
            4 => "[ab]{1,2}",
            1 => Just("*".to_owned()),
            2 => "[ab]{0,1}\\*[ab]{0,1}".prop_filter("no double star", |it| it != "**"),
        ];
        let segments = proptest::collection::vec((segment, any::<bool>()), 0..5);
        (segments, any::<bool>(), any::<bool>()).prop_map(|(segments, rest, slash)| {
            let mut text = String::new();
            for (position, (segment, named)) in segments.iter().enumerate() {
                match segment.as_str() {
                    "*" if *named => text.push_str(&format!("/{{n{position}}}")),
                    segment => text.push_str(&format!("/{segment}")),
                }
            }
            text.push_str(if rest { "/**" } else { "" });
            text.push_str(if slash || text.is_empty() { "/" } else { "" });
            text
        })
    }

    proptest! {
        #[test]
        fn the_trie_finds_what_the_definition_says(
            patterns in proptest::collection::vec(pattern(), 0..40),
            path in "(/[ab]{0,3}){0,6}",
        ) {
            let wanted: Vec<u32> = (0u32..)
                .zip(&patterns)
                .filter(|(_, pattern)| by_definition(&list(pattern), &list(&path)))
                .map(|(position, _)| position)
                .collect();
            prop_assert_eq!(find(&patterns, &path), wanted.clone());
            let mut normal = NormalPath::default();
            normal.set(&path);
            let one_by_one: Vec<u32> = (0u32..)
                .zip(&patterns)
                .filter(|(_, pattern)| PathPattern::parse(pattern).unwrap().matches(&normal))
                .map(|(position, _)| position)
                .collect();
            prop_assert_eq!(one_by_one, wanted);
        }
    }

    #[test]
    fn a_request_visits_few_of_many_patterns() {
        let patterns: Vec<_> = (0..10_000).map(|it| format!("/v1/p{it}/x*{it}/{{id}}")).collect();
        let patterns: Vec<_> = patterns.iter().map(|it| PathPattern::parse(it).unwrap()).collect();
        let trie = Trie::new(patterns.iter().map(Some));
        let mut normal = NormalPath::default();
        normal.set("/v1/p77/x-77/9");
        let (mut visits, mut found) = (Visits::new(), Candidates::new());
        trie.find(&normal, &mut visits, &mut found);
        assert_eq!(&*found, [77]);
        assert!(!visits.spilled());
    }
}
