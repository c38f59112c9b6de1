//! The limits that a store knows, by handle and by id.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tidegate_core::{Inherit, Limit};

use crate::fingerprint::Seed;

/// A limit that a store knows: the handle by which calls name it.
pub struct Registered {
    id: Box<str>,
    limit: Limit,
    inherit: Inherit,
    pub(crate) index: u32,
    pub(crate) salt: u64,
    /// Whether keys may exist that were counted under an earlier limit of the same id.
    has_past: AtomicBool,
    /// What a store of another crate needs to know of the limit.
    attached: Option<Box<dyn Any + Send + Sync>>,
}

impl Registered {
    /// The handle of a store outside of this crate, with what it wants to find again by it.
    pub fn with(
        id: &str,
        limit: Limit,
        inherit: Inherit,
        attached: impl Any + Send + Sync,
    ) -> Self {
        let attached: Option<Box<dyn Any + Send + Sync>> = Some(Box::new(attached));
        let has_past = AtomicBool::new(false);
        Self { id: id.into(), limit, inherit, index: 0, salt: 0, has_past, attached }
    }

    /// What the store attached, if it is of that type: nobody else's handle has it.
    pub fn attached<T: Any>(&self) -> Option<&T> {
        self.attached.as_ref()?.downcast_ref()
    }

    /// The id it was registered under.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The limit itself.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// What keys keep that were counted under another limit of the same id.
    pub fn inherit(&self) -> Inherit {
        self.inherit
    }

    pub(crate) fn has_past(&self) -> bool {
        self.has_past.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.limit)
    }
}

/// A limit could not be made known to a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Too many limits are in use at once.
    #[error("cannot register limit `{id}`: the store knows {max} limits already, all in use")]
    TooMany {
        /// The id that was to be registered.
        id: String,
        /// How many the store can know.
        max: usize,
    },
    /// The store cannot count in such numbers.
    #[error("cannot register limit `{id}`: {why}")]
    Unfit {
        /// The id that was to be registered.
        id: String,
        /// What is too large, and what the most is.
        why: String,
    },
}

/// Everything registered. Read by index on rare paths only: the hot path has the handle.
pub(crate) struct Registry {
    seed: Seed,
    max: usize,
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    by_index: Vec<Option<Arc<Registered>>>,
    /// All limits ever registered under an id and still in use, the newest last.
    by_id: HashMap<Box<str>, Vec<u32>>,
    free: Vec<u32>,
}

impl Registry {
    pub(crate) fn new(seed: Seed, max: usize) -> Self {
        Self { seed, max, inner: RwLock::default() }
    }

    pub(crate) fn get(&self, index: u32) -> Option<Arc<Registered>> {
        self.read(|inner| inner.by_index.get(index as usize)?.clone())
    }

    pub(crate) fn all(&self) -> Vec<Arc<Registered>> {
        self.read(|inner| inner.by_index.iter().flatten().cloned().collect())
    }

    /// The handle of a limit; `in_use` tells, when room is needed, which indices still have keys.
    pub(crate) fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
        in_use: impl FnOnce() -> Vec<bool>,
    ) -> Result<Arc<Registered>, RegisterError> {
        if let Some(known) = self.read(|inner| inner.find(id, &limit, inherit)) {
            return Ok(known);
        }
        let known = self.read(|inner| inner.by_index.len());
        let full = known >= self.max && self.read(|inner| inner.free.is_empty());
        let mut used = if full { in_use() } else { Vec::new() };
        used.resize(known.max(used.len()), false);
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = inner.find(id, &limit, inherit) {
            return Ok(known);
        }
        if full {
            inner.drop_unused(&used);
        }
        let index = match inner.free.pop() {
            Some(index) => index,
            None if inner.by_index.len() < self.max => {
                inner.by_index.push(None);
                u32::try_from(inner.by_index.len() - 1).unwrap_or(u32::MAX)
            }
            None => return Err(RegisterError::TooMany { id: id.to_owned(), max: self.max }),
        };
        Ok(inner.add(index, id, limit, inherit, self.seed.salt(id)))
    }

    /// Forgets those of the limits that nobody else has and that have no keys, which `in_use` tells
    /// by index, and gives back the others.
    pub(crate) fn forget_unused(
        &self,
        limits: Vec<Arc<Registered>>,
        in_use: impl FnOnce() -> Vec<bool>,
    ) -> Vec<Arc<Registered>> {
        /// The registry's own handle and the one that was given.
        const NOBODY_ELSE: usize = 2;
        // Before the keys are looked at, since whoever has a handle may add some.
        let is_idle = |limit: &Arc<Registered>| Arc::strong_count(limit) == NOBODY_ELSE;
        let (idle, mut kept): (Vec<_>, Vec<_>) = limits.into_iter().partition(is_idle);
        let used = in_use();
        let is_used = |limit: &Registered| used.get(limit.index as usize).copied().unwrap_or(false);
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        for limit in idle {
            match is_used(&limit) || !is_idle(&limit) {
                true => kept.push(limit),
                false => inner.forget(&limit),
            }
        }
        kept
    }

    fn read<R>(&self, look: impl FnOnce(&Inner) -> R) -> R {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn named(&self, id: &str) -> impl Iterator<Item = &Arc<Registered>> {
        let indices = self.by_id.get(id).map_or(&[][..], Vec::as_slice);
        indices.iter().filter_map(|index| self.by_index[*index as usize].as_ref())
    }

    fn find(&self, id: &str, limit: &Limit, inherit: Inherit) -> Option<Arc<Registered>> {
        self.named(id).find(|known| known.limit == *limit && known.inherit == inherit).cloned()
    }

    fn add(
        &mut self,
        index: u32,
        id: &str,
        limit: Limit,
        inherit: Inherit,
        salt: u64,
    ) -> Arc<Registered> {
        let mut has_past = false;
        for earlier in self.named(id) {
            // Either may be used again: keys then go back and forth between the two.
            earlier.has_past.store(true, Ordering::Relaxed);
            has_past = true;
        }
        let has_past = AtomicBool::new(has_past);
        let registered = Arc::new(Registered {
            id: id.into(),
            limit,
            inherit,
            index,
            salt,
            has_past,
            attached: None,
        });
        self.by_index[index as usize] = Some(Arc::clone(&registered));
        self.by_id.entry(id.into()).or_default().push(index);
        registered
    }

    /// Forgets limits that nobody holds a handle of and that no key was counted under.
    fn drop_unused(&mut self, used: &[bool]) {
        for (index, place) in self.by_index.iter_mut().enumerate() {
            let idle = place.as_ref().is_some_and(|known| Arc::strong_count(known) == 1);
            // Limits added since `used` was made are not in it, and in use.
            if !idle || used.get(index).copied().unwrap_or(true) {
                continue;
            }
            if let Some(gone) = place.take() {
                Self::free(&mut self.by_id, &mut self.free, &gone);
            }
        }
    }

    fn forget(&mut self, limit: &Registered) {
        let place = self.by_index.get_mut(limit.index as usize);
        let is_it = |known: &mut Arc<Registered>| std::ptr::eq(&**known, limit);
        if let Some(gone) = place.and_then(|place| place.take_if(is_it)) {
            Self::free(&mut self.by_id, &mut self.free, &gone);
        }
    }

    /// Makes the place of a limit that is gone ready for another.
    fn free(by_id: &mut HashMap<Box<str>, Vec<u32>>, free: &mut Vec<u32>, gone: &Registered) {
        if let Some(indices) = by_id.get_mut(&gone.id) {
            indices.retain(|known| *known != gone.index);
            if indices.is_empty() {
                by_id.remove(&gone.id);
            }
            free.push(gone.index);
        }
    }
}
