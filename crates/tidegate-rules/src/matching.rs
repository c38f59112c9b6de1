//! From the descriptors of a request to the limits it meets and the keys they count.

use std::net::IpAddr;
use std::ops::Range;

use smallvec::SmallVec;

use crate::glob::is_pattern;
use crate::rule::{Rule, Unit};
use crate::rules::Rules;
use crate::tree::{Limits, Tree};

/// One entry of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a str,
    /// The address that the value was made from, where one is grouped into a prefix; `exempt`
    /// looks at it.
    pub address: Option<IpAddr>,
}

impl<'a> Entry<'a> {
    /// A plain entry.
    pub fn new(key: &'a str, value: &'a str) -> Self {
        Self { key, value, address: None }
    }
}

/// What a request is counted by, once: an ordered list of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor<'a> {
    /// The entries.
    pub entries: &'a [Entry<'a>],
    /// The cost, if it is not the request's.
    pub cost: Option<u64>,
    /// A limit that the request brings along instead of the one in the rules.
    pub limit: Option<Override>,
}

impl<'a> Descriptor<'a> {
    /// A plain descriptor.
    pub fn new(entries: &'a [Entry<'a>]) -> Self {
        Self { entries, cost: None, limit: None }
    }
}

/// A limit that a request brings along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Override {
    /// How many.
    pub requests_per_unit: u32,
    /// Per what.
    pub unit: Unit,
}

/// A limit that a request meets.
#[derive(Clone, Debug)]
pub struct Met<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// Its position among all rules.
    pub index: u32,
    /// Which descriptor of the request led to it.
    pub descriptor: u32,
    key: Range<u32>,
}

/// Where a descriptor led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// To no limit.
    Nothing,
    /// To a rule that says there is none.
    Unlimited,
    /// To limits, which may have been left out because they are turned off, replaced, or the key
    /// is exempt.
    Limits,
    /// To the limit that the request brought along.
    Override(Override),
}

/// What was found for a request. Use one again for the next request: it then allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Found<'r> {
    /// Whether the rules know the domain.
    pub knows_domain: bool,
    /// The limits, in the order of the descriptors and, within one, of the rules.
    pub limits: SmallVec<[Met<'r>; 4]>,
    /// Where each descriptor led.
    pub reached: SmallVec<[Reached; 4]>,
    nodes: SmallVec<[u32; 4]>,
    keys: SmallVec<[u8; 256]>,
    key_of: SmallVec<[Range<u32>; 4]>,
}

/// No node was reached.
const NOWHERE: u32 = u32::MAX;

impl<'r> Found<'r> {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes that a limit counts: different for different domains and descriptors.
    pub fn key(&self, met: &Met<'r>) -> &[u8] {
        self.bytes(&met.key)
    }

    /// The bytes that stand for a descriptor that brought its limit along.
    pub fn override_key(&self, descriptor: usize) -> &[u8] {
        self.key_of.get(descriptor).map_or(&[], |range| self.bytes(range))
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.keys[range.start as usize..range.end as usize]
    }

    fn clear(&mut self) {
        self.knows_domain = false;
        self.limits.clear();
        self.reached.clear();
        self.nodes.clear();
        self.keys.clear();
        self.key_of.clear();
    }
}

impl Rules {
    /// Finds the limits that a request meets.
    ///
    /// Each entry of a descriptor leads one level down: to the child with its exact value, else to
    /// the first whose pattern matches, else to the one with its key alone. Only the limits of the
    /// node that the last entry leads to count.
    pub fn find<'r>(&'r self, domain: &str, descriptors: &[Descriptor<'_>], found: &mut Found<'r>) {
        found.clear();
        let Some(root) = self.root_of(domain) else {
            found.reached.resize(descriptors.len(), Reached::Nothing);
            found.nodes.resize(descriptors.len(), NOWHERE);
            found.key_of.resize(descriptors.len(), 0..0);
            return;
        };
        found.knows_domain = true;
        let mut replaces = false;
        for (position, descriptor) in (0u32..).zip(descriptors) {
            replaces |= self.find_one(domain, root, position, descriptor, found);
        }
        if replaces {
            self.replace(found);
        }
    }

    /// Whether a limit was met that replaces others.
    fn find_one<'r>(
        &'r self,
        domain: &str,
        root: u32,
        position: u32,
        descriptor: &Descriptor<'_>,
        found: &mut Found<'r>,
    ) -> bool {
        let tree = self.tree();
        let start = u32::try_from(found.keys.len()).unwrap_or(u32::MAX);
        if let Some(limit) = descriptor.limit {
            write_own_key(&mut found.keys, domain, descriptor.entries);
            let end = u32::try_from(found.keys.len()).unwrap_or(u32::MAX);
            found.key_of.push(start..end);
            found.nodes.push(NOWHERE);
            found.reached.push(Reached::Override(limit));
            return false;
        }
        found.key_of.push(start..start);
        let Some(node) = walk(tree, root, descriptor.entries) else {
            found.nodes.push(NOWHERE);
            found.reached.push(Reached::Nothing);
            return false;
        };
        found.nodes.push(node);
        let (first, end) = match tree.node(node).limits {
            Limits::None => {
                found.reached.push(Reached::Nothing);
                return false;
            }
            Limits::Unlimited(rule) => {
                found.reached.push(Reached::Unlimited);
                return !tree.unlimited[rule as usize].replaces.is_empty();
            }
            Limits::Some { first, end } => (first, end),
        };
        found.reached.push(Reached::Limits);
        write_key(&mut found.keys, tree, domain, node, descriptor.entries);
        let key = start..u32::try_from(found.keys.len()).unwrap_or(u32::MAX);
        let mut replaces = false;
        for index in first..end {
            let rule = &tree.rules[index as usize];
            if is_met(rule, descriptor.entries.last(), &found.keys[start as usize..]) {
                replaces |= !rule.replaces.is_empty();
                found.limits.push(Met { rule, index, descriptor: position, key: key.clone() });
            }
        }
        replaces
    }

    /// Leaves out the limits that others of the same request stand in for.
    fn replace<'r>(&'r self, found: &mut Found<'r>) {
        let tree = self.tree();
        let mut names: SmallVec<[&str; 4]> = SmallVec::new();
        let unlimited = found.nodes.iter().filter(|node| **node != NOWHERE).filter_map(|node| {
            match tree.node(*node).limits {
                Limits::Unlimited(rule) => Some(&*tree.unlimited[rule as usize].replaces),
                _ => None,
            }
        });
        let limited = found.limits.iter().map(|met| &*met.rule.replaces);
        for replaces in unlimited.chain(limited) {
            names.extend(replaces.iter().map(|name| &**name));
        }
        found
            .limits
            .retain(|met| met.rule.name.as_deref().is_none_or(|name| !names.contains(&name)));
    }

    /// What Lyft's service calls the limit of a descriptor in its statistics.
    ///
    /// `descriptor` is the position of one that reached a limit in `found`, `entries` its entries.
    pub fn stats_key(
        &self,
        domain: &str,
        found: &Found<'_>,
        descriptor: usize,
        entries: &[Entry<'_>],
    ) -> Option<String> {
        let mut key = domain.to_owned();
        let mut add = |name: &str, value: Option<&str>| {
            key.push('.');
            key.push_str(name);
            if let Some(value) = value {
                key.push('_');
                key.push_str(value);
            }
        };
        match found.reached.get(descriptor)? {
            Reached::Nothing => return None,
            Reached::Override(_) => {
                let value = |entry: &Entry<'_>| !entry.value.is_empty();
                entries
                    .iter()
                    .for_each(|entry| add(entry.key, value(entry).then_some(entry.value)));
            }
            Reached::Unlimited | Reached::Limits => {
                let tree = self.tree();
                let way = tree.way_to(found.nodes[descriptor]);
                let detailed =
                    way.last().is_some_and(|leaf| tree.node(*leaf).flags.detailed_metric);
                for (node, entry) in way.iter().map(|node| tree.node(*node)).zip(entries) {
                    let written = tree.value(node);
                    let value = match node.flags {
                        flags if flags.share => written,
                        flags if detailed || flags.value_to_metric => Some(entry.value),
                        _ => written,
                    };
                    add(tree.key(node), value);
                }
            }
        }
        Some(key)
    }

    /// What the rules attach to a descriptor for the proxy.
    pub fn metadata(&self, found: &Found<'_>, descriptor: usize) -> Option<&serde_json::Value> {
        let node = *found.nodes.get(descriptor)?;
        self.tree().metadata(node)
    }
}

/// The node that entries lead to.
#[inline]
pub(crate) fn walk(tree: &Tree, root: u32, entries: &[Entry<'_>]) -> Option<u32> {
    if entries.is_empty() {
        return None;
    }
    entries.iter().try_fold(root, |node, entry| Some(tree.step(node, entry.key, entry.value)?.0))
}

/// Whether a rule applies to a key.
#[inline]
pub(crate) fn is_met(rule: &Rule, last: Option<&Entry<'_>>, key: &[u8]) -> bool {
    if !rule.enabled || !rule.covers(key) {
        return false;
    }
    match (&rule.exempt, last) {
        (Some(exempt), Some(last)) => !exempt.contains(last.value, last.address),
        _ => true,
    }
}

type KeyBytes = SmallVec<[u8; 256]>;

/// Writes the bytes that stand for a descriptor: every part with its length, so that no two
/// descriptors share them. Where a pattern shares its counter, the pattern stands for the value.
fn write_key(out: &mut KeyBytes, tree: &Tree, domain: &str, node: u32, entries: &[Entry<'_>]) {
    write_part(out, b"", domain);
    if !tree.node(node).flags.share_on_way {
        return write_entries(out, entries);
    }
    for (entry, node) in entries.iter().zip(tree.way_to(node)) {
        let node = tree.node(node);
        if !node.flags.share {
            write_entries(out, std::slice::from_ref(entry));
            continue;
        }
        // Where the key is the pattern, its keys share the counter too, and all their values
        // unless one is named.
        match tree.key(node) {
            key if is_pattern(key) => write_part(out, b";", key),
            key => write_part(out, b",", key),
        }
        write_part(out, b"~", tree.value(node).unwrap_or_default());
    }
}

/// The same for a descriptor that brings its own limit.
fn write_own_key(out: &mut KeyBytes, domain: &str, entries: &[Entry<'_>]) {
    write_part(out, b"", domain);
    write_entries(out, entries);
}

fn write_entries(out: &mut KeyBytes, entries: &[Entry<'_>]) {
    for entry in entries {
        write_part(out, b",", entry.key);
        write_part(out, b"=", entry.value);
    }
}

fn write_part(out: &mut KeyBytes, before: &[u8], part: &str) {
    out.extend_from_slice(before);
    write_number(out, part.len());
    out.push(b':');
    out.extend_from_slice(part.as_bytes());
}

/// A number in decimal, without the machinery of formatting.
fn write_number(out: &mut KeyBytes, number: usize) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
