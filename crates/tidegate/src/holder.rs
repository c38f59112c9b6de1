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

/// The holder of a name: the same in every process, and another for every other name.
///
/// ```
/// use tidegate::holder_named;
///
/// assert_eq!(holder_named("worker-7"), holder_named("worker-7"));
/// assert_ne!(holder_named("worker-7"), holder_named("worker-8"));
/// ```
#[cfg(feature = "rules")]
pub fn holder_named(name: &str) -> u128 {
    use siphasher::sip128::{Hasher128, SipHasher24};
    use std::hash::Hasher;

    let mut hasher = SipHasher24::new();
    hasher.write(name.as_bytes());
    hasher.finish128().as_u128()
}
