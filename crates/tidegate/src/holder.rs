//! Names for those who hold permits.

use std::sync::atomic::{AtomicU64, Ordering};

/// Ids that no two holders share, in this process or another: a random half and a counter.
pub(crate) struct Holders {
    process: u64,
    next: AtomicU64,
}

impl Holders {
    pub(crate) fn new() -> Self {
        let process = getrandom::u64().unwrap_or(u64::from(std::process::id()));
        Self { process, next: AtomicU64::new(1) }
    }

    pub(crate) fn next(&self) -> u128 {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        u128::from(self.process) << 64 | u128::from(count)
    }
}
