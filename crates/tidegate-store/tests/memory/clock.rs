//! Clocks that jump by decades. Buckets are kept in half the bits, counted from an origin near
//! now; whatever the clock does, their answers are those of the whole arithmetic.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Action, Ask, Decision, Limit, LimitSpec, Rate, State, Timestamp};
use tidegate_store::{Item, MemoryStore, Op, Registered};

use crate::support::{SECOND, START, YEAR, ask, check, one_shard, register};

/// The same keys in whole states that are never dropped.
#[derive(Default)]
struct Whole {
    states: HashMap<(usize, u8), State>,
    latest: Timestamp,
}

impl Whole {
    fn check(
        &mut self,
        which: usize,
        limit: &Limit,
        key: u8,
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let mut state = self.states.remove(&(which, key));
        let ask = Ask::at(now);
        let action =
            if limit.fits(state.as_ref(), &ask, cost) { Action::Take } else { Action::Refuse };
        let decision = limit.settle(&mut state, &ask, cost, action);
        state.map(|state| self.states.insert((which, key), state));
        self.latest = self.latest.max(now);
        decision
    }

    /// Whether the state was spent at some time, so that it may have been dropped since.
    fn may_be_dropped(&self, which: usize, limit: &Limit, key: u8) -> bool {
        let state = self.states.get(&(which, key));
        state.is_some_and(|state| limit.is_spent(state, &Ask::at(self.latest)))
    }

    fn forget(&mut self, which: usize, key: u8) {
        self.states.remove(&(which, key));
    }
}

/// All of one word; ticks of a nanosecond, and finer ones, but none so fine that half a century
/// of them does not fit.
fn specs() -> [LimitSpec; 5] {
    [
        Limit::per_second(5),
        Limit::token_bucket(Rate::per_second(7)).burst(20),
        Limit::per_hour(3),
        Limit::gcra(Rate::per_second(9)).burst(4),
        Limit::leaky_queue(Rate::per_second(3), 6),
    ]
}

struct Rig {
    store: MemoryStore,
    limits: Vec<Arc<Registered>>,
    whole: Whole,
}

impl Rig {
    fn new() -> Self {
        let store = one_shard();
        let limits = specs().into_iter().enumerate();
        let limits = limits.map(|(number, spec)| register(&store, &number.to_string(), spec));
        let limits: Vec<_> = limits.collect();
        assert!(limits.iter().all(|limit| limit.limit().as_narrow().is_some()));
        Self { limits, store, whole: Whole::default() }
    }

    /// Checks a key under every limit, and compares.
    fn check(&mut self, key: u8, cost: u64, now: Timestamp) {
        for (which, limit) in self.limits.iter().enumerate() {
            let found = check(&self.store, &[key], limit, cost, now);
            let core = limit.limit();
            let (dropped, before) =
                (self.whole.may_be_dropped(which, core, key), self.whole.states.clone());
            let expected = self.whole.check(which, core, key, cost, now);
            if found != expected && dropped {
                // As if it had never been seen.
                self.whole.states = before;
                self.whole.forget(which, key);
                let expected = self.whole.check(which, core, key, cost, now);
                assert_eq!(found, expected, "{core}, key {key}, cost {cost}, {now}, forgotten");
            } else {
                assert_eq!(found, expected, "{core}, key {key}, cost {cost}, {now}");
            }
        }
    }
}

/// One wrong reading of the clock is the affair of the key that it was read for.
#[test]
fn a_jump_of_thirty_years_and_back_does_not_touch_other_keys() {
    let store = one_shard();
    let limit = register(&store, "limit", Limit::per_second(2));
    assert!(check(&store, b"k", &limit, 2, START).allowed);
    assert!(check(&store, b"other", &limit, 1, START + 30 * YEAR).allowed);
    let decision = check(&store, b"k", &limit, 1, START + SECOND);
    assert_eq!((decision.allowed, decision.remaining), (true, 1));
}

#[test]
fn the_clock_jumps_thirty_years_forward_and_back() {
    let mut rig = Rig::new();
    for key in 0..4 {
        rig.check(key, 2, START);
    }
    rig.check(0, 1, START + 30 * YEAR);
    rig.check(0, 2, START + 30 * YEAR + SECOND);
    // The first key has been used in the future, and has to wait for it; the others have not.
    for key in 0..4 {
        rig.check(key, 1, START + SECOND);
    }
    for key in 0..5 {
        rig.check(key, 1, START + 31 * YEAR);
    }
}

#[test]
fn the_clock_goes_back_before_the_first_moment() {
    let mut rig = Rig::new();
    for now in [START, START + SECOND] {
        rig.check(0, 1, now);
    }
    let earlier =
        |years: u64| Timestamp::from_nanos(START.as_nanos() - years * YEAR.as_nanos() as u64);
    for now in [earlier(1), earlier(2), earlier(20), earlier(50), Timestamp::ZERO] {
        rig.check(0, 1, now);
        rig.check(1, 1, now);
        rig.check(2, 2, now + SECOND);
    }
    for now in [START, START + YEAR] {
        for key in 0..4 {
            rig.check(key, 1, now);
        }
    }
}

#[test]
fn the_clock_runs_on_for_a_century() {
    let mut rig = Rig::new();
    for half_year in 0..200_u32 {
        let now = START + half_year * (YEAR / 2);
        for step in 0..3 {
            rig.check(0, 2, now + step * (SECOND / 3));
        }
    }
}

/// A clock that is wrong by a decade and more, in ticks too fine for 64 bits: the key that was used
/// in the far future is empty now, and earns from now on.
#[test]
fn a_debt_beyond_the_bits_is_an_empty_bucket() {
    let store = one_shard();
    let limit = register(&store, "limit", Limit::token_bucket(Rate::per_second(31)));
    assert!(limit.limit().as_narrow().is_some());
    assert!(check(&store, b"k", &limit, 1, START + 60 * YEAR).allowed);
    let decision = check(&store, b"k", &limit, 1, START);
    assert_eq!((decision.allowed, decision.remaining), (false, 0));
}

#[test]
fn the_ends_of_time_are_moments_like_any_other() {
    let store = one_shard();
    for (number, spec) in specs().into_iter().enumerate() {
        let limit = register(&store, &number.to_string(), spec);
        for now in [Timestamp::ZERO, Timestamp::MAX, Timestamp::ZERO, Timestamp::MAX] {
            for _ in 0..30 {
                let (outcome, answers) = ask(&store, Op::Check, &[Item::new(b"k", &limit)], 1, now);
                assert_eq!(outcome.allowed, answers[0].decision.allowed);
                assert!(answers[0].decision.remaining <= limit.limit().limit());
            }
            let last = check(&store, b"k", &limit, 1, now);
            assert!(!last.allowed, "thirty were too many: {spec}, {now}, {last:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 200, ..Default::default() })]

    /// Any jumps between any years, a little time in between.
    #[test]
    fn any_jumps_leave_decisions_equal(
        steps in prop::collection::vec((0..6_u32, 0..4_u8, 0..4_u64, 0..3_000_u64), 1..60),
    ) {
        let mut rig = Rig::new();
        let mut around = START;
        for (jump, key, cost, millis) in steps {
            around = match jump {
                0 => START,
                1 => START + 6 * YEAR,
                2 => START + 30 * YEAR,
                3 => Timestamp::from_nanos(START.as_nanos() - 20 * YEAR.as_nanos() as u64),
                _ => around,
            };
            if cost > 0 {
                rig.check(key, cost, around + Duration::from_millis(millis));
            }
        }
    }
}
