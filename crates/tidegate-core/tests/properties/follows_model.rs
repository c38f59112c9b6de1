//! On time that goes on, every decision is the one that the definition gives.

use proptest::prelude::*;
use tidegate_core::LimitSpec;

use crate::model::buckets::{Backlog, Refilled, Tokens};
use crate::model::warm_up::Guava;
use crate::model::windows::{AllTimes, PerWindow, TwoCounts};
use crate::model::{Answer, Meter, Model};
use crate::support::{Key, Step, config, history, limits, requests, start};

fn follow<M: Meter>(
    spec: LimitSpec,
    meter: M,
    start: u64,
    history: &[Step],
) -> Result<(), TestCaseError> {
    let mut key = Key::new(spec, start);
    let mut model = Model::new(&spec, meter);
    for (index, step) in history.iter().enumerate() {
        let (act, decision) = key.step(step);
        let expected = model.run(key.now, act);
        prop_assert_eq!(
            Answer::from(decision),
            expected,
            "{}: step {}, {:?} at {}",
            spec,
            index,
            act,
            key.now
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn buckets(spec in limits::buckets(), start in start(), history in history()) {
        follow(spec, Tokens::new(&spec), start, &history)?;
    }

    #[test]
    fn soft_buckets(
        spec in limits::soft(limits::buckets()), start in start(), history in history(),
    ) {
        follow(spec, Tokens::new(&spec), start, &history)?;
    }

    #[test]
    fn buckets_that_start_below_full(
        spec in limits::cautious(limits::buckets()), start in start(), history in history(),
    ) {
        follow(spec, Tokens::new(&spec), start, &history)?;
    }

    #[test]
    fn soft_buckets_that_start_below_full(
        spec in limits::cautious(limits::soft(limits::buckets())), start in start(),
        history in history(),
    ) {
        follow(spec, Tokens::new(&spec), start, &history)?;
    }

    #[test]
    fn queues(spec in limits::queues(), start in start(), history in history()) {
        follow(spec, Backlog::new(&spec), start, &history)?;
    }

    #[test]
    fn refills(spec in limits::refills(), start in start(), history in history()) {
        follow(spec, Refilled::new(&spec), start, &history)?;
    }

    #[test]
    fn soft_refills(
        spec in limits::soft(limits::refills()), start in start(), history in history(),
    ) {
        follow(spec, Refilled::new(&spec), start, &history)?;
    }

    #[test]
    fn refills_that_start_below_full(
        spec in limits::cautious(limits::refills()), start in start(), history in history(),
    ) {
        follow(spec, Refilled::new(&spec), start, &history)?;
    }

    #[test]
    fn soft_refills_that_start_below_full(
        spec in limits::cautious(limits::soft(limits::refills())), start in start(),
        history in history(),
    ) {
        follow(spec, Refilled::new(&spec), start, &history)?;
    }

    #[test]
    fn fixed_windows(spec in limits::fixed_windows(), start in start(), history in history()) {
        follow(spec, PerWindow::new(&spec), start, &history)?;
    }

    #[test]
    fn soft_fixed_windows(
        spec in limits::soft(limits::fixed_windows()), start in start(), history in history(),
    ) {
        follow(spec, PerWindow::new(&spec), start, &history)?;
    }

    #[test]
    fn logs(spec in limits::logs(), start in start(), history in history()) {
        follow(spec, AllTimes::new(&spec), start, &history)?;
    }

    #[test]
    fn soft_logs(spec in limits::soft(limits::logs()), start in start(), history in history()) {
        follow(spec, AllTimes::new(&spec), start, &history)?;
    }

    #[test]
    fn counters(spec in limits::counters(), start in start(), history in history()) {
        follow(spec, TwoCounts::new(&spec), start, &history)?;
    }

    #[test]
    fn soft_counters(
        spec in limits::soft(limits::counters()), start in start(), history in history(),
    ) {
        follow(spec, TwoCounts::new(&spec), start, &history)?;
    }

    /// Delays and prices as Guava's `SmoothWarmingUp` has them, to the nanosecond.
    #[test]
    fn warm_ups(spec in limits::warm_ups(), start in start(), history in requests()) {
        follow(spec, Guava::new(&spec), start, &history)?;
    }
}
