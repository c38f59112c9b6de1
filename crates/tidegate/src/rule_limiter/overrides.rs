//! Limits that requests bring along: known to the store as long as they count something.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use smallvec::SmallVec;
use tidegate_core::{Inherit, Limit, Rate};
use tidegate_rules::{Found, Override};
use tidegate_store::{Registered, Store};

use super::Shared;

/// How many different limits that requests bring along may count something at once.
const OVERRIDES_MAX: usize = 4096;

/// The limits that requests have brought along, and that count something.
#[derive(Default)]
pub(super) struct Overrides {
    handles: HashMap<Override, Arc<Registered>>,
    /// How many have found no room since unused ones were last looked for.
    turned_away: usize,
}

impl Overrides {
    /// Makes room for another one, if there is any to be had. To look for some takes a walk over
    /// all keys, which whoever brings many limits along must not cause too often.
    fn make_room<S: Store>(&mut self, store: &S) -> Option<()> {
        if self.handles.len() < OVERRIDES_MAX {
            return Some(());
        }
        self.turned_away += 1;
        if self.turned_away % OVERRIDES_MAX != 1 {
            return None;
        }
        let (limits, handles): (Vec<_>, Vec<_>) = self.handles.drain().unzip();
        let names: HashMap<*const Registered, Override> =
            handles.iter().map(Arc::as_ptr).zip(limits).collect();
        let kept = store.forget_unused(handles);
        let named = kept.into_iter().filter_map(|it| Some((*names.get(&Arc::as_ptr(&it))?, it)));
        self.handles.extend(named);
        (self.handles.len() < OVERRIDES_MAX).then_some(())
    }
}

/// The handles of limits that a request brings along, one place for each descriptor.
pub(super) type Handles = SmallVec<[Option<Arc<Registered>>; 4]>;

impl<S: Store, C> Shared<S, C> {
    /// The handles of limits that the request brings along, one place for each descriptor.
    pub(super) fn overridden(&self, found: &Found<'_>) -> Handles {
        found.overrides().map(|limit| limit.and_then(|limit| self.handle_of(limit))).collect()
    }

    /// The handle of a limit that a request brings along; `None` if too many are in use.
    fn handle_of(&self, limit: Override) -> Option<Arc<Registered>> {
        let known = self.overrides.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = known.handles.get(&limit) {
            return Some(Arc::clone(handle));
        }
        drop(known);
        let Override { requests_per_unit, unit } = limit;
        let rate = Rate::new(requests_per_unit.into(), unit.length());
        let built = Limit::fixed_window(rate).build().ok()?;
        let mut known = self.overrides.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = known.handles.get(&limit) {
            return Some(Arc::clone(handle));
        }
        known.make_room(&self.store)?;
        // One id for each unit, so that a key that comes with another number keeps what it used.
        let id = format!("override/{}", unit.as_str());
        let handle = self.store.register(&id, built, Inherit::Used).ok()?;
        known.handles.insert(limit, Arc::clone(&handle));
        Some(handle)
    }
}
