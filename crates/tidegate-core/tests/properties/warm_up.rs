//! Warm-up: never faster than the steady rate, slower when cold, and no reward for resting.
//!
//! That every single delay is Guava's is shown by following the model.

use proptest::prelude::*;
use tidegate_core::LimitSpec;

use crate::model::Act;
use crate::support::{Key, Step, config, limits, start, unsteady_history, unsteady_requests};

/// When each admitted request may go, and what it costs.
fn goings(spec: LimitSpec, start: u64, history: &[Step]) -> Vec<(u128, u64)> {
    let mut key = Key::new(spec, start);
    let mut goings = Vec::new();
    for step in history {
        let (act, decision) = key.step(step);
        if let (Act::Check(cost @ 1..), true) = (act, decision.allowed) {
            goings.push((u128::from(key.now) + decision.delay.as_nanos(), cost));
        }
    }
    goings
}

/// The time from one going to the next: what the first one costs.
fn price(key: &mut Key) -> u128 {
    let first = key.check(1).delay;
    (key.check(1).delay - first).as_nanos()
}

fn until_cold(key: &Key) -> u128 {
    key.peek(0).reset_after.unwrap().as_nanos()
}

proptest! {
    #![proptest_config(config())]

    /// However long the run, however long the rests in it, and with any jumps of the clock.
    #[test]
    fn never_faster_than_the_steady_rate(
        spec in limits::warm_ups(), start in start(), history in unsteady_requests(),
    ) {
        let (units, period) = (u128::from(spec.rate.units), spec.rate.period.as_nanos());
        let goings = goings(spec, start, &history);
        for (index, (first, _)) in goings.iter().enumerate() {
            let mut taken = 0;
            for ((_, cost), (later, _)) in goings[index..].iter().zip(&goings[index + 1..]) {
                taken += u128::from(*cost);
                let distance = later.saturating_sub(*first);
                prop_assert!(
                    distance * units >= taken * period,
                    "{}: {} units in {} ns", spec, taken, distance
                );
            }
        }
    }

    /// A unit costs the steady interval when warm, `cold_factor` times as much when cold, and
    /// something between in between.
    #[test]
    fn resting_makes_slower(
        spec in limits::warm_ups(), start in start(), history in unsteady_requests(),
        rest in 0..1_000_000u64,
    ) {
        let patient = LimitSpec { queue: None, ..spec };
        let mut key = Key::after(patient, start, &history);
        let mut rested = key.clone();
        // From the moment at which everything is paid: until then nobody rests.
        let paid = key.peek(0).delay.as_nanos() as u64;
        key.now += paid;
        rested.now += paid + rest;
        let (price, rested_price) = (price(&mut key), price(&mut rested));
        let (units, period) = (u128::from(spec.rate.units), spec.rate.period.as_nanos());
        let factor = u128::from(spec.warm_up.unwrap().cold_factor);
        prop_assert!(price <= rested_price, "{}: {} then {}", spec, price, rested_price);
        prop_assert!(price * units >= period);
        prop_assert!((rested_price - 1) * units < factor * period);
    }

    /// A refund shortens the wait by what the units cost at the steady rate, and no more.
    #[test]
    fn a_refund_is_at_the_steady_price(
        spec in limits::warm_ups(), start in start(), history in unsteady_history(),
        n in 0..20u64,
    ) {
        let mut key = Key::after(spec, start, &history);
        let before = until_cold(&key);
        let _ = key.run(Act::Refund(n));
        let after = until_cold(&key);
        let (units, period) = (u128::from(spec.rate.units), spec.rate.period.as_nanos());
        prop_assert!(after <= before);
        prop_assert!((before - after) * units <= u128::from(n) * period);
    }
}
