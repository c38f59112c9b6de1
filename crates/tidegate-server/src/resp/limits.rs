//! Limits that requests bring along.
//!
//! All of them are one limit to the store, whose numbers keep changing: a key that comes with other
//! numbers keeps what it has used, as a rule does that is changed. So nobody gets a fresh start by
//! asking for a slightly different limit, and `CL.THROTTLE` and `GCRA` count a key together.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tidegate::{Inherit, Limit, LimitError, Rate, Registered, Store as _, Timestamp};

use crate::service::Limits;

/// How many different limits requests may bring along.
pub(crate) const LIMITS_MAX: usize = 4096;
/// How long it takes at least from one search for limits that nobody uses to the next.
const RECLAIM_EVERY: Duration = Duration::from_secs(10);
/// What the store calls them. Snapshots know it, so that it does not change.
const ID: &str = "resp";

/// The numbers of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Numbers {
    /// How many at once.
    pub(crate) capacity: u64,
    /// How many come back.
    pub(crate) units: u64,
    /// In how long.
    pub(crate) period: Duration,
}

impl Numbers {
    fn of(limit: &Limit) -> Self {
        let Rate { units, period } = limit.spec().rate;
        Self { capacity: limit.limit(), units, period }
    }
}

/// Why a limit cannot be had.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// It makes no sense.
    Numbers(LimitError),
    /// Too many others are in use.
    TooMany,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers(error) => write!(f, "ERR {error}"),
            Self::TooMany => write!(
                f,
                "TRYAGAIN {LIMITS_MAX} different limits are in use; ask with fewer combinations of \
                 burst, count and period, or wait until keys of others have run out"
            ),
        }
    }
}

/// The limits that requests have brought along.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    known: RwLock<Known>,
    /// When unused ones were last looked for, in nanoseconds.
    reclaimed_at: AtomicU64,
}

#[derive(Debug, Default)]
struct Known {
    handles: HashMap<Numbers, Handle>,
    /// Whether unused ones are being looked for; nothing new is registered meanwhile.
    is_reclaiming: bool,
}

#[derive(Debug)]
struct Handle {
    limit: Arc<Registered>,
    /// Whether it was asked for since unused ones were last looked for.
    is_used: AtomicBool,
}

impl Handle {
    fn new(limit: Arc<Registered>) -> Self {
        Self { limit, is_used: AtomicBool::new(true) }
    }
}

impl Brought {
    /// The handle of a limit.
    pub(crate) fn handle(
        self: &Arc<Self>,
        limits: &Limits,
        numbers: Numbers,
    ) -> Result<Arc<Registered>, Unusable> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = known.handles.get(&numbers) {
            // Most have been, and need not be written to.
            if !handle.is_used.load(Ordering::Relaxed) {
                handle.is_used.store(true, Ordering::Relaxed);
            }
            return Ok(Arc::clone(&handle.limit));
        }
        drop(known);
        self.register(limits, numbers)
    }

    /// How many are known.
    pub(crate) fn len(&self) -> usize {
        self.known.read().unwrap_or_else(PoisonError::into_inner).handles.len()
    }

    #[cold]
    fn register(
        self: &Arc<Self>,
        limits: &Limits,
        numbers: Numbers,
    ) -> Result<Arc<Registered>, Unusable> {
        let rate = Rate::new(numbers.units, numbers.period);
        let built = Limit::gcra(rate).burst(numbers.capacity).build().map_err(Unusable::Numbers)?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = known.handles.get(&numbers) {
            return Ok(Arc::clone(&handle.limit));
        }
        if known.is_reclaiming {
            return Err(Unusable::TooMany);
        }
        if known.handles.len() >= LIMITS_MAX {
            let now = limits.now();
            let last = Timestamp::from_nanos(self.reclaimed_at.load(Ordering::Relaxed));
            if last == Timestamp::from_nanos(0) || now.since(last) >= RECLAIM_EVERY {
                self.reclaimed_at.store(now.as_nanos(), Ordering::Relaxed);
                known.is_reclaiming = true;
                let (brought, limits) = (Arc::clone(self), limits.clone());
                // It looks at every key there is, and nobody should wait for it.
                let started = std::thread::Builder::new()
                    .name("resp-reclaim".into())
                    .spawn(move || brought.reclaim(&limits));
                known.is_reclaiming = started.is_ok();
            }
            return Err(Unusable::TooMany);
        }
        let limit = limits.store().register(ID, built, Inherit::Used);
        let limit = limit.map_err(|_too_many| Unusable::TooMany)?;
        known.handles.insert(numbers, Handle::new(Arc::clone(&limit)));
        Ok(limit)
    }

    /// Lets go of limits that nobody asks for and that no key is counted under.
    fn reclaim(&self, limits: &Limits) {
        let mut unused = Vec::new();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.handles.retain(|_, handle| {
            let is_used = handle.is_used.swap(false, Ordering::Relaxed);
            if !is_used {
                unused.push(Arc::clone(&handle.limit));
            }
            is_used
        });
        drop(known);
        limits.store().sweep(limits.now());
        let kept = limits.store().forget_unused(unused);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for limit in kept {
            known.handles.insert(Numbers::of(limit.limit()), Handle::new(limit));
        }
        known.is_reclaiming = false;
    }
}
