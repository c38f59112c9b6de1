//! Calls with several keys: in any order, all or nothing, and nobody waits in a circle.

use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{Limit, Rate};
use tidegate_store::{Item, LocalStore, MemoryStore, Op};

use crate::race;
use crate::support::{START, ask, register, remaining};

#[test]
fn opposite_orders_neither_block_nor_tear() {
    for shards in [1, 4, 64] {
        let store = MemoryStore::builder().shards(shards).build();
        let keys: Vec<[u8; 1]> = (0..6).map(|key| [key]).collect();
        // The fourth is the one that runs out.
        let limits: Vec<_> = [9000, 8000, 7000, 1000, 6000, 5000]
            .into_iter()
            .enumerate()
            .map(|(number, units)| {
                let rate = Rate::per_hour(units);
                let spec = if number % 2 == 0 {
                    Limit::token_bucket(rate)
                } else {
                    Limit::fixed_window(rate)
                };
                register(&store, &number.to_string(), spec)
            })
            .collect();
        let admitted = race(|thread| {
            let mut items: Vec<_> =
                keys.iter().zip(&limits).map(|(key, limit)| Item::new(key, limit)).collect();
            if thread % 2 == 1 {
                items.reverse();
            }
            items.rotate_left(thread / 2);
            (0..300).filter(|_| ask(&store, Op::Check, &items, 1, START).0.allowed).count() as u64
        });
        assert_eq!(admitted, 1000, "{shards} shards");
        for (key, limit) in keys.iter().zip(&limits) {
            let used = limit.limit().limit() - remaining(&store, key, limit, START);
            assert_eq!(used, admitted, "{limit:?}, {shards} shards");
        }
    }
}

/// Every call takes from two of four keys; what each key has lost is what its callers were given.
#[test]
fn overlapping_pairs_are_counted_on_both_sides() {
    let store = MemoryStore::builder().shards(4).build();
    let limit = register(&store, "limit", Limit::fixed_window(Rate::per_hour(500)));
    let given: [AtomicU64; 4] = Default::default();
    race(|thread| {
        let mut admitted = 0;
        for number in 0..400 {
            let (one, other) = ((thread + number) % 4, (thread + number / 3 + 1) % 4);
            let keys = [[one as u8], [other as u8]];
            let items = [Item::new(&keys[0], &limit), Item::new(&keys[1], &limit)];
            if ask(&store, Op::Check, &items, 1, START).0.allowed {
                given[one].fetch_add(1, Ordering::Relaxed);
                given[other].fetch_add(1, Ordering::Relaxed);
                admitted += 1;
            }
        }
        admitted
    });
    let mut exhausted = 0;
    for (key, given) in given.iter().enumerate() {
        let left = remaining(&store, &[key as u8], &limit, START);
        assert_eq!(500 - left, given.load(Ordering::Relaxed), "key {key}");
        exhausted += usize::from(left == 0);
    }
    assert!(exhausted >= 2, "there was more demand than supply");
}

/// The short way for several limits on one key, against the long one.
#[test]
fn several_limits_on_one_key_run_out_together() {
    let store = MemoryStore::new();
    let limits = [
        register(&store, "hour", Limit::per_hour(600)),
        register(&store, "day", Limit::per_day(700)),
        register(&store, "minute", Limit::per_minute(800)),
    ];
    let admitted = race(|thread| {
        let items = limits.each_ref().map(|limit| Item::new(b"key", limit));
        let mut admitted = 0;
        for _ in 0..200 {
            admitted += u64::from(if thread % 2 == 0 {
                store.check_all(b"key", &limits, 1, START).allowed
            } else {
                ask(&store, Op::Check, &items, 1, START).0.allowed
            });
        }
        admitted
    });
    assert_eq!(admitted, 600);
    let left = limits.each_ref().map(|limit| remaining(&store, b"key", limit, START));
    assert_eq!(left, [0, 100, 200]);
}
