//! From the descriptors of a request to the limits it meets and the keys they count.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use smallvec::SmallVec;

use crate::glob::is_pattern;
use crate::rule::{Rule, Unit};
use crate::rules::Rules;
use crate::tree::{Flags, Limits, Shared, Stop, Tree};

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
    /// The node that each descriptor reached, and its key.
    ways: SmallVec<[(u32, Range<u32>); 4]>,
    keys: KeyBytes,
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

    /// The limits that the request brought along, one place for each descriptor.
    pub fn overrides(&self) -> impl Iterator<Item = Option<Override>> {
        self.reached.iter().map(|reached| match reached {
            Reached::Override(limit) => Some(*limit),
            _ => None,
        })
    }

    /// The bytes that stand for a descriptor that brought its limit along.
    pub fn override_key(&self, descriptor: usize) -> &[u8] {
        self.ways.get(descriptor).map_or(&[], |(_, range)| self.bytes(range))
    }

    fn bytes(&self, range: &Range<u32>) -> &[u8] {
        &self.keys.all()[range.start as usize..range.end as usize]
    }

    fn clear(&mut self) {
        self.knows_domain = false;
        self.limits.clear();
        self.reached.clear();
        self.ways.clear();
        self.keys.clear();
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
        let Some(root) = self.tree().root(domain) else {
            found.reached.resize(descriptors.len(), Reached::Nothing);
            found.ways.resize(descriptors.len(), (NOWHERE, 0..0));
            return;
        };
        found.knows_domain = true;
        if let [descriptor] = descriptors {
            let stop = walk(self.tree(), &root, descriptor);
            if self.find_one(domain, stop.as_ref(), 0, descriptor, found) {
                self.replace(found);
            }
            return;
        }
        // All ways first, then all keys: with many rules a walk waits for memory, and walks that
        // follow one another wait together.
        let walks = descriptors.iter().map(|descriptor| walk(self.tree(), &root, descriptor));
        let stops: SmallVec<[Option<Stop>; 8]> = walks.collect();
        let mut replaces = false;
        for (position, (descriptor, stop)) in (0u32..).zip(descriptors.iter().zip(&stops)) {
            replaces |= self.find_one(domain, stop.as_ref(), position, descriptor, found);
        }
        if replaces {
            self.replace(found);
        }
    }

    /// Whether a limit was met that replaces others.
    fn find_one<'r>(
        &'r self,
        domain: &str,
        stop: Option<&Stop>,
        position: u32,
        descriptor: &Descriptor<'_>,
        found: &mut Found<'r>,
    ) -> bool {
        let tree = self.tree();
        if let Some(limit) = descriptor.limit {
            let key = write_key(&mut found.keys, domain, descriptor.entries, &[]);
            found.ways.push((NOWHERE, key));
            found.reached.push(Reached::Override(limit));
            return false;
        }
        let Some(stop) = stop else {
            found.ways.push((NOWHERE, 0..0));
            found.reached.push(Reached::Nothing);
            return false;
        };
        found.ways.push((stop.node, 0..0));
        let limits = match stop.limits {
            Limits::None => {
                found.reached.push(Reached::Nothing);
                return false;
            }
            Limits::Unlimited(rule) => {
                found.reached.push(Reached::Unlimited);
                return !tree.unlimited[rule as usize].replaces.is_empty();
            }
            Limits::Some { .. } => stop.limits.range(),
        };
        found.reached.push(Reached::Limits);
        let shared = tree.shared_patterns(stop);
        let key = write_key(&mut found.keys, domain, descriptor.entries, &shared);
        // Most rules are for everybody, and need not be looked at until they are asked.
        let is_plain = stop.signs.is_plain;
        let mut replaces = false;
        for index in limits {
            let rule = &tree.rules[index];
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            if is_plain || is_met(rule, descriptor.entries.last(), found.bytes(&key)) {
                replaces |= !is_plain && !rule.replaces.is_empty();
                found.limits.push(Met { rule, index, descriptor: position, key: key.clone() });
            }
        }
        replaces
    }

    /// Leaves out the limits that others of the same request stand in for.
    fn replace<'r>(&'r self, found: &mut Found<'r>) {
        let tree = self.tree();
        let mut names: SmallVec<[&str; 4]> = SmallVec::new();
        let nodes = found.ways.iter().map(|(node, _)| *node).filter(|node| *node != NOWHERE);
        let unlimited = nodes.filter_map(|node| match tree.node(node).limits {
            Limits::Unlimited(rule) => Some(&*tree.unlimited[rule as usize].replaces),
            _ => None,
        });
        let limited = found.limits.iter().map(|met| &*met.rule.replaces);
        for replaces in unlimited.chain(limited) {
            names.extend(replaces.iter().map(|name| &**name));
        }
        found
            .limits
            .retain(|met| met.rule.name.as_deref().is_none_or(|name| !names.contains(&name)));
    }

    /// The bytes that the limits of a node count.
    pub(crate) fn key_of(&self, domain: &str, node: u32, entries: &[Entry<'_>]) -> Vec<u8> {
        let mut key = KeyBytes::default();
        write_key(&mut key, domain, entries, &self.tree().shared_patterns(&self.tree().stop(node)));
        key.all().to_vec()
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
        let levels = self.stats_levels(found, descriptor, entries)?;
        Some(levels.iter().fold(domain.to_owned(), |key, level| key + "." + level))
    }

    /// The parts of a [`stats_key`](Self::stats_key) below the domain, one for each entry.
    pub fn stats_levels(
        &self,
        found: &Found<'_>,
        descriptor: usize,
        entries: &[Entry<'_>],
    ) -> Option<Vec<String>> {
        match found.reached.get(descriptor)? {
            Reached::Nothing => None,
            Reached::Override(_) => {
                let value = |entry: &Entry<'_>| !entry.value.is_empty();
                let level =
                    |entry: &Entry<'_>| stats_level(entry.key, value(entry).then_some(entry.value));
                Some(entries.iter().map(level).collect())
            }
            Reached::Unlimited | Reached::Limits => {
                let tree = self.tree();
                let way = tree.way_to(found.ways[descriptor].0);
                let detailed =
                    way.last().is_some_and(|leaf| tree.node(*leaf).flags.detailed_metric);
                let nodes = way.iter().map(|node| tree.node(*node)).zip(entries);
                let levels = nodes.map(|(node, entry)| {
                    let written = tree.value(node);
                    let value = match node.flags {
                        flags if flags.share => written,
                        flags if detailed || flags.value_to_metric => Some(entry.value),
                        _ => written,
                    };
                    stats_level(tree.key(node), value)
                });
                Some(levels.collect())
            }
        }
    }

    /// The way to each of [`all`](Self::all) the rules, in the same order.
    #[must_use]
    pub fn ways(&self) -> Vec<Way<'_>> {
        let tree = self.tree();
        let mut ways: Vec<(usize, Way<'_>)> = Vec::with_capacity(self.all().len());
        for (leaf, limits) in tree.limited() {
            let nodes = tree.way_to(leaf).into_iter().map(|node| tree.node(node));
            let detailed = tree.node(leaf).flags.detailed_metric;
            let is_dynamic = |flags: Flags| !flags.share && (detailed || flags.value_to_metric);
            let way = Way {
                domain: tree.domain(leaf),
                position: 0,
                levels: nodes
                    .clone()
                    .map(|node| stats_level(tree.key(node), tree.value(node)))
                    .collect(),
                is_dynamic: nodes.clone().any(|node| is_dynamic(node.flags)),
            };
            let first = limits.start;
            ways.extend(limits.map(|rule| {
                let position = u32::try_from(rule - first).unwrap_or(u32::MAX);
                (rule, Way { position, ..way.clone() })
            }));
        }
        ways.sort_by_key(|(rule, _)| *rule);
        ways.into_iter().map(|(_, way)| way).collect()
    }

    /// What the rules attach to a descriptor for the proxy.
    pub fn metadata(&self, found: &Found<'_>, descriptor: usize) -> Option<&serde_json::Value> {
        let (node, _) = found.ways.get(descriptor)?;
        self.tree().metadata(*node)
    }
}

/// The way through the rules to a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way<'r> {
    /// The domain.
    pub domain: &'r str,
    /// `key` or `key_value` of each descriptor on the way, as in Lyft's statistics.
    pub levels: Vec<String>,
    /// Which of the limits of its descriptor it is, from zero.
    pub position: u32,
    /// The statistics also tell apart what a request had there: see [`Rules::stats_levels`].
    pub is_dynamic: bool,
}

/// `key` or `key_value`.
fn stats_level(key: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("{key}_{value}"),
        None => key.to_owned(),
    }
}

/// The node that a descriptor leads to, unless it brings its own limit.
#[inline]
fn walk(tree: &Tree, root: &Stop, descriptor: &Descriptor<'_>) -> Option<Stop> {
    if descriptor.entries.is_empty() || descriptor.limit.is_some() {
        return None;
    }
    descriptor
        .entries
        .iter()
        .try_fold(*root, |stop, entry| Some(tree.step(&stop, entry.key, entry.value)?.0))
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

/// Keys of a request, one after the other.
#[derive(Clone)]
struct KeyBytes {
    here: [u8; KEYS_INLINE],
    /// All of them, if they have outgrown the place.
    elsewhere: Vec<u8>,
    length: usize,
}

/// How many bytes of keys need no memory of their own.
const KEYS_INLINE: usize = 256;

impl Default for KeyBytes {
    fn default() -> Self {
        Self { here: [0; KEYS_INLINE], elsewhere: Vec::new(), length: 0 }
    }
}

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(self.all()))
    }
}

impl KeyBytes {
    fn clear(&mut self) {
        self.length = 0;
        self.elsewhere.clear();
    }

    fn all(&self) -> &[u8] {
        match self.length <= KEYS_INLINE {
            true => &self.here[..self.length],
            false => &self.elsewhere,
        }
    }

    /// Room for more.
    fn more(&mut self, length: usize) -> &mut [u8] {
        let start = self.length;
        self.length += length;
        if self.length <= KEYS_INLINE {
            return &mut self.here[start..self.length];
        }
        if start <= KEYS_INLINE {
            self.elsewhere.clear();
            self.elsewhere.extend_from_slice(&self.here[..start]);
        }
        self.elsewhere.resize(self.length, 0);
        &mut self.elsewhere[start..]
    }
}

/// Writes the bytes that stand for a descriptor and says where they are: every part with its
/// length, so that no two descriptors share them. Where a pattern shares its counter, the pattern
/// stands for what it matches; `shared` has a place for each entry, or none at all.
fn write_key(
    keys: &mut KeyBytes,
    domain: &str,
    entries: &[Entry<'_>],
    shared: &[Option<Shared<'_>>],
) -> Range<u32> {
    let mut length = size(domain.len());
    for (index, entry) in entries.iter().enumerate() {
        let (_, key, _, value) = parts(entry, shared.get(index));
        length += 2 + size(key.len()) + size(value.len());
    }
    let start = keys.length;
    let mut pen = Pen { rest: keys.more(length) };
    pen.part(domain);
    for (index, entry) in entries.iter().enumerate() {
        let (before_key, key, before_value, value) = parts(entry, shared.get(index));
        pen.byte(before_key);
        pen.part(key);
        pen.byte(before_value);
        pen.part(value);
    }
    let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    narrow(start)..narrow(start + length)
}

/// What stands for an entry, each with the sign before it. Where the key is the pattern, its keys
/// share the counter too, and all their values unless one is named.
#[inline]
fn parts<'a>(entry: &Entry<'a>, shared: Option<&Option<Shared<'a>>>) -> (u8, &'a str, u8, &'a str) {
    match shared {
        Some(Some(Shared { key, value })) if is_pattern(key) => (b';', key, b'~', value),
        Some(Some(Shared { key, value })) => (b',', key, b'~', value),
        _ => (b',', entry.key, b'=', entry.value),
    }
}

/// How many bytes a part takes with its length.
fn size(length: usize) -> usize {
    let digits = match length {
        0..10 => 1,
        10..100 => 2,
        100..1000 => 3,
        _ => length.ilog10() as usize + 1,
    };
    digits + 1 + length
}

/// Writes into room that has been measured.
struct Pen<'a> {
    rest: &'a mut [u8],
}

impl Pen<'_> {
    fn byte(&mut self, byte: u8) {
        self.bytes(&[byte]);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let rest = std::mem::take(&mut self.rest);
        let (place, rest) = rest.split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.rest = rest;
    }

    /// A part after its length, in decimal.
    fn part(&mut self, part: &str) {
        if part.len() < 10 {
            // A digit is below ten.
            self.bytes(&[b'0' + part.len() as u8, b':']);
            return self.bytes(part.as_bytes());
        }
        let mut digits = [0u8; 20];
        let (mut at, mut rest) = (digits.len(), part.len());
        while at == digits.len() || rest > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.bytes(&digits[at..]);
        self.byte(b':');
        self.bytes(part.as_bytes());
    }
}
