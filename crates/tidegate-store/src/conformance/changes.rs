//! Limits that change while their keys are in use.

use tidegate_core::{Inherit, Limit, LimitSpec, Rate, Refill};

use super::referee::{Referee, START, secs};
use crate::store::{Call, Item, Op, Store};

/// An algorithm by its name, with so many units per hour.
type Kind = (&'static str, fn(u64) -> LimitSpec);

/// With 60 of 100 used, each way to inherit leaves what it says, of 200 and of 20.
pub async fn changed_numbers_inherit<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "changed_numbers_inherit");
    let kinds: [Kind; 5] = [
        ("fixed window", |units| Limit::fixed_window(Rate::per_hour(units))),
        ("token bucket", |units| Limit::token_bucket(Rate::per_hour(units))),
        ("sliding log", |units| Limit::sliding_log(Rate::per_hour(units))),
        ("sliding counter", |units| Limit::sliding_counter(Rate::per_hour(units))),
        ("interval bucket", |units| {
            Limit::token_bucket(Rate::per_hour(units)).refill(Refill::Interval)
        }),
    ];
    let ways = [
        (Inherit::Used, 140, 0),
        (Inherit::AsIs, 40, 20),
        (Inherit::Proportional, 80, 8),
        (Inherit::Additive, 140, 20),
        (Inherit::Reset, 200, 20),
    ];
    let key = referee.key("k");
    for (kind, spec) in kinds {
        for (inherit, of_200, of_20) in ways {
            for (units, left) in [(200, of_200), (20, of_20)] {
                let name = format!("{kind} {inherit:?} to {units}");
                let limit = referee.limit(&name, spec(100));
                referee.check(&[Item::new(&key, &limit)], 60, START).await.admitted();
                let limit = referee.change(&name, spec(units), inherit);
                let items = [Item::new(&key, &limit)];
                referee.peek(&items, left + 1, START).await.refused().remaining(&[left]);
                referee.check(&items, left, START).await.admitted().remaining(&[0]);
            }
        }
    }
}

/// What was used under one algorithm is used under any other, there and back again.
pub async fn changed_algorithms_inherit<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "changed_algorithms_inherit");
    let rate = Rate::per_minute(10);
    let tens = [
        Limit::token_bucket(rate),
        // A state of two words, where the one above takes one.
        Limit::token_bucket(Rate::new(9973, secs(60))).burst(10),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::leaky_queue(rate, 9),
        Limit::fixed_window(rate),
        Limit::sliding_log(rate),
        Limit::sliding_counter(rate),
        Limit::fixed_window(rate).soft(10, secs(5)),
        Limit::sliding_counter(rate).soft(10, secs(5)),
    ];
    let key = referee.key("k");
    for (from, before) in tens.into_iter().enumerate() {
        for (to, after) in tens.into_iter().enumerate() {
            let name = format!("{from} to {to}");
            let limit = referee.limit(&name, before);
            referee.check(&[Item::new(&key, &limit)], 6, START).await.admitted();
            let limit = referee.change(&name, after, Inherit::Used);
            referee.check(&[Item::new(&key, &limit)], 1, START).await.admitted().remaining(&[3]);
            let limit = referee.change(&name, before, Inherit::Used);
            referee.check(&[Item::new(&key, &limit)], 1, START).await.admitted().remaining(&[2]);
        }
    }
}

/// The same limit under the same id is the same limit; the same limit under another id is another.
pub async fn registering_again_changes_nothing<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "registering_again_changes_nothing");
    let spec = Limit::token_bucket(Rate::per_minute(10));
    let key = referee.key("k");
    for used in 1..=5 {
        let limit = referee.limit("limit", spec);
        let items = [Item::new(&key, &limit)];
        referee.check(&items, 1, START).await.admitted().remaining(&[10 - used]);
    }
    // Also when it says how to inherit, there is nothing to inherit from.
    let limit = referee.change("limit", spec, Inherit::Reset);
    referee.check(&[Item::new(&key, &limit)], 1, START).await.admitted().remaining(&[4]);
    let other = referee.limit("other", spec);
    referee.check(&[Item::new(&key, &other)], 1, START).await.admitted().remaining(&[9]);
}

/// A reservation that was made before a change is settled after it. What was taken can be told
/// from what came later where the limit still counts in the same way; where it does not, nothing
/// goes back. More is consumed in either case.
pub async fn reservations_outlive_changes<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "reservations_outlive_changes");
    let bucket = |units| Limit::token_bucket(Rate::per_second(units)).burst(10);
    let window = |units| Limit::fixed_window(Rate::per_minute(units));
    let log = |units| Limit::sliding_log(Rate::per_minute(units));
    let counter = |units| Limit::sliding_counter(Rate::per_minute(units));
    // What is left when the five that were reserved turn out to be 2, 0, 8 and 5.
    let (kept, given_back) = ([4, 4, 1, 4], [17, 19, 11, 14]);
    let changes = [
        // Ticks that are finer and coarser, and states of another size.
        (bucket(7), bucket(1), kept),
        (bucket(7), bucket(31), kept),
        (bucket(7), window(10), kept),
        (window(10), bucket(7), kept),
        (window(10), log(10), kept),
        (window(10), window(20), given_back),
        (log(10), log(20), given_back),
        (counter(10), counter(20), given_back),
    ];
    let key = referee.key("k");
    for (number, (before, after, lefts)) in changes.into_iter().enumerate() {
        for (cost, left) in [2, 0, 8, 5].into_iter().zip(lefts) {
            let name = format!("{number} at {cost}");
            let limit = referee.limit(&name, before);
            let id = referee.id(number as u64 * 100 + cost);
            let items = [Item::new(&key, &limit)];
            let call = Call::new(Op::Check, &items, 5, START);
            referee.reserve(&call, id, secs(30)).await.admitted().remaining(&[5]);
            let limit = referee.change(&name, after, Inherit::Used);
            let items = [Item::new(&key, &limit)];
            referee.check(&items, 1, START).await.admitted();
            referee.settles(id, cost, START, true).await;
            referee.peek(&items, 0, START).await.remaining(&[left]);
        }
    }
}

/// A change that has not reached a key yet does not matter to its reservations.
pub async fn reservations_are_settled_before_keys_move<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "reservations_are_settled_before_keys_move");
    let key = referee.key("k");
    let after = [
        Limit::token_bucket(Rate::per_second(31)).burst(10),
        Limit::fixed_window(Rate::per_minute(10)),
    ];
    for (number, after) in after.into_iter().enumerate() {
        for (cost, left) in [(2, 8), (0, 10), (8, 2), (5, 5)] {
            let name = format!("{number} at {cost}");
            let limit = referee.limit(&name, Limit::token_bucket(Rate::per_second(7)).burst(10));
            let id = referee.id(number as u64 * 100 + cost);
            let items = [Item::new(&key, &limit)];
            let call = Call::new(Op::Check, &items, 5, START);
            referee.reserve(&call, id, secs(30)).await.admitted().remaining(&[5]);
            let limit = referee.change(&name, after, Inherit::Used);
            referee.settles(id, cost, START, true).await;
            referee.peek(&[Item::new(&key, &limit)], 0, START).await.remaining(&[left]);
        }
    }
}

/// Settling at what was reserved changes nothing, whatever the limit has become in between and
/// however its keys were carried over.
pub async fn settling_in_full_leaves_changes_alone<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "settling_in_full_leaves_changes_alone");
    let key = referee.key("k");
    let window = |units| Limit::fixed_window(Rate::per_hour(units));
    let ways = [
        (Inherit::Used, 140),
        (Inherit::AsIs, 40),
        (Inherit::Proportional, 130),
        (Inherit::Additive, 140),
        (Inherit::Reset, 150),
    ];
    for (first, _) in ways {
        for (second, left) in ways {
            let name = format!("{first:?} {second:?}");
            let limit = referee.change(&name, window(100), first);
            let id = referee.id(first as u64 * 10 + second as u64);
            let items = [Item::new(&key, &limit)];
            let call = Call::new(Op::Check, &items, 10, START);
            referee.reserve(&call, id, secs(30)).await.admitted().remaining(&[90]);
            let limit = referee.change(&name, window(200), second);
            let items = [Item::new(&key, &limit)];
            referee.check(&items, 50, START).await.admitted().remaining(&[left]);
            referee.settles(id, 10, START, true).await;
            referee.peek(&items, 0, START).await.remaining(&[left]);
        }
    }
}
