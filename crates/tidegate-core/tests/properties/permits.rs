//! Permits in flight: the list of holders decides, never more of them than the limit.

use proptest::prelude::*;
use tidegate_core::{Action, Ask, Decision, Lease, Limit, LimitSpec, Retry, State, Timestamp};

use crate::model::Answer;
use crate::model::concurrency::Permits;
use crate::support::{config, limits, nanos};

#[derive(Clone, Copy, Debug)]
enum Op {
    Acquire(u64),
    Peek(u64),
    Force(u64),
    Release,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    gap: i64,
    holder: u128,
    op: Op,
}

/// Nothing is forced, so that the limit holds.
fn honest_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..4u64).prop_map(Op::Acquire),
        1 => prop_oneof![0..9u64, Just(u64::MAX)].prop_map(Op::Acquire),
        1 => (0..9u64).prop_map(Op::Peek),
        3 => Just(Op::Release),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![10 => honest_op(), 1 => (1..9u64).prop_map(Op::Force)]
}

fn life(
    gaps: impl Strategy<Value = i64>,
    ops: impl Strategy<Value = Op>,
) -> impl Strategy<Value = Vec<Step>> {
    let step = (gaps, 0..6u128, ops);
    let step = step.prop_map(|(gap, holder, op)| Step { gap, holder, op });
    proptest::collection::vec(step, 1..40)
}

fn steady_life() -> impl Strategy<Value = Vec<Step>> {
    life(prop_oneof![0..3i64, 0..40i64], op())
}

fn unsteady_life() -> impl Strategy<Value = Vec<Step>> {
    life(prop_oneof![4 => 0..3i64, 2 => 0..40i64, 1 => -60..0i64], op())
}

fn honest_life() -> impl Strategy<Value = Vec<Step>> {
    life(prop_oneof![4 => 0..3i64, 2 => 0..40i64, 1 => -60..0i64], honest_op())
}

struct Key {
    limit: Limit,
    state: Option<State>,
    now: u64,
}

impl Key {
    fn new(spec: LimitSpec) -> Self {
        Self { limit: spec.build().unwrap(), state: None, now: 100 }
    }

    fn ask(&self, holder: u128) -> Ask {
        Ask { holder, ..Ask::at(Timestamp::from_nanos(self.now)) }
    }

    fn step(&mut self, step: &Step) -> Decision {
        self.now = self.now.saturating_add_signed(step.gap);
        let ask = self.ask(step.holder);
        let (limit, state) = (&self.limit, &mut self.state);
        match step.op {
            Op::Acquire(n) => {
                let fits = limit.fits(state.as_ref(), &ask, n);
                limit.settle(state, &ask, n, if fits { Action::Take } else { Action::Refuse })
            }
            Op::Peek(n) => limit.peek(state.as_ref(), &ask, n),
            Op::Force(n) => limit.settle(state, &ask, n, Action::Force),
            Op::Release => limit.refund(state, &ask, u64::MAX),
        }
    }

    fn fits_at(&self, holder: u128, now: u64, n: u64) -> bool {
        let ask = Ask { holder, ..Ask::at(Timestamp::from_nanos(now)) };
        self.limit.fits(self.state.as_ref(), &ask, n)
    }
}

fn follows_the_list(spec: LimitSpec, life: &[Step]) -> Result<(), TestCaseError> {
    let mut key = Key::new(spec);
    let mut model = Permits::new(&spec);
    for (index, step) in life.iter().enumerate() {
        let found = Answer::from(key.step(step));
        let expected = match step.op {
            Op::Acquire(n) => model.acquire(key.now, step.holder, n),
            Op::Peek(n) => model.peek(key.now, step.holder, n),
            Op::Release => {
                model.release(step.holder);
                model.peek(key.now, step.holder, 0)
            }
            Op::Force(n) => {
                model.force(key.now, step.holder, n);
                // When a debt is paid is told by the engine's own tests of force.
                Answer { retry: found.retry, ..model.peek(key.now, step.holder, 0) }
            }
        };
        prop_assert_eq!(found, expected, "{}: step {} {:?} at {}", spec, index, step, key.now);
    }
    Ok(())
}

/// Who was admitted holds its permits until it gives them back or a whole lease has gone by on a
/// clock that never goes back. A clock that did go back is as late as the latest who still holds.
fn never_too_many_in_flight(spec: LimitSpec, life: &[Step]) -> Result<(), TestCaseError> {
    let mut key = Key::new(spec);
    let lease = match spec.lease {
        Some(Lease::For(lease)) => nanos(lease),
        _ => u64::MAX,
    };
    let mut latest = 0;
    let mut flying: Vec<(u128, u64, u64)> = Vec::new();
    for step in life {
        let decision = key.step(step);
        latest = latest.max(key.now);
        flying.retain(|(_, _, since)| latest - since < lease);
        match step.op {
            Op::Acquire(n) if decision.allowed && n > 0 => {
                let since = flying.iter().map(|(_, _, since)| *since).fold(key.now, u64::max);
                flying.retain(|(id, ..)| *id != step.holder);
                flying.push((step.holder, n, since));
            }
            Op::Release => flying.retain(|(id, ..)| *id != step.holder),
            _ => {}
        }
        let held: u64 = flying.iter().map(|(_, units, _)| units).sum();
        prop_assert!(held <= key.limit.limit(), "{}: {} in flight at {}", spec, held, latest);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn answers_follow_the_list(spec in limits::permits(), life in steady_life()) {
        follows_the_list(spec, &life)?;
    }

    #[test]
    fn no_clock_lets_too_many_fly(spec in limits::permits(), life in honest_life()) {
        never_too_many_in_flight(spec, &life)?;
    }

    #[test]
    fn retry_is_exact(
        spec in limits::permits(), life in unsteady_life(), holder in 0..6u128, n in 1..9u64,
    ) {
        let mut key = Key::new(spec);
        for step in &life {
            let _ = key.step(step);
        }
        let decision = key.limit.peek(key.state.as_ref(), &key.ask(holder), n);
        prop_assert_eq!(decision.allowed, key.fits_at(holder, key.now, n));
        match decision.retry {
            Retry::Now => prop_assert!(decision.allowed),
            Retry::Never => prop_assert!(n > key.limit.limit()),
            Retry::Unknown => prop_assert_eq!(spec, spec.without_lease()),
            Retry::After(wait) => {
                let then = key.now + nanos(wait);
                prop_assert!(key.fits_at(holder, then, n));
                prop_assert!(!key.fits_at(holder, then - 1, n));
            }
        }
    }

    /// What remains is what somebody may have who holds nothing yet; looking changes nothing.
    #[test]
    fn remaining_is_for_newcomers(spec in limits::permits(), life in unsteady_life()) {
        let mut key = Key::new(spec);
        for step in &life {
            let _ = key.step(step);
        }
        let (newcomer, before) = (u128::MAX, key.state.clone());
        let remaining = key.limit.peek(key.state.as_ref(), &key.ask(newcomer), 1).remaining;
        prop_assert!(key.fits_at(newcomer, key.now, remaining));
        prop_assert!(!key.fits_at(newcomer, key.now, remaining + 1));
        prop_assert_eq!(key.state, before);
    }

    /// When the last lease has ended, and not before, nobody can tell the key from a new one.
    #[test]
    fn forgetting_goes_unnoticed(
        spec in limits::permits(), past in unsteady_life(), future in steady_life(),
    ) {
        let mut key = Key::new(spec);
        for step in &past {
            let _ = key.step(step);
        }
        let Some(state) = key.state.clone() else { return Ok(()) };
        let Some(after) = key.limit.forget_after(&state, &key.ask(0)) else { return Ok(()) };
        if !after.is_zero() {
            key.now += nanos(after) - 1;
            prop_assert!(!key.limit.is_spent(&state, &key.ask(0)));
            key.now += 1;
        }
        prop_assert!(key.limit.is_spent(&state, &key.ask(0)));
        let mut forgetful = Key { limit: key.limit.clone(), state: None, now: key.now };
        for step in &future {
            prop_assert_eq!(key.step(step), forgetful.step(step));
        }
    }

    /// Giving back by the taking is releasing, when every permit has a holder of its own.
    #[test]
    fn given_back_permits_are_free(spec in limits::permits(), life in steady_life()) {
        let mut key = Key::new(spec);
        for step in &life {
            let _ = key.step(step);
        }
        let holder = u128::MAX;
        let ask = key.ask(holder);
        let before = key.limit.peek(key.state.as_ref(), &key.ask(7), 1);
        if before.remaining > 0 {
            let _ = key.limit.settle(&mut key.state, &ask, before.remaining, Action::Take);
            let taken = key.limit.taken(key.state.as_ref().unwrap(), &ask, before.remaining);
            let after = key.limit.give_back(&mut key.state, &ask, &taken);
            prop_assert_eq!(after.remaining, before.remaining);
            let again = key.limit.give_back(&mut key.state, &ask, &taken);
            prop_assert_eq!(again.remaining, before.remaining);
        }
    }
}
