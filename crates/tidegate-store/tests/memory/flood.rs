//! Ten million keys that nobody has seen before.

use tidegate_core::Limit;
use tidegate_store::MemoryStore;

use crate::support::{START, check, register};

const KEYS: u64 = 10_000_000;
const BOUND: usize = 100_000;

/// A flood of distinct keys, as an attacker sends who makes up a new name for each request: the
/// store stays within its bound, in keys and in bytes, and goes on answering.
#[test]
fn ten_million_distinct_keys_stay_within_the_bound() {
    let store = MemoryStore::builder().max_keys(BOUND).build();
    let limit = register(&store, "flood", Limit::per_hour(10));
    let mut bytes_max = 0;
    // Two at a time, because that is what it is like, and because it is quicker.
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (store, limit) = (&store, &limit);
            scope.spawn(move || {
                for number in (part..KEYS).step_by(2) {
                    let decision = check(store, &number.to_le_bytes(), limit, 1, START);
                    assert!(decision.allowed, "a new key has all of its limit");
                }
            });
        }
        for _ in 0..100 {
            let stats = store.stats();
            assert!(stats.keys <= BOUND, "{stats:?}");
            bytes_max = bytes_max.max(stats.bytes);
        }
    });
    let stats = store.stats();
    assert!(stats.keys <= stats.keys_max && stats.keys_max <= BOUND, "{stats:?}");
    assert!(stats.keys > BOUND * 9 / 10, "the bound is used, not only kept: {stats:?}");
    assert_eq!(stats.evicted_live + stats.evicted_spent + stats.keys as u64, KEYS);
    assert_eq!((stats.denied_full, stats.allowed_full), (0, 0));
    // 24 bytes a key in tables that are at least 64% full, and a little for small ones.
    assert!(bytes_max.max(stats.bytes) < BOUND * 40, "{bytes_max}, {stats:?}");
}
