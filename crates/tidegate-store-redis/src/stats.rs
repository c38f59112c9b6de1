//! What there is to see of a store: counted by whoever does it, read by metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count that only grows, or a number that goes up and down.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Commands that were sent.
    pub(crate) sent: Count,
    /// Commands that wait for their replies, those that nobody waits for any more included.
    pub(crate) in_flight: Count,
    /// How many nodes are not asked, because they failed.
    pub(crate) breakers_open: Count,
    pub(crate) deadlines: Count,
    pub(crate) full: Count,
    pub(crate) down: Count,
    pub(crate) lost: Count,
    pub(crate) replies_bad: Count,
}
