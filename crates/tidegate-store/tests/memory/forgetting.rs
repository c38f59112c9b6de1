//! What is dropped, when, and what is left to be seen.

use std::collections::HashMap;

use tidegate_core::{Limit, LimitSpec, Rate, Refill};
use tidegate_store::{Item, MemoryStore, Op};

use crate::support::{HOUR, SECOND, START, ask, check, one_shard, register};

/// One limit for each size of state, spent a second after a single unit was taken.
fn short_limits() -> [(&'static str, LimitSpec); 7] {
    let rate = Rate::per_second(1);
    [
        ("narrow bucket", Limit::token_bucket(rate)),
        ("wide bucket", Limit::token_bucket(Rate::per_second(997)).burst(1)),
        ("interval bucket", Limit::token_bucket(rate).refill(Refill::Interval)),
        ("fixed window", Limit::fixed_window(rate)),
        ("sliding counter", Limit::sliding_counter(rate)),
        ("soft sliding counter", Limit::sliding_counter(rate).soft(50, SECOND)),
        ("sliding log", Limit::sliding_log(rate)),
    ]
}

/// Keys come and go for ever; memory does not grow with those that are gone, and nobody sweeps.
#[test]
fn spent_state_is_dropped_without_a_sweep() {
    const KEYS: u64 = 2000;
    for (name, spec) in short_limits() {
        let store = one_shard();
        let limit = register(&store, name, spec);
        let mut bytes_early = 0;
        for round in 0..20 {
            let now = START + 10 * u32::try_from(round).unwrap() * SECOND;
            for number in 0..KEYS {
                let key = (round * KEYS + number).to_le_bytes();
                let (outcome, _) = ask(&store, Op::Check, &[Item::new(&key, &limit)], 1, now);
                assert!(outcome.allowed);
            }
            let stats = store.stats();
            assert!(stats.keys as u64 <= 2 * KEYS, "{name}, round {round}: {stats:?}");
            if round == 2 {
                bytes_early = stats.bytes;
            }
            assert!(round < 2 || stats.bytes <= bytes_early * 3 / 2, "{name}: {stats:?}");
            assert_eq!(stats.evicted_live + stats.evicted_spent, 0, "far from any bound");
        }
    }
}

#[test]
fn sweep_drops_spent_keys_and_gives_memory_back() {
    for (name, spec) in short_limits() {
        let store = MemoryStore::builder().shards(4).build();
        let limit = register(&store, name, spec);
        let forever = register(&store, "forever", Limit::per_hour(1));
        for number in 0..5000_u64 {
            let key = number.to_le_bytes();
            let items = [Item::new(&key, &limit), Item::new(&key, &forever)];
            ask(&store, Op::Check, if number < 10 { &items } else { &items[..1] }, 1, START);
        }
        let full = store.stats();
        assert_eq!(full.keys, 5010, "{name}");
        store.sweep(START);
        assert_eq!(store.len(), 5010, "nothing is spent yet: {name}");
        store.sweep(START + 3 * SECOND);
        let swept = store.stats();
        assert_eq!(swept.keys, 10, "{name}");
        assert!(swept.bytes * 20 < full.bytes, "{name}: {} of {}", swept.bytes, full.bytes);
        // Those in use are what they were.
        for number in 0..10_u64 {
            assert!(!check(&store, &number.to_le_bytes(), &forever, 1, START).allowed);
        }
        store.sweep(START + 2 * HOUR);
        assert!(store.is_empty());
    }
}

/// A table whose keys were reset one by one is as empty as one that was swept.
#[test]
fn sweep_gives_back_the_memory_of_keys_that_were_reset() {
    let store = one_shard();
    let limit = register(&store, "limit", Limit::per_hour(1));
    for number in 0..5000_u64 {
        assert!(check(&store, &number.to_le_bytes(), &limit, 1, START).allowed);
    }
    for number in 0..5000_u64 {
        ask(&store, Op::Reset, &[Item::new(&number.to_le_bytes(), &limit)], 0, START);
    }
    assert!(store.is_empty());
    store.sweep(START);
    assert!(store.stats().bytes < 1000, "{:?}", store.stats());
}

#[test]
fn looking_and_being_refused_leave_no_trace() {
    let store = one_shard();
    for (name, spec) in short_limits() {
        let limit = register(&store, name, spec);
        let items = [Item::new(b"key", &limit)];
        for op in [Op::Peek, Op::Check, Op::UpTo, Op::Force, Op::Refund, Op::Reset] {
            ask(&store, op, &items, 0, START);
        }
        ask(&store, Op::Peek, &items, 1, START);
        ask(&store, Op::Refund, &items, 1, START);
        ask(&store, Op::Check, &items, 5, START);
        assert_eq!(store.len(), 0, "{name}");
    }
}

/// Keys cannot be read back, but a caller who knows a key can find it.
#[test]
fn live_keys_are_found_by_their_fingerprints() {
    let store = MemoryStore::builder().shards(4).build();
    let hourly = register(&store, "hourly", Limit::per_hour(10));
    let window = register(&store, "window", Limit::fixed_window(Rate::per_second(4)));
    let log = register(&store, "log", Limit::sliding_log(Rate::per_hour(5)));
    let mut expected = HashMap::new();
    for number in 0..100_u64 {
        let key = number.to_le_bytes();
        for (limit, cost) in [(&hourly, 1 + number % 10), (&window, 1), (&log, 1 + number % 5)] {
            let (outcome, _) = ask(&store, Op::Check, &[Item::new(&key, limit)], cost, START);
            assert!(outcome.allowed);
            let left = limit.limit().limit() - cost;
            let named = (limit.id().to_owned(), left);
            assert_eq!(expected.insert(store.fingerprint(&key, limit), named), None);
        }
    }
    // A key named like a limit is nothing special.
    assert!(check(&store, b"hourly", &hourly, 1, START).allowed);
    expected.insert(store.fingerprint(b"hourly", &hourly), ("hourly".to_owned(), 9));

    let live = |now| -> HashMap<u128, (String, u64)> {
        let keys = store.live_keys(now);
        keys.map(|key| (key.fingerprint, (key.limit.id().to_owned(), key.decision.remaining)))
            .collect()
    };
    assert_eq!(live(START), expected);
    assert_eq!(store.live_keys(START).count(), 301);
    // Seen a second later, the windows are over, though nothing has been dropped.
    let later = live(START + SECOND);
    assert_eq!(later.values().filter(|(id, _)| id == "window").count(), 0);
    assert_eq!((later.len(), store.len()), (201, 301));
}
