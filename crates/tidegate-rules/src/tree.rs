//! The rules as a tree of descriptors, compiled so that a step costs the same in any file.
//!
//! All children of all nodes lie in one hash table by (parent, key, value), those with a pattern
//! in an index of their own for each parent and key. With many rules a request pays for the memory
//! that it touches first, and not for what it computes; so a table holds, in one piece, the text
//! that is compared and all that is needed to go on.

use std::collections::HashMap;
use std::ops::Range;

use hashbrown::HashTable;
use rapidhash::v3::rapidhash_v3;
use serde_json::Value;
use smallvec::SmallVec;

use crate::draft::{DescriptorDraft, LimitsDraft};
use crate::glob::{self, Glob, Globs};
use crate::rule::{Origin, Rule, Unlimited};

/// No node, no index.
const NONE: u32 = u32::MAX;

/// The compiled tree.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// The key and the value of each node, one after the other.
    text: String,
    /// Where each node was written.
    origins: Vec<Origin>,
    exact: HashTable<Edge>,
    /// Nodes with a pattern by the text of it.
    starred: HashMap<(u32, Box<str>, Box<str>), Stop>,
    slots: HashTable<Slot>,
    globs: Vec<Globs<Stop>>,
    /// Children whose key is a pattern, or with Lyft's matching all that are one, by parent.
    wild: HashMap<u32, Wild>,
    /// All nodes that are found by a pattern, with their parents.
    patterns: Vec<(u32, u32)>,
    /// What proxies get back, by node.
    metadata: HashMap<u32, Value>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) unlimited: Vec<Unlimited>,
    /// Match patterns over `key_value` as one text, as Lyft's service does.
    joined: bool,
}

/// A descriptor.
#[derive(Debug)]
pub(crate) struct Node {
    parent: u32,
    start: u32,
    key_len: u32,
    value_len: u32,
    pub(crate) limits: Limits,
    pub(crate) flags: Flags,
    signs: Signs,
}

/// The limits of a node, as positions in `rules`, or one in `unlimited`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Limits {
    #[default]
    None,
    Unlimited(u32),
    Some {
        first: u32,
        count: u16,
    },
}

impl Limits {
    /// The positions of limits; none of them where there are none.
    #[inline]
    pub(crate) fn range(self) -> Range<usize> {
        match self {
            Self::Some { first, count } => first as usize..first as usize + usize::from(count),
            _ => 0..0,
        }
    }
}

/// A node as one comes to it: what a request needs of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stop {
    pub(crate) node: u32,
    pub(crate) limits: Limits,
    pub(crate) signs: Signs,
}

/// What is true of a node for those who come to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signs {
    pub(crate) children: Children,
    /// Some of its children are found by patterns that the key alone does not lead to.
    pub(crate) has_wild: bool,
    /// Its limits are for everybody: turned on, for all keys, nobody exempt, nothing replaced.
    pub(crate) is_plain: bool,
    /// This node or one above it shares its counter.
    pub(crate) share_on_way: bool,
}

/// What children a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Children {
    #[default]
    None,
    /// None of them is for an exact value.
    NoExact,
    Some,
}

/// How much of a key and a value lies in the table itself.
const INLINE: usize = 40;

/// The way to a node by its exact value. It fills a line of the cache and no more.
#[derive(Debug)]
#[repr(align(64))]
struct Edge {
    parent: u32,
    key_len: u16,
    value_len: u16,
    stop: Stop,
    /// The key and the value, if there is room for them; otherwise they are with the node.
    text: [u8; INLINE],
}

const _: () = assert!(size_of::<Edge>() == 64);

/// What is true of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) has_value: bool,
    pub(crate) share: bool,
    pub(crate) detailed_metric: bool,
    pub(crate) value_to_metric: bool,
}

/// The children of a node that share a key: the one for any value, and those with patterns.
#[derive(Debug)]
struct Slot {
    hash: u64,
    /// Any child with the key, which knows it.
    sample: u32,
    any: Option<Stop>,
    globs: u32,
}

/// Children that are looked for with more than the value.
#[derive(Debug)]
enum Wild {
    /// By patterns of keys, one after the other.
    Keys(Vec<WildKey>),
    /// By patterns over `key_value`.
    Joined(Globs<Stop>),
}

#[derive(Debug)]
struct WildKey {
    order: u32,
    stop: Stop,
}

/// A descriptor whose matches share one counter, as it is written.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

/// How a child was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Value,
    Pattern,
    Key,
}

impl Tree {
    pub(crate) fn new(joined: bool) -> Self {
        Self { joined, ..Self::default() }
    }

    /// A node as one comes to it.
    pub(crate) fn stop(&self, node: u32) -> Stop {
        let Node { limits, signs, .. } = *self.node(node);
        Stop { node, limits, signs }
    }

    pub(crate) fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    pub(crate) fn key(&self, node: &Node) -> &str {
        let start = node.start as usize;
        &self.text[start..start + node.key_len as usize]
    }

    pub(crate) fn value<'a>(&'a self, node: &Node) -> Option<&'a str> {
        let start = (node.start + node.key_len) as usize;
        node.flags.has_value.then(|| &self.text[start..start + node.value_len as usize])
    }

    /// How many bytes the key and the value of a node have.
    pub(crate) fn text_len(&self, node: u32) -> usize {
        let node = self.node(node);
        (node.key_len + node.value_len) as usize
    }

    pub(crate) fn origin(&self, node: u32) -> Origin {
        self.origins[node as usize]
    }

    /// The root of a domain.
    #[inline]
    pub(crate) fn root(&self, domain: &str) -> Option<Stop> {
        self.find_slot(NONE, domain)?.any
    }

    /// For each entry that leads to a node the pattern that shares a counter, if it is one;
    /// nothing at all if none is.
    pub(crate) fn shared_patterns(&self, stop: &Stop) -> SmallVec<[Option<Shared<'_>>; 4]> {
        if !stop.signs.share_on_way {
            return SmallVec::new();
        }
        let way = self.way_to(stop.node).into_iter().map(|node| self.node(node));
        let shared = way.map(|node| {
            let value = self.value(node).unwrap_or_default();
            node.flags.share.then(|| Shared { key: self.key(node), value })
        });
        shared.collect()
    }

    pub(crate) fn metadata(&self, node: u32) -> Option<&Value> {
        self.metadata.get(&node)
    }

    /// The nodes from the root of a domain to this one, without the root.
    pub(crate) fn way_to(&self, mut node: u32) -> Vec<u32> {
        let mut way = Vec::new();
        while self.node(node).parent != NONE {
            way.push(node);
            node = self.node(node).parent;
        }
        way.reverse();
        way
    }

    /// The domain that a node is in.
    pub(crate) fn domain(&self, mut node: u32) -> &str {
        while self.node(node).parent != NONE {
            node = self.node(node).parent;
        }
        self.key(self.node(node))
    }

    /// The nodes that have limits, with the positions of those.
    pub(crate) fn limited(&self) -> impl Iterator<Item = (u32, Range<usize>)> {
        let nodes = self.nodes.iter().zip(0u32..).map(|(node, index)| (index, node.limits.range()));
        nodes.filter(|(_, limits)| !limits.is_empty())
    }

    /// The children of a node, in the order they were written. Slow: for explanations.
    pub(crate) fn children(&self, parent: u32) -> impl Iterator<Item = u32> {
        let nodes = self.nodes.iter().zip(0u32..);
        nodes.filter(move |(node, _)| node.parent == parent).map(|(_, index)| index)
    }

    /// The child that an entry leads to: that of the exact value, else the first whose pattern
    /// matches, else that of the key alone.
    #[inline]
    pub(crate) fn step(&self, parent: &Stop, key: &str, value: &str) -> Option<(Stop, How)> {
        match parent.signs.children {
            Children::None => return None,
            Children::NoExact => {}
            Children::Some => {
                if let Some(exact) = self.find_exact(parent.node, key, value) {
                    return Some((exact, How::Value));
                }
            }
        }
        let slot = self.find_slot(parent.node, key);
        if !self.starred.is_empty()
            && (glob::is_pattern(value) || glob::is_pattern(key))
            && let Some(starred) = self.starred.get(&(parent.node, key.into(), value.into()))
        {
            return Some((*starred, How::Value));
        }
        let has_patterns = parent.signs.has_wild || slot.is_some_and(|slot| slot.globs != NONE);
        if has_patterns && let Some(wild) = self.find_wild(parent, slot, key, value) {
            return Some((wild, How::Pattern));
        }
        slot?.any.map(|any| (any, How::Key))
    }

    #[inline]
    fn find_exact(&self, parent: u32, key: &str, value: &str) -> Option<Stop> {
        let found = self.exact.find(hash(parent, key, value), |edge| {
            edge.parent == parent
                && usize::from(edge.key_len) == key.len()
                && usize::from(edge.value_len) == value.len()
                && self.is_text_of(edge, key, value)
        });
        found.map(|edge| edge.stop)
    }

    /// Whether an edge, whose key and value have these lengths, is for them.
    #[inline]
    fn is_text_of(&self, edge: &Edge, key: &str, value: &str) -> bool {
        let end = key.len() + value.len();
        if end > INLINE {
            let node = self.node(edge.stop.node);
            return self.key(node) == key && self.value(node) == Some(value);
        }
        let (start, rest) = edge.text[..end].split_at(key.len());
        start == key.as_bytes() && rest == value.as_bytes()
    }

    #[inline]
    fn find_slot(&self, parent: u32, key: &str) -> Option<&Slot> {
        self.slots.find(hash_key(parent, key), |slot| {
            let sample = self.node(slot.sample);
            sample.parent == parent && self.key(sample) == key
        })
    }

    fn find_wild(
        &self,
        parent: &Stop,
        slot: Option<&Slot>,
        key: &str,
        value: &str,
    ) -> Option<Stop> {
        let in_slot = slot
            .filter(|slot| slot.globs != NONE)
            .and_then(|slot| self.globs[slot.globs as usize].find(value));
        let wild = if parent.signs.has_wild { self.wild.get(&parent.node) } else { None };
        let by_parent = match wild {
            Some(Wild::Keys(keys)) => keys.iter().find_map(|wild| {
                let matches = self.matches_key(wild.stop.node, key, value);
                matches.then_some((wild.order, wild.stop))
            }),
            Some(Wild::Joined(globs)) => globs.find(&[key, "_", value].concat()),
            None => None,
        };
        let first = in_slot.into_iter().chain(by_parent).min_by_key(|(order, _)| *order);
        first.map(|(_, stop)| stop)
    }

    /// The first child without a value whose key is a pattern that matches.
    fn find_wild_key(&self, parent: u32, key: &str) -> Option<u32> {
        let Some(Wild::Keys(keys)) = self.wild.get(&parent) else { return None };
        let mut nodes = keys.iter().map(|wild| wild.stop.node);
        nodes.find(|node| {
            let node = self.node(*node);
            self.value(node).is_none() && glob::matches(self.key(node), key)
        })
    }

    fn matches_key(&self, node: u32, key: &str, value: &str) -> bool {
        let node = self.node(node);
        glob::matches(self.key(node), key)
            && self.value(node).is_none_or(|pattern| glob::matches(pattern, value))
    }

    /// The nodes that are found by a pattern, with their parents.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (u32, u32)> {
        self.patterns.iter().copied()
    }

    /// The node whose pattern stands before that of another one and matches all that it matches.
    pub(crate) fn covered_by(&self, parent: u32, node: u32) -> Option<u32> {
        let key = self.key(self.node(node));
        let Some(value) = self.value(self.node(node)) else {
            return self.find_wild_key(parent, key).filter(|found| *found != node);
        };
        // A star of the later pattern is matched by nothing but a star of the earlier one.
        let slot = self.find_slot(parent, key);
        let found = self.find_wild(&self.stop(parent), slot, key, value)?.node;
        (found != node).then_some(found)
    }
}

/// Building.
impl Tree {
    /// A root for a domain.
    pub(crate) fn plant(&mut self, domain: &str, origin: Origin) -> u32 {
        self.push(NONE, domain, None, Limits::None, Flags::default(), origin)
    }

    /// Makes a root known under its domain, once all that is below it is there.
    pub(crate) fn open(&mut self, domain: &str, root: u32) {
        let stop = self.stop(root);
        self.slot(NONE, domain, root).any = Some(stop);
    }

    /// Adds the descriptors of a domain, which have been checked for doubles.
    pub(crate) fn grow(&mut self, parent: u32, drafts: Vec<DescriptorDraft>) {
        let mut patterns: HashMap<Box<str>, Vec<Glob<Stop>>> = HashMap::new();
        let mut wild_keys = Vec::new();
        let mut joined: Vec<Glob<Stop>> = Vec::new();
        for (order, draft) in (0u32..).zip(drafts) {
            let DescriptorDraft { key, value, limits, children, metadata, flags, origin } = draft;
            let limits = self.add_limits(limits);
            let is_plain = self.rules[limits.range()].iter().all(Rule::is_plain);
            let share_on_way = flags.share || self.node(parent).signs.share_on_way;
            let node = self.push(parent, &key, value.as_deref(), limits, flags, origin);
            if let Some(metadata) = metadata {
                self.metadata.insert(node, metadata);
            }
            let signs = &mut self.nodes[node as usize].signs;
            (signs.is_plain, signs.share_on_way) = (is_plain, share_on_way);
            let is_exact = |value: &str| !glob::is_pattern(value) && !glob::is_pattern(&key);
            let kind = match value.as_deref() {
                Some(value) if is_exact(value) => Children::Some,
                _ => Children::NoExact,
            };
            let signs = &mut self.nodes[parent as usize].signs;
            signs.children = signs.children.max(kind);
            // What is known of a node is copied to where it is found, so its children come first.
            self.grow(node, children);
            let stop = self.stop(node);
            match &value {
                // A pattern is found by its own text too, if somebody writes a star.
                Some(value) if glob::is_pattern(value) || glob::is_pattern(&key) => {
                    self.starred.insert((parent, key.clone(), value.clone()), stop);
                }
                Some(value) => self.insert_exact(parent, &key, value, stop),
                None => {}
            }
            if glob::is_pattern(&key) || value.as_deref().is_some_and(glob::is_pattern) {
                self.patterns.push((parent, node));
            }
            let wild_value = value.as_deref().filter(|value| glob::is_pattern(value));
            match (glob::is_pattern(&key), wild_value) {
                (true, _) | (_, Some(_)) if self.joined => {
                    let pattern = match &value {
                        Some(value) => [&*key, "_", value].concat(),
                        None => key.to_string(),
                    };
                    joined.push(Glob { order, pattern: pattern.into(), target: stop });
                }
                (true, _) => wild_keys.push(WildKey { order, stop }),
                (false, Some(value)) => {
                    let glob = Glob { order, pattern: value.into(), target: stop };
                    patterns.entry(key.clone()).or_default().push(glob);
                }
                (false, None) if value.is_none() => self.slot(parent, &key, node).any = Some(stop),
                (false, None) => {}
            }
        }
        for (key, patterns) in patterns {
            let node = patterns[0].target.node;
            let index = u32::try_from(self.globs.len()).unwrap_or(NONE);
            self.globs.push(Globs::new(patterns));
            self.slot(parent, &key, node).globs = index;
        }
        if !wild_keys.is_empty() {
            self.nodes[parent as usize].signs.has_wild = true;
            self.wild.insert(parent, Wild::Keys(wild_keys));
        } else if !joined.is_empty() {
            self.nodes[parent as usize].signs.has_wild = true;
            self.wild.insert(parent, Wild::Joined(Globs::new(joined)));
        }
    }

    fn add_limits(&mut self, limits: LimitsDraft) -> Limits {
        let first = u32::try_from(self.rules.len()).unwrap_or(NONE);
        match limits {
            LimitsDraft::None => Limits::None,
            LimitsDraft::Unlimited(rule) => {
                self.unlimited.push(rule);
                Limits::Unlimited(u32::try_from(self.unlimited.len() - 1).unwrap_or(NONE))
            }
            LimitsDraft::Some(rules) => {
                self.rules.extend(rules);
                let count = self.rules.len() - first as usize;
                Limits::Some { first, count: u16::try_from(count).unwrap_or(u16::MAX) }
            }
        }
    }

    fn push(
        &mut self,
        parent: u32,
        key: &str,
        value: Option<&str>,
        limits: Limits,
        flags: Flags,
        origin: Origin,
    ) -> u32 {
        let index = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        // Files are bounded far below what 32 bits can count.
        let narrow = |len: usize| u32::try_from(len).unwrap_or(NONE);
        let start = narrow(self.text.len());
        self.text.push_str(key);
        self.text.push_str(value.unwrap_or_default());
        self.nodes.push(Node {
            parent,
            start,
            key_len: narrow(key.len()),
            value_len: narrow(value.map_or(0, str::len)),
            limits,
            flags: Flags { has_value: value.is_some(), ..flags },
            signs: Signs::default(),
        });
        self.origins.push(origin);
        index
    }

    fn insert_exact(&mut self, parent: u32, key: &str, value: &str, stop: Stop) {
        let mut text = [0; INLINE];
        let parts = key.bytes().chain(value.bytes());
        text.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
        let node = self.node(stop.node);
        // Longer than that no way to a descriptor may be, and a file that has one is refused.
        let narrow = |length: u32| u16::try_from(length).unwrap_or(u16::MAX);
        let (key_len, value_len) = (narrow(node.key_len), narrow(node.value_len));
        let edge = Edge { parent, key_len, value_len, stop, text };
        let Self { exact, nodes, text, .. } = self;
        exact.insert_unique(hash(parent, key, value), edge, |edge| {
            let node = &nodes[edge.stop.node as usize];
            let middle = (node.start + node.key_len) as usize;
            let key = &text[node.start as usize..middle];
            hash(node.parent, key, &text[middle..middle + node.value_len as usize])
        });
    }

    fn slot(&mut self, parent: u32, key: &str, sample: u32) -> &mut Slot {
        let hash = hash_key(parent, key);
        let Self { slots, nodes, text, .. } = self;
        let same = |slot: &Slot| {
            let node = &nodes[slot.sample as usize];
            let start = node.start as usize;
            node.parent == parent && &text[start..start + node.key_len as usize] == key
        };
        slots
            .entry(hash, same, |slot| slot.hash)
            .or_insert_with(|| Slot { hash, sample, any: None, globs: NONE })
            .into_mut()
    }
}

#[inline]
fn hash(parent: u32, key: &str, value: &str) -> u64 {
    mix(hash_key(parent, key), rapidhash_v3(value.as_bytes()))
}

#[inline]
fn hash_key(parent: u32, key: &str) -> u64 {
    mix(u64::from(parent) ^ 0x9e37_79b9_7f4a_7c15, rapidhash_v3(key.as_bytes()))
}

/// One number of two, in which order matters.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let wide = u128::from(a ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(b ^ 0x8bb8_4b93_962e_acc9);
    (wide as u64) ^ ((wide >> 64) as u64)
}
