//! One limit on one key: never one more, never one less.

use std::sync::Arc;

use tidegate_core::{Limit, LimitSpec, Rate, Refill};
use tidegate_store::{Call, Item, LocalStore, MemoryStore, Op, Registered, Store};

use crate::support::{HOUR, SECOND, START, apply, one_shard, register, remaining};
use crate::{THREADS, race};

/// Every algorithm, of about a thousand units.
fn thousands() -> Vec<LimitSpec> {
    let rate = Rate::per_hour(1000);
    vec![
        Limit::token_bucket(rate),
        Limit::token_bucket(Rate::new(9973, HOUR)).burst(1000),
        Limit::token_bucket(rate).initial(600),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::token_bucket(rate).refill(Refill::IntervalAligned).initial(900),
        Limit::leaky_bucket(rate),
        Limit::leaky_queue(rate, 999),
        Limit::gcra(rate).burst(700),
        Limit::fixed_window(rate),
        Limit::fixed_window(rate).count_rejected(),
        Limit::sliding_log(rate),
        Limit::sliding_counter(rate),
        Limit::sliding_counter(rate).soft(10, HOUR),
        Limit::token_bucket(rate).soft(20, HOUR),
        Limit::concurrency(1000),
        Limit::warm_up(Rate::per_second(10), 20 * SECOND).max_delay(100 * SECOND),
        Limit::fixed_window(Rate::per_hour(0)),
    ]
}

/// The ways to ask for one unit.
type Ask = fn(&MemoryStore, &Arc<Registered>, u128) -> bool;

fn long(store: &MemoryStore, limit: &Arc<Registered>, holder: u128) -> bool {
    let items = [Item::new(b"key", limit)];
    let (outcome, answers) = apply(store, &Call::new(Op::Check, &items, 1, START).held_by(holder));
    assert_eq!(outcome.allowed, answers[0].decision.allowed);
    outcome.allowed
}

fn short(store: &MemoryStore, limit: &Arc<Registered>, holder: u128) -> bool {
    if limit.limit().is_concurrency() {
        return long(store, limit, holder);
    }
    store.check_one_now(&Item::new(b"key", limit), 1, START).allowed
}

fn joined(store: &MemoryStore, limit: &Arc<Registered>, holder: u128) -> bool {
    if limit.limit().is_concurrency() {
        return long(store, limit, holder);
    }
    store.check_all(b"key", std::slice::from_ref(limit), 1, START).allowed
}

/// What one caller alone is admitted, at one moment.
fn alone(spec: LimitSpec) -> u64 {
    let store = one_shard();
    let limit = register(&store, "limit", spec);
    (0..2000).filter(|number| long(&store, &limit, *number)).count() as u64
}

#[test]
fn every_algorithm_admits_exactly_its_limit() {
    const WAYS: [Ask; 3] = [long, short, joined];
    for spec in thousands() {
        let expected = alone(spec);
        for ways in WAYS.map(|way| [way; 3]).into_iter().chain([WAYS]) {
            let store = MemoryStore::new();
            let limit = register(&store, "limit", spec);
            let admitted = race(|thread| {
                let asks = 0..250_u128;
                let holder = |number| (thread as u128) << 64 | number;
                asks.filter(|number| ways[thread % 3](&store, &limit, holder(*number))).count()
                    as u64
            });
            assert_eq!(admitted, expected, "{spec}");
        }
    }
}

/// When there is enough for all, nobody is turned away because somebody else was asking.
#[test]
fn nobody_is_refused_while_there_is_enough() {
    let each = 1000 / THREADS as u64;
    for spec in thousands().into_iter().filter(|spec| alone(*spec) >= 1000) {
        let store = MemoryStore::new();
        let limit = register(&store, "limit", spec);
        let small = register(&store, "small", Limit::fixed_window(Rate::per_hour(1)));
        let admitted = race(|thread| {
            let mut admitted = 0;
            for number in 0..each {
                let holder = (thread as u128) << 64 | u128::from(number);
                let both = [Item::new(b"key", &limit), Item::new(b"key", &small)];
                let ask = |op, count: usize, cost| {
                    let call = Call::new(op, &both[..count], cost, START).held_by(holder);
                    apply(&store, &call).0
                };
                if !limit.limit().counts_rejected() {
                    // Looks, impossible requests and requests that another limit refuses.
                    ask(Op::Peek, 1, 1000);
                    assert!(!ask(Op::Check, 1, 5000).allowed);
                    assert!(!ask(Op::Check, 2, 2).allowed);
                }
                let outcome = ask(Op::Check, 1, 1);
                admitted += u64::from(outcome.allowed);
            }
            admitted
        });
        assert_eq!(admitted, each * THREADS as u64, "{spec}");
    }
}

/// Looking, taking what there is and giving it back: the books balance.
#[test]
fn nothing_is_made_or_lost_by_taking_and_giving_back() {
    let specs = [
        Limit::per_hour(100),
        Limit::fixed_window(Rate::per_hour(100)),
        Limit::sliding_log(Rate::per_hour(100)),
        Limit::sliding_counter(Rate::per_hour(100)),
        Limit::token_bucket(Rate::per_hour(100)).refill(Refill::Interval),
    ];
    for spec in specs {
        let store = MemoryStore::new();
        let limit = register(&store, "limit", spec);
        let items = [Item::new(b"key", &limit)];
        let call = |op, cost| apply(&store, &Call::new(op, &items, cost, START));
        let held = race(|thread| {
            let mut held = 0;
            for number in 0..500_u64 {
                match (number * 7 + thread as u64) % 4 {
                    0 => held += call(Op::UpTo, 5).0.granted,
                    1 => held += call(Op::Check, 3).0.granted,
                    2 if held >= 2 => {
                        held -= 2;
                        call(Op::Refund, 2);
                    }
                    _ => {
                        let (_, answers) = call(Op::Peek, 1);
                        assert!(answers[0].decision.remaining <= 100);
                    }
                }
            }
            held
        });
        assert!(held <= 100, "{spec}: {held} units are held");
        assert_eq!(remaining(&store, b"key", &limit, START), 100 - held, "{spec}");
    }
}

/// What was taken goes back once, however many settle it.
#[test]
fn reservations_are_made_once_and_settled_once() {
    let store = MemoryStore::new();
    let limit = register(&store, "limit", Limit::fixed_window(Rate::per_hour(100_000)));
    let items = [Item::new(b"key", &limit)];
    for id in 0..100 {
        let call = Call::new(Op::Check, &items, 10, START);
        let reserved = race(|_| {
            let mut answers = [tidegate_store::Answer::default()];
            let outcome = pollster::block_on(store.reserve(&call, &mut answers, id, HOUR));
            u64::from(outcome.unwrap().allowed)
        });
        assert_eq!(reserved, THREADS as u64, "all are told that it is theirs");
        let settled = race(|_| u64::from(pollster::block_on(store.settle(id, 4, START)).unwrap()));
        assert_eq!(settled, 1);
    }
    assert_eq!(remaining(&store, b"key", &limit, START), 100_000 - 400);
}
