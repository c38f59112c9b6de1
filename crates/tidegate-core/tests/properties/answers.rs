//! What an answer promises can be tried: coming back when told, taking all that remains.
//!
//! The clock may have jumped on the way, and may be behind what the key remembers.

use proptest::prelude::*;
use tidegate_core::{Action, Retry, Source};

use crate::support::{Cost, Key, config, cost, limits, nanos, start, unsteady_history};

/// Refused until the moment that was told, then admitted; at a random moment before, too.
fn retry_is_exact(key: &mut Key, cost: Cost, before: u64) -> Result<(), TestCaseError> {
    let cost = key.units(cost);
    // A refusal is what a client comes back from, and where first sight is remembered.
    let refused = key.check(cost);
    let retry = key.peek(cost).retry;
    if refused.allowed {
        prop_assert_eq!(refused.retry, Retry::Now);
        return Ok(());
    }
    prop_assert_eq!(refused.retry, retry, "a refusal and a look agree");
    match retry {
        Retry::After(wait) => {
            let wait = nanos(wait);
            prop_assert!(wait > 0);
            let Some(then) = moment_after(key, wait) else { return Ok(()) };
            prop_assert!(key.peek_at(then, cost).allowed, "refused after {}", wait);
            prop_assert!(!key.peek_at(then - 1, cost).allowed, "admitted a tick before {}", wait);
            let early = key.now + before % wait;
            prop_assert!(!key.peek_at(early, cost).allowed, "admitted at {}", early);
        }
        Retry::Never => {
            let soft = key.limit.spec().soft.map_or(0, |soft| u128::from(soft.over_bp));
            let most = u128::from(key.limit.limit()) * (10_000 + soft) / 10_000;
            prop_assert!(u128::from(cost) > most, "{} is never admitted by {}", cost, most);
        }
        other => prop_assert!(false, "refused, but {:?}", other),
    }
    Ok(())
}

fn remaining_is_the_largest(key: &Key) -> Result<(), TestCaseError> {
    let remaining = key.peek(0).remaining;
    prop_assert_eq!(remaining, key.room());
    prop_assert!(key.fits(remaining), "{} remain but do not fit", remaining);
    prop_assert!(!key.fits(remaining + 1), "one more than {} fits", remaining);
    Ok(())
}

fn reset_is_minimal(key: &Key) -> Result<(), TestCaseError> {
    let limit = key.limit.limit();
    let decision = key.peek(0);
    let reset = nanos(decision.reset_after.unwrap());
    prop_assert_eq!(reset == 0, decision.remaining == limit);
    let Some(then) = moment_after(key, reset) else { return Ok(()) };
    prop_assert_eq!(key.peek_at(then, 0).remaining, limit);
    if reset > 0 {
        prop_assert!(key.peek_at(then - 1, 0).remaining < limit, "full before {}", reset);
    }
    Ok(())
}

/// Looking, asking for nothing and being refused leave the key as it was.
fn only_takings_are_written(key: &mut Key, cost: Cost) -> Result<(), TestCaseError> {
    let (cost, before) = (key.units(cost), key.state.clone());
    let ask = key.ask();
    let looked = key.limit.settle(&mut key.state, &ask, cost, Action::Look);
    prop_assert_eq!(looked, key.peek(cost));
    let nothing = key.check(0);
    prop_assert!(nothing.allowed && nothing.source == Source::Store);
    prop_assert_eq!(&key.state, &before);
    if !key.check(cost).allowed && !key.limit.counts_rejected() {
        prop_assert_eq!(&key.state, &before);
    }
    Ok(())
}

/// A wait that reaches the end of time is cut off there and promises nothing.
fn moment_after(key: &Key, wait: u64) -> Option<u64> {
    key.now.checked_add(wait).filter(|_| wait < u64::MAX)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn retry_is_exact_for_plain_limits(
        spec in limits::plain(), start in start(), history in unsteady_history(),
        cost in cost(), before in any::<u64>(),
    ) {
        retry_is_exact(&mut Key::after(spec, start, &history), cost, before)?;
    }

    #[test]
    fn retry_is_exact_for_soft_limits(
        spec in limits::any_soft(), start in start(), history in unsteady_history(),
        cost in cost(), before in any::<u64>(),
    ) {
        retry_is_exact(&mut Key::after(spec, start, &history), cost, before)?;
    }

    #[test]
    fn retry_is_exact_for_limits_that_start_below_full(
        spec in limits::any_cautious(), start in start(), history in unsteady_history(),
        cost in cost(), before in any::<u64>(),
    ) {
        retry_is_exact(&mut Key::after(spec, start, &history), cost, before)?;
    }

    #[test]
    fn retry_is_exact_for_warm_ups(
        spec in limits::warm_ups(), start in start(), history in unsteady_history(),
        cost in cost(), before in any::<u64>(),
    ) {
        retry_is_exact(&mut Key::after(spec, start, &history), cost, before)?;
    }

    #[test]
    fn remaining_is_the_largest_cost_that_fits(
        spec in limits::plain(), start in start(), history in unsteady_history(),
    ) {
        remaining_is_the_largest(&Key::after(spec, start, &history))?;
    }

    /// `remaining` speaks of the plain limit; the room above it is asked for with `room`.
    #[test]
    fn room_is_the_largest_cost_that_fits_a_soft_limit(
        spec in limits::any_soft(), start in start(), history in unsteady_history(),
    ) {
        let key = Key::after(spec, start, &history);
        let (room, remaining) = (key.room(), key.peek(0).remaining);
        prop_assert!(remaining <= room);
        prop_assert!(key.fits(room) && !key.fits(room + 1));
    }

    #[test]
    fn reset_is_minimal_for_plain_limits(
        spec in limits::plain(), start in start(), history in unsteady_history(),
    ) {
        reset_is_minimal(&Key::after(spec, start, &history))?;
    }

    #[test]
    fn reset_is_minimal_for_soft_limits(
        spec in limits::any_soft(), start in start(), history in unsteady_history(),
    ) {
        reset_is_minimal(&Key::after(spec, start, &history))?;
    }

    #[test]
    fn only_takings_are_written_down(
        spec in prop_oneof![limits::plain(), limits::any_soft(), limits::warm_ups()],
        start in start(), history in unsteady_history(), cost in cost(),
    ) {
        only_takings_are_written(&mut Key::after(spec, start, &history), cost)?;
    }

    /// What a key remembers never looks better from an earlier moment: a clock that goes back can
    /// only make an answer stricter.
    #[test]
    fn an_earlier_clock_sees_no_more_room(
        spec in limits::plain(), start in start(), history in unsteady_history(),
        back in any::<u64>(),
    ) {
        let key = Key::after(spec, start, &history);
        let earlier = Key { now: back % (key.now + 1), ..key.clone() };
        prop_assert!(key.state.is_none() || earlier.room() <= key.room());
    }
}
