//! Everything else that goes on while keys are counted: none of it loses a unit.

use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::{Inherit, Limit, LimitSpec, Rate};
use tidegate_store::{Item, MemoryStore, Op, Store};

use crate::race;
use crate::support::{START, ask, check, register, remaining};

const KEYS: u64 = 50;

/// Counts on all keys in some threads while others do something else, and checks the sums.
fn nothing_is_lost_while(disturb: impl Fn(&MemoryStore) + Sync) {
    let store = MemoryStore::builder().shards(4).build();
    let bucket = register(&store, "bucket", Limit::per_hour(1000));
    let window = register(&store, "window", Limit::fixed_window(Rate::per_hour(1000)));
    let done = AtomicBool::new(false);
    race(|thread| {
        if thread >= 6 {
            while !done.load(Ordering::Relaxed) {
                disturb(&store);
            }
            return 0;
        }
        for round in 0..100 {
            for number in 0..KEYS {
                let key = number.to_le_bytes();
                if (round + thread) % 2 == 0 {
                    assert!(check(&store, &key, &bucket, 1, START).allowed);
                } else {
                    let items = [Item::new(&key, &bucket), Item::new(&key, &window)];
                    assert!(ask(&store, Op::Check, &items, 1, START).0.allowed);
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        0
    });
    for number in 0..KEYS {
        let key = number.to_le_bytes();
        assert_eq!(remaining(&store, &key, &bucket, START), 400);
        assert_eq!(remaining(&store, &key, &window, START), 700);
    }
}

#[test]
fn nothing_is_lost_while_the_store_is_swept() {
    nothing_is_lost_while(|store| store.sweep(START));
}

#[test]
fn nothing_is_lost_while_others_look_on() {
    nothing_is_lost_while(|store| {
        assert!(store.live_keys(START).count() <= 2 * KEYS as usize);
        assert!(store.stats().keys <= 2 * KEYS as usize);
    });
}

#[test]
fn nothing_is_lost_while_the_store_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    nothing_is_lost_while(|store| {
        let name = format!("{:?}", std::thread::current().id());
        store.snapshot(folder.path().join(name), START).unwrap();
    });
}

#[test]
fn nothing_is_lost_while_limits_come_and_go() {
    nothing_is_lost_while(|store| {
        for number in 0..50 {
            let limit = register(store, &format!("passing {number}"), Limit::per_second(1));
            assert!(!check(store, b"stranger", &limit, 2, START).allowed);
        }
    });
}

/// A limit that changes under its callers: some bring the old handle, some the new one, and the
/// key goes back and forth between the two.
#[test]
fn nothing_is_lost_while_a_limit_changes() {
    let pairs: [(LimitSpec, LimitSpec); 3] = [
        (
            Limit::per_hour(1000),
            Limit::token_bucket(Rate::new(7, crate::support::HOUR)).burst(1000),
        ),
        (Limit::per_hour(1000), Limit::fixed_window(Rate::per_hour(1000))),
        (Limit::sliding_log(Rate::per_hour(1000)), Limit::sliding_counter(Rate::per_hour(1000))),
    ];
    for (first, second) in pairs {
        let store = MemoryStore::new();
        let admitted = race(|thread| {
            let mut admitted = 0;
            for number in 0..200 {
                let spec = if (thread + number / 20) % 2 == 0 { first } else { second };
                let limit = store.register("limit", spec.build().unwrap(), Inherit::Used).unwrap();
                admitted += u64::from(check(&store, b"key", &limit, 1, START).allowed);
            }
            admitted
        });
        assert_eq!(admitted, 1000, "{first} and {second}");
        assert_eq!(store.len(), 1);
    }
}

/// At the bound keys come and go, but never too many are there.
#[test]
fn the_bound_holds_while_all_threads_bring_new_keys() {
    let store = MemoryStore::builder().shards(4).max_keys(100).build();
    let bucket = register(&store, "bucket", Limit::per_hour(1000));
    let log = register(&store, "log", Limit::sliding_log(Rate::per_hour(1000)));
    let calls = race(|thread| {
        for number in 0..2000_u64 {
            let key = (thread as u64 * 10_000 + number).to_le_bytes();
            let items = [Item::new(&key, &bucket), Item::new(&key, &log)];
            assert!(ask(&store, Op::Check, &items, 1, START).0.allowed);
            if number % 100 == 0 {
                assert!(store.len() <= 100);
            }
        }
        2000
    });
    let stats = store.stats();
    assert_eq!(stats.keys as u64 + stats.evicted_live + stats.evicted_spent, 2 * calls);
}
