//! The rules as a tree of descriptors, compiled so that a step costs the same in any file.
//!
//! All children of all nodes lie in one hash table by (parent, key, value), those with a pattern
//! in an index of their own for each parent and key. A node and its text lie together, because
//! with many rules a request pays for memory that it touches first.

use std::collections::HashMap;

use hashbrown::HashTable;
use rapidhash::v3::rapidhash_v3;
use serde_json::Value;

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
    exact: HashTable<u32>,
    slots: HashTable<Slot>,
    globs: Vec<Globs>,
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
    pub(crate) origin: Origin,
}

/// The limits of a node, as positions in `rules`, or one in `unlimited`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Limits {
    #[default]
    None,
    Unlimited(u32),
    Some {
        first: u32,
        end: u32,
    },
}

/// What is true of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) has_value: bool,
    pub(crate) has_children: bool,
    pub(crate) has_wild: bool,
    pub(crate) share: bool,
    /// This node or one above it shares its counter.
    pub(crate) share_on_way: bool,
    pub(crate) detailed_metric: bool,
    pub(crate) value_to_metric: bool,
}

/// The children of a node that share a key: the one for any value, and those with patterns.
#[derive(Debug)]
struct Slot {
    hash: u64,
    /// Any child with the key, which knows it.
    sample: u32,
    any: u32,
    globs: u32,
}

/// Children that are looked for with more than the value.
#[derive(Debug)]
enum Wild {
    /// By patterns of keys, one after the other.
    Keys(Vec<WildKey>),
    /// By patterns over `key_value`.
    Joined(Globs),
}

#[derive(Debug)]
struct WildKey {
    order: u32,
    node: u32,
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

    /// The children of a node, in the order they were written. Slow: for explanations.
    pub(crate) fn children(&self, parent: u32) -> impl Iterator<Item = u32> {
        let nodes = self.nodes.iter().zip(0u32..);
        nodes.filter(move |(node, _)| node.parent == parent).map(|(_, index)| index)
    }

    /// The child that an entry leads to: that of the exact value, else the first whose pattern
    /// matches, else that of the key alone.
    #[inline]
    pub(crate) fn step(&self, parent: u32, key: &str, value: &str) -> Option<(u32, How)> {
        let flags = self.node(parent).flags;
        if !flags.has_children {
            return None;
        }
        if let Some(exact) = self.find_exact(parent, key, value) {
            return Some((exact, How::Value));
        }
        let slot = self.find_slot(parent, key);
        let has_patterns = flags.has_wild || slot.is_some_and(|slot| slot.globs != NONE);
        if has_patterns && let Some(wild) = self.find_wild(parent, slot, key, value) {
            return Some((wild, How::Pattern));
        }
        slot.filter(|slot| slot.any != NONE).map(|slot| (slot.any, How::Key))
    }

    #[inline]
    fn find_exact(&self, parent: u32, key: &str, value: &str) -> Option<u32> {
        let found = self.exact.find(hash(parent, key, value), |index| {
            let node = self.node(*index);
            let text = self.text.as_bytes();
            let start = node.start as usize;
            let middle = start + node.key_len as usize;
            node.parent == parent
                && node.key_len as usize == key.len()
                && node.value_len as usize == value.len()
                && &text[start..middle] == key.as_bytes()
                && &text[middle..middle + value.len()] == value.as_bytes()
        });
        found.copied()
    }

    #[inline]
    fn find_slot(&self, parent: u32, key: &str) -> Option<&Slot> {
        self.slots.find(hash_key(parent, key), |slot| {
            let sample = self.node(slot.sample);
            sample.parent == parent && self.key(sample) == key
        })
    }

    fn find_wild(&self, parent: u32, slot: Option<&Slot>, key: &str, value: &str) -> Option<u32> {
        let in_slot = slot
            .filter(|slot| slot.globs != NONE)
            .and_then(|slot| self.globs[slot.globs as usize].find(value));
        let by_parent = match self.wild.get(&parent) {
            Some(Wild::Keys(keys)) => keys.iter().find_map(|wild| {
                self.matches_key(wild.node, key, value).then_some((wild.order, wild.node))
            }),
            Some(Wild::Joined(globs)) => globs.find(&[key, "_", value].concat()),
            None => None,
        };
        let first = in_slot.into_iter().chain(by_parent).min_by_key(|(order, _)| *order);
        first.map(|(_, node)| node)
    }

    /// The first child without a value whose key is a pattern that matches.
    fn find_wild_key(&self, parent: u32, key: &str) -> Option<u32> {
        let Some(Wild::Keys(keys)) = self.wild.get(&parent) else { return None };
        let mut nodes = keys.iter().map(|wild| wild.node);
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
        self.find_wild(parent, slot, key, value).filter(|found| *found != node)
    }
}

/// Building.
impl Tree {
    /// A root for a domain.
    pub(crate) fn plant(&mut self, origin: Origin) -> u32 {
        self.push(NONE, "", None, Limits::None, Flags::default(), origin)
    }

    /// Adds the descriptors of a domain, which have been checked for doubles.
    pub(crate) fn grow(&mut self, parent: u32, drafts: Vec<DescriptorDraft>) {
        let mut patterns: HashMap<Box<str>, Vec<Glob>> = HashMap::new();
        let mut wild_keys = Vec::new();
        let mut joined: Vec<Glob> = Vec::new();
        for (order, draft) in (0u32..).zip(drafts) {
            let DescriptorDraft { key, value, limits, children, metadata, flags, origin } = draft;
            let limits = self.add_limits(limits);
            let share_on_way = flags.share || self.node(parent).flags.share_on_way;
            let flags = Flags { share_on_way, ..flags };
            let node = self.push(parent, &key, value.as_deref(), limits, flags, origin);
            if let Some(metadata) = metadata {
                self.metadata.insert(node, metadata);
            }
            self.nodes[parent as usize].flags.has_children = true;
            if let Some(value) = &value {
                self.insert_exact(parent, &key, value, node);
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
                    joined.push(Glob { order, pattern: pattern.into(), target: node });
                }
                (true, _) => wild_keys.push(WildKey { order, node }),
                (false, Some(value)) => {
                    let glob = Glob { order, pattern: value.into(), target: node };
                    patterns.entry(key.clone()).or_default().push(glob);
                }
                (false, None) if value.is_none() => self.slot(parent, &key, node).any = node,
                (false, None) => {}
            }
            self.grow(node, children);
        }
        for (key, patterns) in patterns {
            let node = patterns[0].target;
            let index = u32::try_from(self.globs.len()).unwrap_or(NONE);
            self.globs.push(Globs::new(patterns));
            self.slot(parent, &key, node).globs = index;
        }
        if !wild_keys.is_empty() {
            self.nodes[parent as usize].flags.has_wild = true;
            self.wild.insert(parent, Wild::Keys(wild_keys));
        } else if !joined.is_empty() {
            self.nodes[parent as usize].flags.has_wild = true;
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
                Limits::Some { first, end: u32::try_from(self.rules.len()).unwrap_or(NONE) }
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
            origin,
        });
        index
    }

    fn insert_exact(&mut self, parent: u32, key: &str, value: &str, node: u32) {
        let Self { exact, nodes, text, .. } = self;
        exact.insert_unique(hash(parent, key, value), node, |index| {
            let node = &nodes[*index as usize];
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
            .or_insert_with(|| Slot { hash, sample, any: NONE, globs: NONE })
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
