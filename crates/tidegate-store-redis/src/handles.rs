//! The limits that the store knows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use smallvec::SmallVec;
use tidegate_core::{Inherit, Limit};
use tidegate_store::{RegisterError, Registered};

use crate::engine::Engine;
use crate::terms::Attached;

/// How many different limits are known at the most.
const LIMITS_MAX: usize = 1 << 20;

/// Handles by id. What Redis holds says by itself under which limit it was counted, so that a handle
/// can be forgotten at any time.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    known: RwLock<Known>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    by_id: HashMap<Box<str>, Vec<Arc<Registered>>>,
    count: usize,
}

impl Known {
    fn find(&self, id: &str, limit: &Limit, inherit: Inherit) -> Option<Arc<Registered>> {
        let all = self.by_id.get(id)?;
        all.iter().find(|it| it.limit() == limit && it.inherit() == inherit).cloned()
    }

    /// Forgets what nobody else has a handle of.
    fn drop_unused(&mut self) {
        self.by_id.retain(|_, all| {
            all.retain(|handle| Arc::strong_count(handle) > 1);
            !all.is_empty()
        });
        self.count = self.by_id.values().map(Vec::len).sum();
    }
}

impl Handles {
    pub(crate) fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        if let Some(known) = self.known.read().find(id, &limit, inherit) {
            return Ok(known);
        }
        let attached = Engine::attach(&limit)
            .map_err(|why| RegisterError::Unfit { id: id.to_owned(), why })?;
        let mut known = self.known.write();
        if let Some(known) = known.find(id, &limit, inherit) {
            return Ok(known);
        }
        if known.count >= LIMITS_MAX {
            known.drop_unused();
        }
        if known.count >= LIMITS_MAX {
            return Err(RegisterError::TooMany { id: id.to_owned(), max: LIMITS_MAX });
        }
        let serial = self.next.fetch_add(1, Ordering::Relaxed);
        let attached = Attached { serial, ..attached };
        let handle = Arc::new(Registered::with(id, limit, inherit, attached));
        known.by_id.entry(id.into()).or_default().push(Arc::clone(&handle));
        known.count += 1;
        Ok(handle)
    }

    /// The numbers of all handles of an id.
    pub(crate) fn serials(&self, id: &str) -> impl Iterator<Item = u64> {
        let known = self.known.read();
        let all = known.by_id.get(id).map_or(&[][..], Vec::as_slice);
        let serials: SmallVec<[u64; 4]> = all.iter().filter_map(|it| serial_of(it)).collect();
        serials.into_iter()
    }

    /// Forgets those that nobody else has, and gives back the others.
    pub(crate) fn forget_unused(&self, limits: Vec<Arc<Registered>>) -> Vec<Arc<Registered>> {
        /// The one here and the one that was given.
        const NOBODY_ELSE: usize = 2;
        let mut known = self.known.write();
        let is_idle = |limit: &Arc<Registered>| Arc::strong_count(limit) <= NOBODY_ELSE;
        let (idle, kept): (Vec<_>, Vec<_>) = limits.into_iter().partition(is_idle);
        for limit in idle {
            let Some(all) = known.by_id.get_mut(limit.id()) else { continue };
            let before = all.len();
            all.retain(|it| !Arc::ptr_eq(it, &limit));
            let gone = before - all.len();
            if all.is_empty() {
                known.by_id.remove(limit.id());
            }
            known.count -= gone;
        }
        kept
    }
}

/// The number of a limit's handle, which no other handle has; `None` if it is another store's.
pub(crate) fn serial_of(limit: &Registered) -> Option<u64> {
    limit.attached::<Attached>().map(|attached| attached.serial)
}
