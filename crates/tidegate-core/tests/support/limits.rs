//! Random limits: small and awkward numbers mostly, large ones now and then.

use proptest::prelude::*;
use proptest::sample::select;
use tidegate_core::{
    AlgorithmName, Align, Compare, Limit, LimitSpec, Queue, Rate, Refill, SoftSpec,
};

use super::{DAY, ns};

const SECOND: u64 = 1_000_000_000;

fn units() -> impl Strategy<Value = u64> {
    prop_oneof![
        5 => 1..=12u64,
        2 => select(vec![13, 17, 97, 101, 997, 7_919, 1_000_003]),
        1 => 1..=u64::from(u32::MAX),
    ]
}

/// Nanoseconds that the units seldom divide.
fn period() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=30u64,
        2 => select(vec![97, 1_000, 1_009, 999_983, 1_000_000, 1_000_000_007]),
        2 => select(vec![SECOND, 60 * SECOND, 3 * 3_600 * SECOND, DAY]),
        1 => 1..=DAY,
    ]
}

fn rate() -> impl Strategy<Value = Rate> {
    (units(), period()).prop_map(|(units, period)| Rate::new(units, ns(period)))
}

/// Token bucket, leaky bucket as a meter, GCRA.
pub(crate) fn buckets() -> impl Strategy<Value = LimitSpec> {
    let names =
        select(vec![AlgorithmName::TokenBucket, AlgorithmName::LeakyBucket, AlgorithmName::Gcra]);
    let burst = proptest::option::of(units());
    (names, rate(), burst).prop_map(|(name, rate, burst)| {
        let mut spec = LimitSpec::new(name, rate);
        spec.burst = burst;
        spec
    })
}

pub(crate) fn queues() -> impl Strategy<Value = LimitSpec> {
    let size = prop_oneof![0..=12u64, 0..=u64::from(u32::MAX)];
    (rate(), size, proptest::option::of(0..40u64)).prop_map(|(rate, size, delay)| {
        let period = rate.period.as_nanos() as u64;
        let max_delay = delay.map(|eighths| ns(period * eighths / 8));
        let mut spec = Limit::leaky_queue(rate, size);
        spec.queue = Some(Queue { size, max_delay });
        spec
    })
}

/// Queues of less than a century, whose delays can be told in full.
pub(crate) fn short_queues() -> impl Strategy<Value = LimitSpec> {
    queues().prop_map(|mut spec| {
        let century = u128::from(100 * 365 * DAY);
        let most = century * u128::from(spec.rate.units) / spec.rate.period.as_nanos();
        if let Some(queue) = &mut spec.queue {
            queue.size = queue.size.min(u64::try_from(most).unwrap_or(u64::MAX));
        }
        spec
    })
}

/// Bursts of up to forty refills, because the model steps through each of them.
pub(crate) fn refills() -> impl Strategy<Value = LimitSpec> {
    let refill = select(vec![Refill::Interval, Refill::IntervalAligned]);
    (rate(), refill, 0..40u64, units()).prop_map(|(rate, refill, refills, rest)| {
        let burst = (rate.units * refills + rest % rate.units).max(1);
        Limit::token_bucket(rate).refill(refill).burst(burst)
    })
}

pub(crate) fn fixed_windows() -> impl Strategy<Value = LimitSpec> {
    let align = select(vec![Align::Epoch, Align::FirstRequest, Align::Calendar]);
    (rate(), align, any::<bool>()).prop_map(|(rate, align, count_rejected)| {
        let mut spec = Limit::fixed_window(rate).align(align);
        spec.count_rejected = count_rejected;
        spec
    })
}

pub(crate) fn logs() -> impl Strategy<Value = LimitSpec> {
    (rate(), any::<bool>()).prop_map(|(rate, count_rejected)| {
        let mut spec = Limit::sliding_log(rate);
        spec.count_rejected = count_rejected;
        spec
    })
}

pub(crate) fn counters() -> impl Strategy<Value = LimitSpec> {
    let compare = select(vec![Compare::Floor, Compare::Exact]);
    (rate(), compare).prop_map(|(rate, compare)| Limit::sliding_counter(rate).compare(compare))
}

/// Numbers whose squares an exact fraction can still hold.
pub(crate) fn warm_ups() -> impl Strategy<Value = LimitSpec> {
    let period = prop_oneof![1..=30u64, select(vec![1_000, 1_009, SECOND])];
    (1..=12u64, period, 1..=400u64, 2..=7u64, proptest::option::of(0..40u64)).prop_map(
        |(units, period, tenths, cold_factor, delay)| {
            let warm_up = (period * tenths / 10).max(1);
            let rate = Rate::new(units, ns(period));
            let spec = Limit::warm_up(rate, ns(warm_up)).cold_factor(cold_factor);
            match delay {
                Some(eighths) => spec.max_delay(ns(period * eighths / 8)),
                None => spec,
            }
        },
    )
}

pub(crate) fn permits() -> impl Strategy<Value = LimitSpec> {
    (1..=7u64, proptest::option::of(1..=30u64)).prop_map(|(permits, lease)| match lease {
        Some(lease) => Limit::concurrency(permits).lease(ns(lease)),
        None => Limit::concurrency(permits).without_lease(),
    })
}

/// Every limit that earns units, in its plain form: none soft, none that starts below full.
pub(crate) fn plain() -> impl Strategy<Value = LimitSpec> {
    prop_oneof![buckets(), queues(), refills(), fixed_windows(), logs(), counters()]
}

/// With an allowance above the limit.
pub(crate) fn soft(specs: impl Strategy<Value = LimitSpec>) -> impl Strategy<Value = LimitSpec> {
    let over = prop_oneof![0..=15_000u32, select(vec![1, 1_000, 2_000, 3_333, 10_000])];
    (specs, over, 1..=40u64).prop_map(|(mut spec, over_bp, eighths)| {
        let span = ns((spec.rate.period.as_nanos() as u64 * eighths / 8).max(1));
        spec.soft = Some(SoftSpec { over_bp, span });
        spec
    })
}

/// Soft, in every form that may be.
pub(crate) fn any_soft() -> impl Strategy<Value = LimitSpec> {
    soft(prop_oneof![buckets(), refills(), fixed_windows(), logs(), counters()])
}

/// With less than everything when a key is first seen.
pub(crate) fn cautious(
    specs: impl Strategy<Value = LimitSpec>,
) -> impl Strategy<Value = LimitSpec> {
    (specs, any::<u16>()).prop_map(|(spec, part)| {
        let size = spec.burst.unwrap_or(spec.rate.units);
        spec.initial((u128::from(size) * u128::from(part) / 65_536) as u64)
    })
}

/// Starting below full, in every form that may be, soft ones too.
pub(crate) fn any_cautious() -> impl Strategy<Value = LimitSpec> {
    let plain = cautious(prop_oneof![buckets(), refills()]);
    let soft = cautious(soft(prop_oneof![buckets(), refills()]));
    prop_oneof![2 => plain, 1 => soft]
}
