//! Reservations in memory: their bound, and what is settled without being waited for.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Limit, Rate};
use tidegate_store::{Answer, Call, Holding, Item, LocalStore, MemoryStore, Op, Store};

use crate::support::{SECOND, START, one_shard, register, remaining};

const TTL: Duration = Duration::from_secs(30);

#[test]
fn open_reservations_are_bounded() {
    let store = MemoryStore::builder().max_reservations(3).build();
    let limit = register(&store, "limit", Limit::per_hour(100));
    let items = [Item::new(b"k", &limit)];
    let mut answers = [Answer::default()];
    let mut reserve = |id, now| {
        let call = Call::new(Op::Check, &items, 10, now);
        pollster::block_on(store.reserve(&call, &mut answers, id, TTL))
    };
    for id in 0..3 {
        assert!(reserve(id, START).unwrap().allowed);
    }
    let error = reserve(3, START).unwrap_err();
    assert_eq!(
        error.to_string(),
        "3 reservations are open already; settle or cancel some, or raise the bound"
    );
    assert_eq!(remaining(&store, b"k", &limit, START), 70, "what was not reserved is not taken");
    assert_eq!(store.stats().reservations, 3);
    // One that is open can be asked for again.
    assert!(reserve(1, START).unwrap().allowed);
    assert!(pollster::block_on(store.settle(1, 0, START)).unwrap());
    assert!(reserve(3, START).unwrap().allowed);
    // Those past their time are none.
    assert!(reserve(4, START + TTL).unwrap().allowed);
    assert_eq!(store.stats().reservations, 1);
}

/// A refused reservation takes up no room.
#[test]
fn refused_reservations_are_not_open() {
    let store = MemoryStore::builder().max_reservations(1).build();
    let limit = register(&store, "limit", Limit::per_hour(1));
    let items = [Item::new(b"k", &limit)];
    let call = Call::new(Op::Check, &items, 2, START);
    for id in 0..5 {
        let mut answers = [Answer::default()];
        let outcome = pollster::block_on(store.reserve(&call, &mut answers, id, TTL));
        assert!(!outcome.unwrap().allowed);
    }
    assert_eq!(store.stats().reservations, 0);
}

/// What a guard does when it is dropped comes to the same as settling by id.
#[test]
fn settling_soon_is_settling() {
    for (cost, now) in [(0, START), (2, START), (5, START), (9, START), (2, START + SECOND)] {
        let by_id = settled(cost, now, |store, call, handles| {
            let mut answers = [Answer::default(); 4];
            pollster::block_on(store.reserve(call, &mut answers, 7, TTL)).unwrap();
            assert_eq!(handles.len(), 4);
            assert!(pollster::block_on(store.settle(7, cost, now)).unwrap());
        });
        let by_holding = settled(cost, now, |store, call, handles| {
            let mut answers = [Answer::default(); 4];
            assert!(store.apply_now(call, &mut answers).allowed);
            store.settle_soon(Holding::new(call, handles, &answers), cost, now);
        });
        assert_eq!(by_id, by_holding, "settled at {cost}");
    }
}

/// What is left of four limits after five units were taken and settled.
fn settled(
    cost: u64,
    now: tidegate_core::Timestamp,
    work: impl Fn(&MemoryStore, &Call<'_>, &[Arc<tidegate_store::Registered>]),
) -> [u64; 4] {
    let store = one_shard();
    let handles = [
        register(&store, "bucket", Limit::per_minute(20)),
        register(&store, "window", Limit::fixed_window(Rate::per_minute(20))),
        register(&store, "log", Limit::sliding_log(Rate::per_minute(20))),
        register(&store, "permits", Limit::concurrency(20)),
    ];
    let items = handles.each_ref().map(|limit| Item::new(b"k", limit));
    let call = Call::new(Op::Check, &items, 5, START).held_by(3);
    work(&store, &call, &handles);
    let left = handles.each_ref().map(|limit| remaining(&store, b"k", limit, now));
    assert_eq!(left[1], 20 - cost, "a window holds what was settled");
    left
}
