//! Exceptions from the rules, made by hand and for a while: a key that is blocked, or one that has
//! another limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::Timestamp;
use tidegate_rules::{Descriptor, Entry, Override};

use crate::rule_limiter::Query;

/// How many keys may have an exception at a time.
pub const EXCEPTIONS_MAX: usize = 10_000;

/// What is different for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// It is refused.
    Block,
    /// This limit stands in for those of the rules. What was used of those stays as it is.
    Limit(Override),
}

/// The kinds of exceptions; a key may have one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceptionKind {
    /// [`Exception::Block`].
    Block,
    /// [`Exception::Limit`].
    Limit,
}

/// A key with an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excepted {
    /// Whose rules the key is under.
    pub domain: String,
    /// Its descriptor.
    pub entries: Vec<(String, String)>,
    /// What is different.
    pub exception: Exception,
    /// For how long it still is.
    pub rest: Duration,
}

/// Why there is no exception.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExceptionError {
    /// The bound is reached.
    #[error("{max} keys have exceptions already; lift some, or wait until they end")]
    TooMany {
        /// The bound.
        max: usize,
    },
}

/// All exceptions.
#[derive(Debug, Default)]
pub(crate) struct Exceptions {
    /// When the last of them ends, in nanoseconds: later nobody has to look for any.
    last_end: AtomicU64,
    by_key: RwLock<HashMap<Bytes, Held>>,
}

type Bytes = SmallVec<[u8; 128]>;

#[derive(Debug)]
struct Held {
    domain: String,
    entries: Vec<(String, String)>,
    block: Option<Timestamp>,
    limit: Option<(Override, Timestamp)>,
}

impl Held {
    fn set(&mut self, exception: Exception, until: Timestamp) {
        match exception {
            Exception::Block => self.block = Some(until),
            Exception::Limit(limit) => self.limit = Some((limit, until)),
        }
    }

    fn ends(&self) -> Timestamp {
        let ends = [self.block, self.limit.map(|(_, until)| until)];
        ends.into_iter().flatten().max().unwrap_or(Timestamp::from_nanos(0))
    }

    fn all(&self, now: Timestamp) -> impl Iterator<Item = Excepted> + '_ {
        let block = self.block.map(|until| (Exception::Block, until));
        let limit = self.limit.map(|(limit, until)| (Exception::Limit(limit), until));
        let live = block.into_iter().chain(limit).filter(move |(_, until)| *until > now);
        live.map(move |(exception, until)| Excepted {
            domain: self.domain.clone(),
            entries: self.entries.clone(),
            exception,
            rest: until.since(now),
        })
    }
}

/// What exceptions make of a request.
pub(crate) struct Excepting<'a> {
    /// The descriptors, with the limits that they have by exception.
    pub(crate) descriptors: SmallVec<[Descriptor<'a>; 4]>,
    /// Those that are blocked, and for how long.
    pub(crate) blocked: SmallVec<[(u32, Duration); 1]>,
}

impl Exceptions {
    /// Whether there may be any: all that requests pay for exceptions that nobody has made.
    #[inline]
    pub(crate) fn may_be_any(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.last_end.load(Ordering::Relaxed)
    }

    pub(crate) fn apply<'a>(&self, query: &Query<'a>, now: Timestamp) -> Excepting<'a> {
        let mut made =
            Excepting { descriptors: query.descriptors.into(), blocked: SmallVec::new() };
        let by_key = self.by_key.read().unwrap_or_else(PoisonError::into_inner);
        for (position, descriptor) in (0u32..).zip(&mut made.descriptors) {
            let Some(held) = by_key.get(&key(query.domain, descriptor.entries)) else { continue };
            if let Some(until) = held.block.filter(|until| *until > now) {
                made.blocked.push((position, until.since(now)));
            }
            if let Some((limit, _)) = held.limit.filter(|(_, until)| *until > now) {
                descriptor.limit = Some(limit);
            }
        }
        made
    }

    pub(crate) fn set(
        &self,
        domain: &str,
        entries: &[Entry<'_>],
        exception: Exception,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), ExceptionError> {
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        let key = key(domain, entries);
        if !by_key.contains_key(&key) && by_key.len() >= EXCEPTIONS_MAX {
            by_key.retain(|_, held| held.ends() > now);
            if by_key.len() >= EXCEPTIONS_MAX {
                return Err(ExceptionError::TooMany { max: EXCEPTIONS_MAX });
            }
        }
        let held = by_key.entry(key).or_insert_with(|| Held {
            domain: domain.to_owned(),
            entries: entries.iter().map(|it| (it.key.into(), it.value.into())).collect(),
            block: None,
            limit: None,
        });
        held.set(exception, until);
        self.last_end.fetch_max(until.as_nanos(), Ordering::Relaxed);
        Ok(())
    }

    /// These and no others. Beyond the bound they are left out, those that end first before others.
    pub(crate) fn replace(&self, mut all: Vec<Excepted>, now: Timestamp) {
        all.sort_by_key(|it| std::cmp::Reverse(it.rest));
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        by_key.clear();
        let mut last = Timestamp::ZERO;
        for Excepted { domain, entries, exception, rest } in all {
            let named: SmallVec<[Entry<'_>; 4]> =
                entries.iter().map(|(key, value)| Entry::new(key, value)).collect();
            let key = key(&domain, &named);
            if by_key.len() >= EXCEPTIONS_MAX && !by_key.contains_key(&key) {
                continue;
            }
            drop(named);
            let until = now + rest;
            last = last.max(until);
            let held =
                by_key.entry(key).or_insert(Held { domain, entries, block: None, limit: None });
            held.set(exception, until);
        }
        self.last_end.store(last.as_nanos(), Ordering::Relaxed);
    }

    /// Whether there was one.
    pub(crate) fn lift(
        &self,
        domain: &str,
        entries: &[Entry<'_>],
        kind: ExceptionKind,
        now: Timestamp,
    ) -> bool {
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        let key = key(domain, entries);
        let Some(held) = by_key.get_mut(&key) else { return false };
        let until = match kind {
            ExceptionKind::Block => held.block.take(),
            ExceptionKind::Limit => held.limit.take().map(|(_, until)| until),
        };
        if held.ends() <= now {
            by_key.remove(&key);
        }
        let last = by_key.values().map(|held| held.ends().as_nanos()).max().unwrap_or(0);
        self.last_end.store(last, Ordering::Relaxed);
        until.is_some_and(|until| until > now)
    }

    /// Those of a key.
    pub(crate) fn of(&self, domain: &str, entries: &[Entry<'_>], now: Timestamp) -> Vec<Excepted> {
        let by_key = self.by_key.read().unwrap_or_else(PoisonError::into_inner);
        by_key.get(&key(domain, entries)).map(|held| held.all(now).collect()).unwrap_or_default()
    }

    /// All of them, those that end first before the others.
    pub(crate) fn list(&self, now: Timestamp) -> Vec<Excepted> {
        let by_key = self.by_key.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = by_key.values().flat_map(|held| held.all(now)).collect();
        all.sort_by(|a, b| (a.rest, &a.domain, &a.entries).cmp(&(b.rest, &b.domain, &b.entries)));
        all
    }
}

/// Every part with its length, so that no two descriptors share one.
fn key(domain: &str, entries: &[Entry<'_>]) -> Bytes {
    let mut bytes = Bytes::new();
    let mut add = |part: &str| {
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    };
    add(domain);
    for entry in entries {
        add(entry.key);
        add(entry.value);
    }
    bytes
}

#[cfg(test)]
mod tests;
