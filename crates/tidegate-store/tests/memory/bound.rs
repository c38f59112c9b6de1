//! The bound on keys, and what happens at it.

use tidegate_core::{Limit, LimitSpec, Rate, Refill, Retry, Source};
use tidegate_store::{Item, MemoryBuilder, MemoryStore, Mode, OnFull, Op, Registered};

use crate::support::{HOUR, SECOND, START, ask, check, one_shard, register, remaining, seeded};

fn bounded(max_keys: usize, on_full: OnFull) -> MemoryBuilder {
    MemoryStore::builder().shards(1).max_keys(max_keys).on_full(on_full)
}

/// Uses `cost` of each of the keys numbered so.
fn use_up(store: &MemoryStore, limit: &Registered, keys: std::ops::Range<u64>, cost: u64) {
    for number in keys {
        let decision = check(store, &number.to_le_bytes(), limit, cost, START);
        assert!(decision.allowed, "key {number}: {decision:?}");
    }
}

/// How many of the keys are still known to have used something.
fn known(store: &MemoryStore, limit: &Registered, keys: std::ops::Range<u64>) -> usize {
    let full = limit.limit().limit();
    keys.filter(|number| remaining(store, &number.to_le_bytes(), limit, START) < full).count()
}

#[test]
fn spent_keys_make_room_before_keys_in_use() {
    let store = seeded(bounded(1000, OnFull::Evict), 1);
    let quick = register(&store, "quick", Limit::per_second(10));
    let slow = register(&store, "slow", Limit::per_hour(10));
    use_up(&store, &slow, 0..100, 1);
    use_up(&store, &quick, 100..1000, 10);
    let now = START + SECOND;
    for number in 2000..2200_u64 {
        assert!(check(&store, &number.to_le_bytes(), &slow, 1, now).allowed);
    }
    let stats = store.stats();
    assert_eq!(stats.evicted_live, 0);
    assert!(stats.keys <= 1000 && stats.evicted_spent >= 200, "{stats:?}");
    assert_eq!(known(&store, &slow, 0..100), 100);
}

#[test]
fn of_keys_in_use_the_least_used_make_room() {
    let store = seeded(bounded(1000, OnFull::Evict), 2);
    let limit = register(&store, "limit", Limit::per_hour(10));
    use_up(&store, &limit, 0..100, 9);
    use_up(&store, &limit, 100..1000, 3);
    use_up(&store, &limit, 2000..2200, 9);
    let stats = store.stats();
    assert_eq!((stats.keys, stats.evicted_spent, stats.evicted_live), (1000, 0, 200));
    assert_eq!(known(&store, &limit, 0..100), 100);
    assert_eq!(known(&store, &limit, 2000..2200), 200);
    assert_eq!(known(&store, &limit, 100..1000), 700);
}

/// Whoever is limited cannot shake it off by sending requests under made-up names: the names
/// evict each other.
#[test]
fn exhausted_keys_survive_a_flood_that_evicts_itself() {
    let store = seeded(bounded(1000, OnFull::Evict), 3);
    let limit = register(&store, "limit", Limit::per_hour(10));
    use_up(&store, &limit, 0..50, 10);
    use_up(&store, &limit, 1000..101_000, 1);
    for number in 0..50_u64 {
        assert!(!check(&store, &number.to_le_bytes(), &limit, 1, START).allowed, "key {number}");
    }
    let stats = store.stats();
    assert_eq!(stats.keys, 1000);
    assert_eq!(stats.evicted_live, 100_000 - 950);
}

/// Also when they are many, and when the flood comes under another limit whose states are kept
/// elsewhere.
#[test]
fn exhausted_keys_survive_however_many_they_are() {
    let window = Limit::fixed_window(Rate::per_hour(10));
    // Sixteen are drawn to find one to evict: of more than a third, all may be exhausted.
    for (spec, counts) in [(Limit::per_hour(10), [100, 300]), (window, [300, 600])] {
        for count in counts {
            let store = seeded(bounded(1000, OnFull::Evict), 4);
            let victims = register(&store, "victims", spec);
            let limit = register(&store, "flood", Limit::per_hour(10));
            use_up(&store, &victims, 0..count, 10);
            use_up(&store, &limit, 1000..51_000, 1);
            let left = known(&store, &victims, 0..count) as u64;
            assert_eq!(left, count, "{spec}");
        }
    }
}

#[test]
fn the_total_never_exceeds_the_bound_whatever_the_shards_and_limits() {
    let specs: [LimitSpec; 6] = [
        Limit::per_hour(5),
        Limit::token_bucket(Rate::per_second(997)),
        Limit::fixed_window(Rate::per_hour(5)),
        Limit::sliding_counter(Rate::per_hour(5)),
        Limit::sliding_counter(Rate::per_hour(5)).soft(50, HOUR),
        Limit::sliding_log(Rate::per_hour(5)),
    ];
    for on_full in [OnFull::Evict, OnFull::Deny, OnFull::Allow] {
        for (shards, max_keys) in [(1, 1), (1, 7), (4, 50), (16, 300), (64, 10), (1024, 1000)] {
            let builder = MemoryStore::builder().shards(shards).max_keys(max_keys);
            let store = builder.on_full(on_full).build();
            let limits: Vec<_> = specs
                .iter()
                .enumerate()
                .map(|(number, spec)| register(&store, &number.to_string(), *spec))
                .collect();
            for number in 0..1500_u64 {
                let limit = &limits[(number % 6) as usize];
                let other = &limits[(number / 6 % 6) as usize];
                let key = number.to_le_bytes();
                ask(&store, Op::Force, &[Item::new(&key, limit), Item::new(&key, other)], 1, START);
                assert!(store.len() <= max_keys, "{} of {max_keys}, {on_full:?}", store.len());
            }
            let stats = store.stats();
            assert!(stats.keys <= stats.keys_max && stats.keys_max <= max_keys, "{stats:?}");
        }
    }
}

#[test]
fn a_key_counts_once_for_each_of_its_limits() {
    let store = one_shard();
    let limits = ["a", "b", "c"].map(|id| register(&store, id, Limit::per_hour(5)));
    let items = limits.each_ref().map(|limit| Item::new(b"key", limit));
    ask(&store, Op::Check, &items, 1, START);
    assert_eq!(store.len(), 3);
}

#[test]
fn at_the_bound_deny_refuses_new_keys_and_serves_those_it_knows() {
    let store = bounded(10, OnFull::Deny).build();
    let limit = register(&store, "limit", Limit::per_hour(3));
    use_up(&store, &limit, 0..10, 1);
    let refused = check(&store, b"new", &limit, 1, START);
    assert!(!refused.allowed);
    assert_eq!((refused.limit, refused.remaining), (3, 0));
    assert_eq!((refused.retry, refused.source), (Retry::Unknown, Source::Fallback));
    // The long way says the same, and counts it too.
    let (outcome, answers) = ask(&store, Op::Check, &[Item::new(b"new", &limit)], 1, START);
    assert!(!outcome.allowed);
    assert_eq!(answers[0].decision, refused);
    use_up(&store, &limit, 0..10, 2);
    let stats = store.stats();
    assert_eq!((stats.keys, stats.denied_full, stats.allowed_full), (10, 2, 0));
    assert_eq!((stats.evicted_live, stats.evicted_spent), (0, 0));
}

#[test]
fn at_the_bound_allow_admits_new_keys_uncounted() {
    let store = bounded(10, OnFull::Allow).build();
    let limit = register(&store, "limit", Limit::per_hour(3));
    use_up(&store, &limit, 0..10, 1);
    for _ in 0..5 {
        let admitted = check(&store, b"new", &limit, 3, START);
        assert!(admitted.allowed);
        assert_eq!((admitted.retry, admitted.source), (Retry::Now, Source::Fallback));
        let (outcome, answers) = ask(&store, Op::Check, &[Item::new(b"new", &limit)], 3, START);
        assert!(outcome.allowed);
        assert_eq!((answers[0].decision, answers[0].taken.cost), (admitted, 0));
    }
    // Those it knows are limited as ever.
    use_up(&store, &limit, 0..10, 2);
    assert!(!check(&store, &0_u64.to_le_bytes(), &limit, 1, START).allowed);
    let stats = store.stats();
    assert_eq!((stats.keys, stats.denied_full, stats.allowed_full), (10, 0, 10));
}

/// What a limit would refuse to a key that it has never seen needs no place, and so the bound has
/// nothing to say to it.
#[test]
fn at_the_bound_a_limit_still_speaks_for_itself_when_it_refuses() {
    let specs = [
        Limit::per_second(0),
        Limit::per_second(2),
        Limit::per_second(9).initial(2),
        Limit::fixed_window(Rate::per_second(2)),
        Limit::fixed_window(Rate::per_second(2)).count_rejected(),
        Limit::token_bucket(Rate::per_second(9)).refill(Refill::Interval).initial(2),
    ];
    for on_full in [OnFull::Deny, OnFull::Allow] {
        let store = bounded(1, on_full).build();
        let other = one_shard();
        let limit = register(&store, "full", Limit::per_hour(3));
        use_up(&store, &limit, 0..1, 1);
        for (number, spec) in specs.into_iter().enumerate() {
            let id = number.to_string();
            let (limit, same) = (register(&store, &id, spec), register(&other, &id, spec));
            let (item, free) = (Item::new(b"new", &limit), Item::new(b"new", &same));
            let (expected, opinions) = ask(&other, Op::Peek, &[free], 5, START);
            let (found, answers) = ask(&store, Op::Check, &[item], 5, START);
            assert_eq!((found.allowed, expected.allowed), (false, false), "{spec} {on_full:?}");
            let (mut found, expected) = (answers[0].decision, opinions[0].decision);
            if limit.limit().counts_rejected() {
                // What would have been counted is not, so that the wait need not agree.
                found.retry = expected.retry;
                found.remaining = expected.remaining;
                found.reset_after = expected.reset_after;
            }
            assert_eq!(found, expected, "{spec} {on_full:?}");
            if !limit.limit().counts_rejected() {
                assert_eq!(check(&store, b"new", &limit, 5, START), expected, "{spec}");
            }
        }
        assert_eq!((store.stats().denied_full, store.stats().allowed_full), (0, 0));
    }
}

/// Spent keys equal no keys: a store that was full once is not full for ever.
#[test]
fn spent_keys_do_not_keep_new_ones_out() {
    for on_full in [OnFull::Deny, OnFull::Allow] {
        let store = bounded(100, on_full).build();
        let limit = register(&store, "limit", Limit::per_second(3));
        use_up(&store, &limit, 0..100, 3);
        let now = START + SECOND;
        for number in 1000..1100_u64 {
            let key = number.to_le_bytes();
            let decision = check(&store, &key, &limit, 2, now);
            assert!(decision.allowed, "{on_full:?}");
            assert_eq!((decision.remaining, decision.source), (1, Source::Store), "{on_full:?}");
            let (outcome, _) = ask(&store, Op::Check, &[Item::new(&key, &limit)], 2, now);
            assert!(!outcome.allowed, "it was counted, {on_full:?}");
        }
        let stats = store.stats();
        assert_eq!((stats.keys, stats.denied_full, stats.allowed_full), (100, 0, 0));
        // Now it is full of keys in use.
        assert_eq!(check(&store, b"new", &limit, 1, now).allowed, on_full == OnFull::Allow);
    }
}

#[test]
fn at_the_bound_a_call_is_still_all_or_nothing() {
    let store = bounded(3, OnFull::Deny).build();
    let limit = register(&store, "limit", Limit::fixed_window(Rate::per_hour(5)));
    use_up(&store, &limit, 0..2, 1);
    let (known, one, two) = (0_u64.to_le_bytes(), *b"one", *b"two");
    // There is room for one new key, not for two.
    let both = [Item::new(&known, &limit), Item::new(&one, &limit), Item::new(&two, &limit)];
    let (outcome, answers) = ask(&store, Op::Check, &both, 1, START);
    assert!(!outcome.allowed);
    let opinions: Vec<bool> = answers.iter().map(|answer| answer.decision.allowed).collect();
    assert_eq!(opinions, [true, true, false]);
    assert_eq!(store.len(), 2);
    assert_eq!(remaining(&store, &known, &limit, START), 4);
    assert_eq!(remaining(&store, &one, &limit, START), 5);

    // In shadow a limit refuses nobody, for want of room as little as for anything else.
    let shadow = [both[0], both[1], Item { mode: Mode::Shadow, ..both[2] }];
    let (outcome, _) = ask(&store, Op::Check, &shadow, 1, START);
    assert!(outcome.allowed);
    assert_eq!(store.len(), 3);
}

/// Looking and giving back need no place.
#[test]
fn at_the_bound_nothing_but_consumption_needs_room() {
    let store = bounded(1, OnFull::Deny).build();
    let limit = register(&store, "limit", Limit::per_hour(3));
    use_up(&store, &limit, 0..1, 1);
    let items = [Item::new(b"new", &limit)];
    for op in [Op::Refund, Op::Reset, Op::GiveBack(&[])] {
        let (outcome, answers) = ask(&store, op, &items, 2, START);
        assert!(outcome.allowed);
        assert_eq!((answers[0].decision.remaining, answers[0].decision.source), (3, Source::Store));
    }
    let (outcome, _) = ask(&store, Op::Check, &items, 0, START);
    assert!(outcome.allowed);
    assert_eq!((store.len(), store.stats().denied_full), (1, 0));
    // To answer as a check would is to say that there is none.
    let (outcome, answers) = ask(&store, Op::Peek, &items, 1, START);
    assert!(!outcome.allowed);
    assert_eq!(answers[0].decision.source, Source::Fallback);
}
