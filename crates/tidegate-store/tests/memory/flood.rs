//! Ten million keys that nobody has seen before.

use std::ops::Range;
use std::time::Duration;

use tidegate_core::{Limit, Timestamp};
use tidegate_store::{MemoryStore, Registered};

use crate::support::{START, check, register};

const KEYS: u64 = 10_000_000;
const BOUND: usize = 100_000;
/// 24 bytes a key at the most, in tables that are at least 64% full, and a little for small ones.
const BYTES_MAX: usize = BOUND * 40;

/// Sends one request for each of the keys, in two threads, and looks on meanwhile.
fn flood(
    store: &MemoryStore,
    limit: &Registered,
    keys: Range<u64>,
    time: impl Fn(u64) -> Timestamp + Copy + Send,
) {
    std::thread::scope(|scope| {
        for part in 0..2 {
            let keys = (keys.start + part..keys.end).step_by(2);
            scope.spawn(move || {
                for number in keys {
                    let decision = check(store, &number.to_le_bytes(), limit, 1, time(number));
                    assert!(decision.allowed, "a new key has all of its limit");
                }
            });
        }
        for _ in 0..100 {
            let stats = store.stats();
            assert!(stats.keys <= BOUND && stats.bytes < BYTES_MAX, "{stats:?}");
        }
    });
}

/// A flood of distinct keys, as an attacker sends who makes up a new name for each request: the
/// store stays within its bound, in keys and in bytes, and goes on answering.
#[test]
fn ten_million_distinct_keys_stay_within_the_bound() {
    let store = MemoryStore::builder().max_keys(BOUND).build();
    let stream = KEYS * 6 / 10;

    // A million a second, each forgotten after 10 milliseconds.
    let quick = register(&store, "quick", Limit::per_second(100));
    flood(&store, &quick, 0..stream, |number| START + Duration::from_micros(number));
    let evicted_before = store.stats().evicted_live;

    // All at one moment, and none of them to be forgotten soon.
    let slow = register(&store, "slow", Limit::per_hour(10));
    let now = START + Duration::from_micros(stream);
    flood(&store, &slow, stream..KEYS, |_| now);

    let stats = store.stats();
    assert!(stats.keys <= stats.keys_max && stats.keys_max <= BOUND, "{stats:?}");
    assert!(stats.keys > BOUND * 9 / 10, "the bound is used, not only kept: {stats:?}");
    assert!(stats.bytes < BYTES_MAX, "{stats:?}");
    assert!(stats.evicted_live - evicted_before > (KEYS - stream) * 9 / 10, "{stats:?}");
    assert_eq!((stats.denied_full, stats.allowed_full), (0, 0));
}
