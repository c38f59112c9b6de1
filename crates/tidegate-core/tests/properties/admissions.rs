//! Never more than the definition allows in any stretch of time, also when the clock jumps.
//!
//! A clock that goes back cannot be seen by a state that nobody wrote since. So the time of an
//! admission is the latest at which anything was written: that one the engine has to hold on to.

use proptest::prelude::*;
use tidegate_core::LimitSpec;

use crate::model::Act;
use crate::support::ledger::Ledger;
use crate::support::{Key, Step, config, limits, requests, start, unsteady_requests};

fn stays_within(spec: LimitSpec, start: u64, history: &[Step]) -> Result<(), TestCaseError> {
    let mut key = Key::new(spec, start);
    let mut ledger = Ledger::new(spec);
    let mut latest = 0;
    for (index, step) in history.iter().enumerate() {
        let mut before = key.clone();
        let (act, decision) = key.step(step);
        before.now = key.now;
        if key.state != before.state {
            latest = latest.max(key.now);
        }
        let units = match act {
            Act::Check(cost) if decision.allowed => cost,
            Act::UpTo(cost) => cost.min(before.room()),
            Act::Check(_) if spec.count_rejected => {
                ledger.count(latest);
                0
            }
            _ => 0,
        };
        if units > 0 {
            ledger.admit(index, latest, units);
            ledger.is_within_definition().map_err(TestCaseError::fail)?;
        }
    }
    Ok(())
}

/// The requests that a queue lets out leave one after the other at the rate, whatever they cost.
fn leave_evenly(spec: LimitSpec, start: u64, history: &[Step]) -> Result<(), TestCaseError> {
    let mut key = Key::new(spec, start);
    let (units, period) = (u128::from(spec.rate.units), spec.rate.period.as_nanos());
    let mut leaving: Vec<(u128, u64)> = Vec::new();
    for step in history {
        let (act, decision) = key.step(step);
        let Act::Check(cost) = act else { continue };
        if !decision.allowed || cost == 0 {
            continue;
        }
        let now = u128::from(key.now) + decision.delay.as_nanos();
        let mut ahead = 0;
        for (earlier, cost) in leaving.iter().rev() {
            ahead += u128::from(*cost);
            // Both times are rounded up, which makes up less than a nanosecond of the distance.
            prop_assert!(
                (now - earlier + 1) * units > ahead * period,
                "{}: {} units between {} and {}",
                spec,
                ahead,
                earlier,
                now
            );
        }
        leaving.push((now, cost));
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn plain_limits_stay_within_their_definition(
        spec in limits::plain(), start in start(), history in unsteady_requests(),
    ) {
        stays_within(spec, start, &history)?;
    }

    #[test]
    fn soft_limits_stay_within_their_capacity(
        spec in limits::any_soft(), start in start(), history in unsteady_requests(),
    ) {
        stays_within(spec, start, &history)?;
    }

    #[test]
    fn limits_that_start_below_full_stay_within_their_definition(
        spec in limits::any_cautious(), start in start(), history in unsteady_requests(),
    ) {
        stays_within(spec, start, &history)?;
    }

    #[test]
    fn queues_let_requests_out_at_the_rate(
        spec in limits::short_queues(), start in start(), history in requests(),
    ) {
        leave_evenly(spec, start, &history)?;
    }
}
