//! Impossible limits are refused by name, and possible ones are built.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests say what they expect by unwrapping it"
)]

use std::time::Duration;

use tidegate_core::{
    Action, AlgorithmName, Align, Ask, ColdStart, Compare, Limit, LimitSpec, Queue, Rate, Refill,
    Retry, SoftSpec, Timestamp,
};

const SECOND: Duration = Duration::from_secs(1);
/// One nanosecond more than the longest span.
const ENDLESS: Duration = Duration::from_nanos(u64::MAX);

fn rate() -> Rate {
    Rate::per_second(5)
}

fn with_queue(size: u64, max_delay: Option<Duration>) -> LimitSpec {
    let mut spec = Limit::leaky_bucket(rate());
    spec.queue = Some(Queue { size, max_delay });
    spec
}

fn soft(spec: LimitSpec, over_bp: u32, span: Duration) -> LimitSpec {
    LimitSpec { soft: Some(SoftSpec { over_bp, span }), ..spec }
}

fn assert_refused(table: &[(LimitSpec, &str)]) {
    for (spec, message) in table {
        let error = spec.build().expect_err(&format!("{spec} was built"));
        assert_eq!(error.to_string(), *message, "{spec}");
    }
}

#[test]
fn parameters_of_other_algorithms() {
    let queue = Some(Queue { size: 1, max_delay: None });
    let shaped = LimitSpec { queue, ..Limit::warm_up(rate(), SECOND) };
    let warm_up = Some(ColdStart { period: SECOND, cold_factor: 3 });
    assert_refused(&[
        (Limit::fixed_window(rate()).burst(9), "`burst` has no meaning for `fixed_window`"),
        (Limit::sliding_log(rate()).burst(9), "`burst` has no meaning for `sliding_window_log`"),
        (Limit::concurrency(5).burst(9), "`burst` has no meaning for `concurrency`"),
        (Limit::warm_up(rate(), SECOND).burst(9), "`burst` has no meaning for `warm_up`"),
        (
            Limit::sliding_counter(rate()).initial(1),
            "`initial` has no meaning for `sliding_window_counter`",
        ),
        (Limit::gcra(rate()).refill(Refill::Interval), "`refill` has no meaning for `gcra`"),
        (
            Limit::leaky_bucket(rate()).refill(Refill::IntervalAligned),
            "`refill` has no meaning for `leaky_bucket`",
        ),
        (
            Limit::token_bucket(rate()).align(Align::FirstRequest),
            "`align` has no meaning for `token_bucket`",
        ),
        (
            Limit::sliding_log(rate()).compare(Compare::Exact),
            "`compare` has no meaning for `sliding_window_log`",
        ),
        (
            LimitSpec { queue, ..Limit::token_bucket(rate()) },
            "`queue` has no meaning for `token_bucket`",
        ),
        (shaped, "`queue.size` has no meaning for `warm_up`"),
        (Limit::gcra(rate()).max_delay(SECOND), "`queue` has no meaning for `gcra`"),
        (Limit::token_bucket(rate()).lease(SECOND), "`lease` has no meaning for `token_bucket`"),
        (Limit::fixed_window(rate()).without_lease(), "`lease` has no meaning for `fixed_window`"),
        (LimitSpec { warm_up, ..Limit::gcra(rate()) }, "`warm_up` has no meaning for `gcra`"),
        (Limit::concurrency(5).soft(10, SECOND), "`soft` has no meaning for `concurrency`"),
        (Limit::warm_up(rate(), SECOND).soft(10, SECOND), "`soft` has no meaning for `warm_up`"),
        (
            Limit::token_bucket(rate()).count_rejected(),
            "`count_rejected` has no meaning for `token_bucket`",
        ),
        (
            Limit::sliding_counter(rate()).count_rejected(),
            "`count_rejected` has no meaning for `sliding_window_counter`",
        ),
        (
            LimitSpec::new(AlgorithmName::Concurrency, rate()),
            "`period` has no meaning for `concurrency`",
        ),
    ]);
}

#[test]
fn parameters_that_exclude_or_need_each_other() {
    assert_refused(&[
        (with_queue(3, None).burst(9), "`burst` and `queue` exclude each other"),
        (with_queue(3, None).initial(0), "`initial` and `queue` exclude each other"),
        (with_queue(3, None).soft(10, SECOND), "`soft` and `queue` exclude each other"),
        (LimitSpec::new(AlgorithmName::WarmUp, rate()), "`warm_up` needs `warm_up`"),
        (Limit::token_bucket(rate()).initial(6), "`initial` is 6, but the bucket holds only 5"),
        (Limit::gcra(rate()).burst(3).initial(4), "`initial` is 4, but the bucket holds only 3"),
    ]);
}

#[test]
fn nothing_where_something_has_to_be() {
    let no_period = Rate::new(5, Duration::ZERO);
    let period_is_zero = "`period` is 0; it has to be at least 1ns";
    assert_refused(&[
        (Limit::token_bucket(no_period), period_is_zero),
        (Limit::token_bucket(no_period).refill(Refill::Interval), period_is_zero),
        (Limit::leaky_queue(no_period, 3), period_is_zero),
        (Limit::fixed_window(no_period), period_is_zero),
        (Limit::sliding_log(no_period), period_is_zero),
        (Limit::sliding_counter(no_period), period_is_zero),
        (Limit::warm_up(no_period, SECOND), period_is_zero),
        (Limit::gcra(rate()).burst(0), "`burst` is 0; it has to be at least 1"),
        (Limit::concurrency(5).lease(Duration::ZERO), "`lease` is 0; it has to be at least 1ns"),
        (
            Limit::warm_up(rate(), Duration::ZERO),
            "`warm_up.period` is 0; it has to be at least 1ns",
        ),
        (
            Limit::warm_up(rate(), SECOND).cold_factor(0),
            "`warm_up.cold_factor` is 0; it has to be at least 2",
        ),
        // A factor of one was once called zero.
        (
            Limit::warm_up(rate(), SECOND).cold_factor(1),
            "`warm_up.cold_factor` is 1; it has to be at least 2",
        ),
        (
            Limit::gcra(rate()).soft(10, Duration::ZERO),
            "`soft.for` is 0; it has to be at least 1ns",
        ),
    ]);
}

#[test]
fn spans_beyond_all_time() {
    let longer = "longer than 584 years";
    let table = [
        (Limit::fixed_window(Rate::new(1, ENDLESS)), "period"),
        (Limit::gcra(Rate::new(1, Duration::MAX)), "period"),
        (Limit::concurrency(5).lease(ENDLESS), "lease"),
        (with_queue(3, Some(ENDLESS)), "queue.max_delay"),
        (Limit::warm_up(rate(), ENDLESS), "warm_up.period"),
        (Limit::warm_up(rate(), SECOND).max_delay(Duration::MAX), "queue.max_delay"),
        (Limit::gcra(rate()).soft(10, ENDLESS), "soft.for"),
    ];
    for (spec, field) in table {
        let message = spec.build().expect_err(&format!("{spec} was built")).to_string();
        assert!(message.starts_with(&format!("`{field}` is ")), "{message}");
        assert!(message.ends_with(longer), "{message}");
    }
}

#[test]
fn numbers_beyond_exact_arithmetic() {
    let table = [
        (
            Limit::sliding_log(Rate::per_second(1 << 32)),
            "`requests_per_unit` is 4294967296; `sliding_window_log` holds at most 4294967295",
        ),
        (
            with_queue(u64::MAX, None),
            "`queue.size` is 18446744073709551615; `leaky_bucket` holds at most \
             18446744073709551614",
        ),
        (
            // 2^62+1 and a nanosecond have no common divisor.
            Limit::gcra(Rate::new((1 << 62) + 1, Duration::from_nanos(1))),
            "4611686018427387905 units per 1ns with these sizes cannot be computed exactly in \
             128 bits",
        ),
        (
            Limit::gcra(Rate::new(1, Duration::from_nanos(u64::MAX - 1))).burst(1 << 62),
            "1 units per 18446744073.709551614s with these sizes cannot be computed exactly in \
             128 bits",
        ),
        (
            Limit::warm_up(Rate::per_second(7), Duration::from_secs(86_400 * 365 * 100)),
            "7 units per 1s with these sizes cannot be computed exactly in 128 bits",
        ),
        (
            soft(Limit::fixed_window(Rate::per_second(u64::MAX)), 1, SECOND),
            "`soft.over` is 1 hundredths of a percent: added to 18446744073709551615 that is \
             above 2^64",
        ),
    ];
    assert_refused(&table);
}

#[test]
fn text_that_is_no_limit() {
    let table = [
        ("", "`` is not a limit: `` is not an algorithm"),
        ("bucket 1/1s", "`bucket 1/1s` is not a limit: `bucket` is not an algorithm"),
        ("gcra", "`gcra` is not a limit: after the algorithm comes a rate such as `10/1m`"),
        ("gcra 10", "`gcra 10` is not a limit: after the algorithm comes a rate such as `10/1m`"),
        (
            "gcra 10/m",
            "`gcra 10/m` is not a limit: after the algorithm comes a rate such as `10/1m`",
        ),
        (
            "gcra -1/1s",
            "`gcra -1/1s` is not a limit: after the algorithm comes a rate such as `10/1m`",
        ),
        ("gcra 1/1s burst=x", "`gcra 1/1s burst=x` is not a limit: `burst=x` is not understood"),
        ("gcra 1/1s brust=2", "`gcra 1/1s brust=2` is not a limit: `brust=2` is not understood"),
        ("gcra 1/1s burst", "`gcra 1/1s burst` is not a limit: `burst` is not understood"),
        ("gcra 1/0s", "`period` is 0; it has to be at least 1ns"),
    ];
    for (text, message) in table {
        assert_eq!(text.parse::<Limit>().unwrap_err().to_string(), message);
    }
}

/// The last values before the errors above, and zero units, which block.
#[test]
fn edge_values_are_built() {
    let longest = Duration::from_nanos(u64::MAX - 1);
    let block = Rate::per_second(0);
    let table = [
        (Limit::gcra(Rate::new(1, Duration::from_nanos(1))), 1),
        (Limit::gcra(Rate::new(1, longest)), 1),
        (Limit::gcra(Rate::new(1 << 62, longest)).burst(1), 1),
        (Limit::gcra(Rate::new(1 << 62, Duration::from_nanos(1))), 1 << 62),
        (Limit::gcra(rate()).burst(1), 1),
        (Limit::token_bucket(rate()).initial(0), 5),
        (Limit::token_bucket(rate()).initial(5), 5),
        (Limit::token_bucket(Rate::new(u64::MAX, longest)).refill(Refill::Interval), u64::MAX),
        (with_queue(0, None), 1),
        (with_queue(0, Some(Duration::ZERO)), 1),
        (with_queue(3, Some(longest)), 4),
        (Limit::fixed_window(Rate::new(u64::MAX, longest)), u64::MAX),
        (Limit::sliding_log(Rate::new((1 << 32) - 1, longest)), (1 << 32) - 1),
        (Limit::sliding_counter(Rate::new(u64::MAX, longest)), u64::MAX),
        (Limit::concurrency(u64::MAX).lease(Duration::from_nanos(1)), u64::MAX),
        (Limit::concurrency(1).lease(longest), 1),
        (Limit::warm_up(rate(), Duration::from_nanos(1)).cold_factor(2), 5),
        (Limit::warm_up(rate(), SECOND).max_delay(Duration::ZERO), 5),
        (soft(Limit::gcra(rate()), 0, SECOND), 5),
        (soft(Limit::gcra(rate()), u32::MAX, longest), 5),
        (soft(Limit::fixed_window(Rate::per_second(u64::MAX)), 0, SECOND), u64::MAX),
        (Limit::gcra(block), 0),
        (Limit::gcra(Rate::new(0, Duration::ZERO)), 0),
        (Limit::concurrency(0), 0),
    ];
    for (spec, limit) in table {
        let built = spec.build().unwrap_or_else(|error| panic!("{spec}: {error}"));
        assert_eq!(built.limit(), limit, "{spec}");
    }
}

#[test]
fn a_limit_of_nothing_blocks() {
    let limit = Limit::gcra(Rate::per_second(0)).build().unwrap();
    let ask = Ask::at(Timestamp::ZERO);
    let mut state = None;
    for action in [Action::Refuse, Action::Take, Action::Force, Action::Look] {
        let decision = limit.settle(&mut state, &ask, 1, action);
        assert_eq!((decision.allowed, decision.limit, decision.remaining), (false, 0, 0));
        assert_eq!(decision.retry, Retry::Never);
    }
    assert_eq!(state, None);
    assert!(limit.fits(None, &ask, 0) && !limit.fits(None, &ask, 1));
}
