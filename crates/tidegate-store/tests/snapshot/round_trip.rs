//! A restored store answers like the one that was saved.

use std::sync::Arc;
use std::time::Duration;

use tempfile::tempdir;
use tidegate_core::{
    Align, Compare, Inherit, Limit, LimitSpec, Rate, Refill, Taken, Timestamp, Windows,
};
use tidegate_store::{Call, Item, MemoryStore, Op, Registered, Store};

use crate::restored;
use crate::support::{HOUR, SECOND, START, apply, ask, check, one_shard, register, remaining};

/// Every algorithm in every form of its state.
fn specs() -> Vec<LimitSpec> {
    let rate = Rate::new(10, Duration::from_secs(60));
    vec![
        Limit::token_bucket(rate),
        Limit::token_bucket(Rate::per_second(997)).burst(7),
        Limit::token_bucket(rate).initial(3),
        Limit::token_bucket(rate).burst(15).soft(25, 20 * SECOND),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::token_bucket(rate).refill(Refill::IntervalAligned).burst(12),
        Limit::token_bucket(rate).refill(Refill::Interval).initial(2).soft(50, SECOND),
        Limit::leaky_bucket(rate).burst(4),
        Limit::leaky_queue(rate, 8).max_delay(45 * SECOND),
        Limit::gcra(Rate::per_second(3)).burst(30),
        Limit::fixed_window(rate),
        Limit::fixed_window(rate).align(Align::FirstRequest),
        Limit::fixed_window(rate).align(Align::Calendar),
        Limit::fixed_window(rate).count_rejected().soft(10, 5 * SECOND),
        Limit::sliding_log(rate),
        Limit::sliding_log(rate).count_rejected(),
        Limit::sliding_log(rate).soft(30, 10 * SECOND),
        Limit::sliding_counter(rate),
        Limit::sliding_counter(rate).compare(Compare::Exact),
        Limit::sliding_counter(rate).soft(20, 10 * SECOND),
        Limit::concurrency(6).lease(40 * SECOND),
        Limit::concurrency(6).without_lease(),
        Limit::warm_up(Rate::per_second(2), 9 * SECOND),
        Limit::warm_up(Rate::per_second(3), 4 * SECOND).max_delay(2 * SECOND).cold_factor(5),
        Limit::fixed_window(Rate::per_second(0)),
    ]
}

fn register_all(store: &MemoryStore) -> Vec<Arc<Registered>> {
    let specs = specs().into_iter().enumerate();
    specs.map(|(number, spec)| register(store, &format!("limit {number}"), spec)).collect()
}

/// A number that depends on the step in no obvious way.
fn mixed(step: u64, salt: u64) -> u64 {
    let mut mixed = (step << 8 | salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^= mixed >> 32;
    mixed.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 33
}

/// One step of a history under one limit, and what came of it. Takings go back some steps later.
fn step(
    store: &MemoryStore,
    limits: &[Arc<Registered>],
    number: u64,
    takings: &mut Vec<(usize, [u8; 1], Taken)>,
) -> String {
    let now = START + Duration::from_millis(number * 700);
    let which = (mixed(number, 1) % limits.len() as u64) as usize;
    let key = [(mixed(number, 2) % 3) as u8];
    let minute = now.as_nanos() / 60_000_000_000;
    let edges = [minute - 1, minute, minute + 1, minute + 2];
    let windows = limits[which]
        .limit()
        .needs_calendar()
        .then_some(Windows { edges: edges.map(|minute| Timestamp::from_secs(minute * 60)) });
    let items = [Item { windows, ..Item::new(&key, &limits[which]) }];
    let cost = mixed(number, 3) % 4;
    let op = match mixed(number, 4) % 12 {
        0 => Op::Peek,
        1 => Op::UpTo,
        2 => Op::Force,
        3 => Op::Refund,
        _ => Op::Check,
    };
    let call = Call::new(op, &items, cost, now).held_by(u128::from(mixed(number, 5) % 3) << 80);
    let (outcome, answers) = apply(store, &call);
    if answers[0].taken.cost > 0 {
        takings.push((which, key, answers[0].taken));
    }
    let mut result = format!("{outcome:?} {answers:?}");
    if number.is_multiple_of(9) && takings.len() > 2 {
        let (which, key, taken) = takings.remove(0);
        let items = [Item { windows, ..Item::new(&key, &limits[which]) }];
        let given = apply(store, &Call::new(Op::GiveBack(&[taken]), &items, 0, now));
        result.push_str(&format!(" {given:?}"));
    }
    result
}

/// Half of a history before the snapshot, half after it; with other numbers of shards than before.
#[test]
fn a_restored_store_goes_on_as_the_saved_one() {
    const HALF: u64 = 3000;
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    for (shards_before, shards_after) in [(1, 1), (4, 64), (64, 1)] {
        let saved = MemoryStore::builder().shards(shards_before).build();
        let limits = register_all(&saved);
        let mut takings = Vec::new();
        for number in 0..HALF {
            step(&saved, &limits, number, &mut takings);
        }
        let now = START + Duration::from_millis(HALF * 700);
        let written = saved.snapshot(&path, now).unwrap();
        assert_eq!(written, saved.live_keys(now).count());
        let (again, keys) = restored(MemoryStore::builder().shards(shards_after), &path, now);
        assert_eq!((keys, again.len()), (written, written));
        let limits_again = register_all(&again);
        let mut takings_again = takings.clone();
        for number in HALF..2 * HALF {
            let expected = step(&saved, &limits, number, &mut takings);
            let found = step(&again, &limits_again, number, &mut takings_again);
            assert_eq!(found, expected, "step {number} after {shards_before} shards");
        }
    }
}

/// Debts and promises are kept too, however long they are.
#[test]
fn a_debt_of_days_survives() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = one_shard();
    let limit = register(&store, "limit", Limit::per_hour(10));
    ask(&store, Op::Force, &[Item::new(b"k", &limit)], 1000, START);
    store.snapshot(&path, START).unwrap();
    let now = START + 98 * HOUR;
    let (again, keys) = restored(MemoryStore::builder(), &path, now);
    assert_eq!(keys, 1);
    let limit = register(&again, "limit", Limit::per_hour(10));
    assert!(!check(&again, b"k", &limit, 1, now).allowed);
    assert_eq!(remaining(&again, b"k", &limit, START + 99 * HOUR + HOUR / 10), 1);
}

/// What a changed limit makes of its keys does not depend on a restart in between.
#[test]
fn a_changed_limit_is_reconfigured_and_not_dropped() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = one_shard();
    let limit = register(&store, "limit", Limit::fixed_window(Rate::per_hour(100)));
    ask(&store, Op::Check, &[Item::new(b"k", &limit)], 60, START);
    store.snapshot(&path, START).unwrap();
    let changes = [
        (Limit::fixed_window(Rate::per_hour(200)), Inherit::Used, 140),
        (Limit::fixed_window(Rate::per_hour(200)), Inherit::AsIs, 40),
        (Limit::fixed_window(Rate::per_hour(20)), Inherit::Proportional, 8),
        (Limit::fixed_window(Rate::per_hour(200)), Inherit::Reset, 200),
        (Limit::token_bucket(Rate::per_hour(100)), Inherit::Used, 40),
        (Limit::sliding_log(Rate::per_hour(70)), Inherit::Used, 10),
        (Limit::sliding_counter(Rate::per_hour(100)), Inherit::Used, 40),
        // The same limit, whatever is said about inheriting.
        (Limit::fixed_window(Rate::per_hour(100)), Inherit::Reset, 40),
    ];
    for (spec, inherit, left) in changes {
        let (again, keys) = restored(MemoryStore::builder().shards(4), &path, START);
        assert_eq!(keys, 1);
        let limit = again.register("limit", spec.build().unwrap(), inherit).unwrap();
        assert_eq!(remaining(&again, b"k", &limit, START), left, "{spec} {inherit:?}");
        assert_eq!(again.len(), usize::from(inherit != Inherit::Reset || left == 40));
    }
}

/// A limit that changed before the snapshot, with keys that have not been seen since.
#[test]
fn keys_of_earlier_limits_are_kept_as_such() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = one_shard();
    let old = register(&store, "limit", Limit::fixed_window(Rate::per_hour(100)));
    for key in [b"moved", b"still"] {
        ask(&store, Op::Check, &[Item::new(key, &old)], 60, START);
    }
    let new = register(&store, "limit", Limit::per_hour(200));
    assert_eq!(remaining(&store, b"moved", &new, START), 140);
    assert_eq!(store.snapshot(&path, START).unwrap(), 2);
    let (again, _) = restored(MemoryStore::builder(), &path, START);
    let new = register(&again, "limit", Limit::per_hour(200));
    assert_eq!(remaining(&again, b"moved", &new, START), 140);
    assert_eq!(remaining(&again, b"still", &new, START), 140);
}

/// Rules may come later than the restart, or after another one.
#[test]
fn keys_whose_limits_nobody_has_registered_yet_are_kept() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = one_shard();
    let limit = register(&store, "limit", Limit::per_hour(10));
    assert!(check(&store, b"k", &limit, 7, START).allowed);
    store.snapshot(&path, START).unwrap();
    for _ in 0..3 {
        let (again, _) = restored(MemoryStore::builder(), &path, START);
        assert_eq!(again.snapshot(&path, START).unwrap(), 1);
    }
    let (again, _) = restored(MemoryStore::builder(), &path, START);
    let limit = register(&again, "limit", Limit::per_hour(10));
    assert_eq!(remaining(&again, b"k", &limit, START), 3);
}

#[test]
fn spent_keys_are_left_out_when_writing_and_when_reading() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = one_shard();
    let quick = register(&store, "quick", Limit::fixed_window(Rate::per_second(5)));
    let slow = register(&store, "slow", Limit::fixed_window(Rate::per_hour(5)));
    for limit in [&quick, &slow] {
        ask(&store, Op::Check, &[Item::new(b"k", limit)], 5, START);
    }
    assert_eq!(store.snapshot(&path, START).unwrap(), 2);
    assert_eq!(restored(MemoryStore::builder(), &path, START).1, 2);
    assert_eq!(restored(MemoryStore::builder(), &path, START + SECOND).1, 1);
    assert_eq!(restored(MemoryStore::builder(), &path, START + HOUR).1, 0);
    assert_eq!(store.snapshot(&path, START + SECOND).unwrap(), 1);
    assert_eq!(store.snapshot(&path, START + HOUR).unwrap(), 0);
    assert_eq!(restored(MemoryStore::builder(), &path, START).1, 0);
}

/// A key is known by the same fingerprint before and after: the seed is part of the snapshot.
#[test]
fn fingerprints_survive() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = one_shard();
    let limit = register(&store, "limit", Limit::per_hour(10));
    store.snapshot(&path, START).unwrap();
    let (again, _) = restored(MemoryStore::builder(), &path, START);
    let limit_again = register(&again, "limit", Limit::per_hour(10));
    assert_eq!(store.fingerprint(b"k", &limit), again.fingerprint(b"k", &limit_again));
    let other = one_shard();
    let limit_other = register(&other, "limit", Limit::per_hour(10));
    assert_ne!(store.fingerprint(b"k", &limit), other.fingerprint(b"k", &limit_other));
}

/// A smaller bound keeps what it can, and says how much.
#[test]
fn a_smaller_store_keeps_what_it_can() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = one_shard();
    let limit = register(&store, "limit", Limit::per_hour(10));
    for number in 0..100_u64 {
        assert!(check(&store, &number.to_le_bytes(), &limit, 1, START).allowed);
    }
    store.snapshot(&path, START).unwrap();
    for on_full in
        [tidegate_store::OnFull::Evict, tidegate_store::OnFull::Deny, tidegate_store::OnFull::Allow]
    {
        let builder = MemoryStore::builder().shards(1).max_keys(10).on_full(on_full);
        let (again, keys) = restored(builder, &path, START);
        assert_eq!((keys, again.len()), (10, 10), "{on_full:?}");
    }
}
