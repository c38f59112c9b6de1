//! A limit changes and its keys keep what they should.

use proptest::prelude::*;
use tidegate_core::{
    Action, AlgorithmName, Ask, Inherit, Limit, LimitSpec, Rate, Refill, State, Timestamp,
};

use crate::support::{Key, ask_at, config, limits, ns, requests, start};

fn ask() -> Ask {
    Ask::at(Timestamp::from_secs(1_000_000))
}

/// One limit of each algorithm that counts units.
fn each(units: u64) -> Vec<Limit> {
    let rate = Rate::per_minute(units);
    let specs = [
        Limit::token_bucket(rate),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::leaky_bucket(rate),
        Limit::leaky_queue(rate, units - 1),
        Limit::gcra(rate),
        Limit::fixed_window(rate),
        Limit::sliding_log(rate),
        Limit::sliding_counter(rate),
    ];
    specs.map(|spec| spec.build().unwrap()).to_vec()
}

fn used(limit: &Limit, units: u64) -> State {
    let mut state = None;
    let decision = limit.settle(&mut state, &ask(), units, Action::Force);
    assert!(decision.allowed);
    state.unwrap()
}

fn left(old: &Limit, new: &Limit, state: &State, inherit: Inherit) -> u64 {
    let inherited = new.inherit(old, state, &ask(), inherit);
    new.peek(inherited.as_ref(), &ask(), 0).remaining
}

#[test]
fn sixty_of_a_hundred_used_leaves_what_the_table_says() {
    let table = [
        (Inherit::Used, 140, 0),
        (Inherit::AsIs, 40, 20),
        (Inherit::Proportional, 80, 8),
        (Inherit::Additive, 140, 20),
        (Inherit::Reset, 200, 20),
    ];
    for old in each(100) {
        let state = used(&old, 60);
        for (inherit, of_200, of_20) in table {
            for new in each(200) {
                assert_eq!(left(&old, &new, &state, inherit), of_200, "{inherit:?} {old} {new}");
            }
            for new in each(20) {
                assert_eq!(left(&old, &new, &state, inherit), of_20, "{inherit:?} {old} {new}");
            }
        }
    }
}

/// A debt, or what a soft limit let through, is used as well: it was once lost on the way from
/// one algorithm to another, because what *remains* of a debt is 0 as of an empty key.
#[test]
fn what_was_used_above_the_limit_stays_used() {
    for old in each(100) {
        let state = used(&old, 150);
        for new in each(200) {
            assert_eq!(left(&old, &new, &state, Inherit::Used), 50, "{old} {new}");
        }
    }
}

#[test]
fn permits_in_flight_stay_in_flight() {
    let old = Limit::concurrency(5).build().unwrap();
    let new = Limit::concurrency(7).build().unwrap();
    let state = used(&old, 4);
    for inherit in [Inherit::Used, Inherit::AsIs, Inherit::Proportional, Inherit::Reset] {
        assert_eq!(left(&old, &new, &state, inherit), 3, "{inherit:?}");
    }
}

fn expected(inherit: Inherit, left: u64, old: u64, new: u64) -> u64 {
    let [left, old, new] = [left, old, new].map(i128::from);
    let kept = match inherit {
        Inherit::Used => new - (old - left),
        Inherit::AsIs => left,
        Inherit::Proportional => left * new / old,
        Inherit::Additive => left.min(new) + 0.max(new - old),
        _ => new,
    };
    kept.clamp(0, new) as u64
}

fn compares_otherwise(old: &LimitSpec, new: &LimitSpec) -> bool {
    let counters = [old, new].map(|spec| spec.algorithm == AlgorithmName::SlidingWindowCounter);
    counters == [true; 2] && old.rate.period == new.rate.period && old.compare != new.compare
}

/// `remaining` says what is left, as no delay refuses sooner than the number of units does.
fn countable() -> impl Strategy<Value = LimitSpec> {
    limits::plain().prop_map(|mut spec| {
        if let Some(queue) = &mut spec.queue {
            queue.max_delay = None;
        }
        spec.count_rejected = false;
        spec
    })
}

proptest! {
    #![proptest_config(config())]

    /// From any limit to any other, whatever happened before.
    #[test]
    fn what_is_left_follows_the_rule(
        old in countable(), new in countable(), start in start(), history in requests(),
    ) {
        let key = Key::after(old, start, &history);
        let Some(state) = &key.state else { return Ok(()) };
        let new = new.build().unwrap();
        let before = key.peek(0);
        for inherit in [Inherit::AsIs, Inherit::Proportional, Inherit::Additive, Inherit::Used] {
            if new.spec() == &old {
                continue;
            }
            let ask = ask_at(&new, key.now);
            let inherited = new.inherit(&key.limit, state, &ask, inherit);
            let left = new.peek(inherited.as_ref(), &ask, 0).remaining;
            let rule = expected(inherit, before.remaining, before.limit, new.limit());
            if inherit == Inherit::Used && compares_otherwise(&old, new.spec()) {
                // The same counts, weighed in another way.
                prop_assert_eq!(inherited.as_ref(), Some(state));
            } else {
                prop_assert_eq!(left, rule, "{:?} from {} to {}", inherit, old, new);
            }
        }
    }

    /// A limit that did not change keeps its keys as they are.
    #[test]
    fn nothing_changes_without_a_change(
        spec in countable(), start in start(), history in requests(),
    ) {
        let key = Key::after(spec, start, &history);
        if let Some(state) = &key.state {
            let same = spec.build().unwrap();
            let inherited = same.inherit(&key.limit, state, &key.ask(), Inherit::Proportional);
            prop_assert_eq!(inherited.as_ref(), Some(state));
        }
    }

    /// Buckets keep fractions of a unit too: the key is full no sooner than it would have been
    /// at the slower of the two rates.
    #[test]
    fn buckets_keep_fractions(
        units in 1..100u64, period in 1..1_000u64, used in 1..100u64, later in 0..2_000u64,
        faster in 1..5u64,
    ) {
        let old = Limit::gcra(Rate::new(units, ns(period))).burst(100).build().unwrap();
        let rate = Rate::new(units * faster, ns(period));
        let new = Limit::gcra(rate).burst(200).build().unwrap();
        let mut state = None;
        let _ = old.settle(&mut state, &Ask::at(Timestamp::ZERO), used, Action::Take);
        let now = Ask::at(Timestamp::from_nanos(later));
        let reset = old.peek(state.as_ref(), &now, 0).reset_after.unwrap().as_nanos();
        let inherited = new.inherit(&old, &state.unwrap(), &now, Inherit::Used);
        let new_reset = new.peek(inherited.as_ref(), &now, 0).reset_after.unwrap().as_nanos();
        prop_assert!(new_reset <= reset);
        prop_assert!((new_reset + 1) * u128::from(faster) > reset - u128::from(reset > 0));
    }
}
