//! The limits that a store knows, and how they change.

use std::sync::Arc;

use tidegate_core::{Inherit, Limit, LimitSpec, Rate, Refill, Timestamp};
use tidegate_store::{Item, LocalStore, MemoryStore, Op, RegisterError, Registered, Store};

use crate::support::{HOUR, SECOND, START, ask, check, one_shard, register, remaining};

fn bounded(max: usize) -> MemoryStore {
    MemoryStore::builder().max_limits(max).build()
}

fn try_register(store: &MemoryStore, id: &str) -> Result<Arc<Registered>, RegisterError> {
    store.register(id, Limit::per_second(1).build().unwrap(), Inherit::Used)
}

#[test]
fn the_same_limit_is_the_same_handle() {
    let store = one_shard();
    let first = register(&store, "a", Limit::per_second(1));
    assert!(Arc::ptr_eq(&first, &register(&store, "a", Limit::per_second(1))));
    assert!(!Arc::ptr_eq(&first, &register(&store, "a", Limit::per_second(2))));
    assert!(!Arc::ptr_eq(&first, &register(&store, "b", Limit::per_second(1))));
    // Going back to earlier numbers is going back to the earlier handle.
    assert!(Arc::ptr_eq(&first, &register(&store, "a", Limit::per_second(1))));
    assert_eq!(format!("{first:?}"), "a: token_bucket 1/1s");
}

#[test]
fn limits_that_nobody_uses_make_room_for_others() {
    let store = bounded(3);
    for number in 0..100 {
        try_register(&store, &number.to_string()).expect("those before it are not in use");
    }
}

#[test]
fn limits_that_somebody_holds_are_in_use() {
    let store = bounded(3);
    let mut held: Vec<_> = ["a", "b", "c"].map(|id| try_register(&store, id).unwrap()).into();
    let error = try_register(&store, "d").unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot register limit `d`: the store knows 3 limits already, all in use"
    );
    assert_eq!(error, RegisterError::TooMany { id: "d".to_owned(), max: 3 });
    // Those it knows can still be had.
    assert!(Arc::ptr_eq(&held[1], &try_register(&store, "b").unwrap()));
    held.remove(0);
    assert_eq!(try_register(&store, "d").unwrap().id(), "d");
}

#[test]
fn limits_that_have_keys_are_in_use_until_the_keys_are_swept() {
    let store = bounded(2);
    for id in ["a", "b"] {
        let limit = try_register(&store, id).unwrap();
        assert!(check(&store, b"k", &limit, 1, START).allowed);
    }
    try_register(&store, "c").unwrap_err();
    // What they have used is still there.
    let limit = try_register(&store, "a").unwrap();
    assert!(!check(&store, b"k", &limit, 1, START).allowed);
    drop(limit);
    store.sweep(START + SECOND);
    assert_eq!(try_register(&store, "c").unwrap().id(), "c");
}

#[test]
fn a_reservation_holds_its_limit() {
    let store = bounded(1);
    let limit = try_register(&store, "a").unwrap();
    let items = [Item::new(b"k", &limit)];
    let call = tidegate_store::Call::new(Op::Check, &items, 1, START);
    let mut answers = [tidegate_store::Answer::default()];
    pollster::block_on(store.reserve(&call, &mut answers, 1, HOUR)).unwrap();
    drop(limit);
    store.sweep(START + 2 * SECOND);
    assert!(store.is_empty());
    try_register(&store, "b").unwrap_err();
    assert!(pollster::block_on(store.settle(1, 0, START + SECOND)).unwrap());
    assert_eq!(try_register(&store, "b").unwrap().id(), "b");
}

/// Limits of ten whose states have all sizes that there are.
fn sizes() -> [LimitSpec; 7] {
    let rate = Rate::per_hour(10);
    [
        Limit::token_bucket(rate),
        Limit::fixed_window(rate),
        Limit::sliding_log(rate),
        Limit::sliding_counter(rate),
        Limit::sliding_counter(rate).soft(10, HOUR),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::token_bucket(Rate::new(9973, HOUR)).burst(10),
    ]
}

/// A thousand keys move from table to table as their limit changes, and none is lost or doubled.
#[test]
fn keys_move_between_sizes_of_state_and_back() {
    for shards in [1, 4] {
        let store = MemoryStore::builder().shards(shards).build();
        let mut limit = register(&store, "limit", sizes()[0]);
        for number in 0..1000_u64 {
            assert!(check(&store, &number.to_le_bytes(), &limit, 1 + number % 8, START).allowed);
        }
        for spec in sizes().into_iter().cycle().skip(1).take(2 * sizes().len()) {
            limit = register(&store, "limit", spec);
            for number in 0..1000_u64 {
                let left = remaining(&store, &number.to_le_bytes(), &limit, START);
                assert_eq!(left, 10 - (1 + number % 8), "{spec}");
            }
            assert_eq!(store.len(), 1000, "{spec}");
            assert!(store.live_keys(START).all(|key| key.limit.limit() == limit.limit()));
        }
    }
}

/// For a while after a change some callers still bring the old handle.
#[test]
fn keys_go_back_and_forth_between_two_handles_of_one_limit() {
    for (first, second) in [(0, 1), (0, 2), (1, 3), (5, 6)] {
        let store = one_shard();
        let old = register(&store, "limit", sizes()[first]);
        let new = register(&store, "limit", sizes()[second]);
        for used in 1..=5 {
            for limit in [&old, &new] {
                let (outcome, _) = ask(&store, Op::Check, &[Item::new(b"k", limit)], 1, START);
                assert!(outcome.allowed, "{used}");
            }
        }
        for limit in [&old, &new] {
            assert!(!check(&store, b"k", limit, 1, START).allowed, "ten are ten");
        }
        assert_eq!(store.len(), 1);
    }
}

/// Nobody should bring both at once; who does finds one limit, and does no harm.
#[test]
fn two_handles_of_one_limit_in_one_call_are_one_limit() {
    let store = one_shard();
    let old = register(&store, "limit", Limit::per_second(1).burst(10));
    let new = register(&store, "limit", Limit::per_second(31).burst(10));
    for used in [2, 4, 6] {
        let items = [Item::new(b"k", &old), Item::new(b"k", &new)];
        let (outcome, answers) = ask(&store, Op::Check, &items, 1, START);
        assert!(outcome.allowed);
        let left: Vec<u64> = answers.iter().map(|answer| answer.decision.remaining).collect();
        assert_eq!(left, [10 - used; 2]);
    }
    for limit in [&old, &new] {
        assert_eq!(remaining(&store, b"k", limit, START), 4);
    }
    assert_eq!(store.len(), 1);
}

/// A changed limit finds keys of the old one also when those are spent, evicted or reset.
#[test]
fn keys_that_are_gone_have_nothing_to_carry_over() {
    let store = one_shard();
    let old = register(&store, "limit", Limit::fixed_window(Rate::per_second(5)));
    for key in [b"spent", b"reset"] {
        ask(&store, Op::Check, &[Item::new(key, &old)], 5, START);
    }
    ask(&store, Op::Reset, &[Item::new(b"reset", &old)], 0, START);
    let new = register(&store, "limit", Limit::per_second(7));
    assert_eq!(remaining(&store, b"reset", &new, START), 7);
    assert_eq!(remaining(&store, b"spent", &new, START), 2);
    assert_eq!(remaining(&store, b"spent", &new, START + SECOND), 7);
    assert_eq!(remaining(&store, b"never seen", &new, START), 7);
}

#[test]
fn limits_are_forgotten_that_nobody_has_and_no_key_is_under() {
    let store = MemoryStore::new();
    let now = Timestamp::from_secs(1_000);
    let register = |rate| {
        store.register("same", Limit::per_second(rate).build().unwrap(), Inherit::Used).unwrap()
    };
    let (idle, held, counted) = (register(1), register(2), register(3));
    let kept = Arc::clone(&held);
    assert!(store.check_one_now(&Item::new(b"key", &counted), 1, now).allowed);
    let names = |limits: &[Arc<Registered>]| -> Vec<u64> {
        limits.iter().map(|limit| limit.limit().limit()).collect()
    };
    let rest = store.forget_unused(vec![idle, held, counted]);
    assert_eq!(names(&rest), [2, 3]);
    drop(kept);
    // Once the key has run out and was swept, nothing speaks for its limit any more.
    store.sweep(Timestamp::from_secs(1_002));
    assert_eq!(names(&store.forget_unused(rest)), [0; 0]);
    // They come back as new ones, and keys count under them.
    assert!(store.check_one_now(&Item::new(b"key", &register(3)), 3, now).allowed);
    assert!(!store.check_one_now(&Item::new(b"key", &register(3)), 1, now).allowed);
}
