//! Bugs of the five classes that circulate as sample code for rate limiting, one test for each:
//! what the class did, and what a limit has to do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests say what they expect by unwrapping it"
)]

use std::time::Duration;

use tidegate_core::{Action, Ask, Limit, LimitSpec, Rate, State, Timestamp};

const SECOND: u64 = 1_000_000_000;
/// Whole seconds of our days: the classes read the wall clock.
const TODAY: u64 = 1_700_000_000 * SECOND;

struct Key {
    limit: Limit,
    state: Option<State>,
}

impl Key {
    fn new(spec: LimitSpec) -> Self {
        Self { limit: spec.build().unwrap(), state: None }
    }

    fn is_admitted(&mut self, now: u64) -> bool {
        let ask = Ask::at(Timestamp::from_nanos(now));
        let fits = self.limit.fits(self.state.as_ref(), &ask, 1);
        let action = if fits { Action::Take } else { Action::Refuse };
        self.limit.settle(&mut self.state, &ask, 1, action).allowed
    }

    /// How many of `count` requests at one instant are admitted.
    fn admitted_at(&mut self, now: u64, count: usize) -> usize {
        (0..count).filter(|_| self.is_admitted(now)).count()
    }

    /// How many are admitted of evenly spaced requests, so many in each `per` for `span`.
    fn admitted_of(&mut self, requests: u64, per: u64, span: u64) -> u64 {
        let total = u128::from(requests) * u128::from(span) / u128::from(per);
        let at = |i: u128| TODAY + (i * u128::from(per) / u128::from(requests)) as u64;
        (0..total).filter(|i| self.is_admitted(at(*i))).count() as u64
    }

    fn words(&self) -> usize {
        self.limit.encode(self.state.as_ref().unwrap()).len()
    }
}

fn ten_per_second(algorithm: fn(Rate) -> LimitSpec) -> Key {
    Key::new(algorithm(Rate::per_second(10)))
}

/// `LeakyBucket` counted first and compared afterwards with `>=`: of a burst of 20, 9 passed a
/// bucket of 10.
#[test]
fn leaky_bucket_spills_one_too_early() {
    assert_eq!(ten_per_second(Limit::leaky_bucket).admitted_at(TODAY, 20), 10);
}

/// Refused requests filled the `LeakyBucket` too, without bound, so that a client slightly too
/// fast was locked out: 17 of 609 passed at 20/s against 10/s, 9 at 100/s, 7 at 5.03/s against 5/s.
#[test]
fn leaky_bucket_is_filled_by_refusals() {
    for requests in [20, 100] {
        let mut key = ten_per_second(Limit::leaky_bucket);
        let admitted = key.admitted_of(requests, SECOND, 60 * SECOND);
        assert!((609..=610).contains(&admitted), "{admitted} at {requests}/s");
    }
    let mut key = Key::new(Limit::leaky_bucket(Rate::per_second(5)));
    let admitted = key.admitted_of(503, 100 * SECOND, 400 * SECOND);
    assert!((2_004..=2_005).contains(&admitted), "{admitted}");
}

/// `LeakyBucket` leaked every `1000 / rate` whole milliseconds: 333/s for a rate of 300, 1000/s
/// for 700, and a division by zero above 1000. Each call also dropped the remainder of its time.
#[test]
fn leaky_bucket_leaks_whole_milliseconds() {
    for rate in [300, 700, 1_001, 3_000] {
        let mut key = Key::new(Limit::leaky_bucket(Rate::per_second(rate)).burst(10));
        let admitted = key.admitted_of(2 * rate, SECOND, 10 * SECOND);
        assert!((10 * rate + 9..=10 * rate + 10).contains(&admitted), "{admitted} at {rate}/s");
    }
}

/// `TokenBucket` read a clock of whole seconds: all tokens came back at once on the second, and
/// 20 passed within a millisecond of a limit of 10 per second.
#[test]
fn token_bucket_refills_on_the_second() {
    let mut key = ten_per_second(Limit::token_bucket);
    let edge = TODAY + SECOND;
    let admitted = key.admitted_at(edge - 500_000, 10) + key.admitted_at(edge + 500_000, 10);
    assert_eq!(admitted, 10);
}

/// For the same reason an empty `TokenBucket` stayed empty for up to a second, and lost what it
/// should have earned on top of its burst: 600 in a minute instead of 609.
#[test]
fn token_bucket_stands_still_within_a_second() {
    let mut key = ten_per_second(Limit::token_bucket);
    assert_eq!(key.admitted_at(TODAY, 20), 10);
    assert!(!key.is_admitted(TODAY + SECOND / 10 - 1));
    assert!(key.is_admitted(TODAY + SECOND / 10));

    let admitted = ten_per_second(Limit::token_bucket).admitted_of(20, SECOND, 60 * SECOND);
    assert!((609..=610).contains(&admitted), "{admitted}");
}

/// `FixedWindowCounter` kept every window for ever: 86,400 map entries a day for one key.
#[test]
fn fixed_window_counter_never_forgets_a_window() {
    let mut key = ten_per_second(Limit::fixed_window);
    assert!(key.is_admitted(TODAY));
    let words = key.words();
    for second in 1..86_400 {
        assert!(key.is_admitted(TODAY + second * SECOND));
        assert_eq!(key.words(), words);
    }
    let end = Ask::at(Timestamp::from_nanos(TODAY + 86_400 * SECOND));
    assert!(key.limit.is_spent(key.state.as_ref().unwrap(), &end));
}

/// `FixedWindowCounter` lets twice the limit through around the edge of a window. That is what a
/// fixed window means; who cannot have it takes a log or a counter that slides.
#[test]
fn fixed_window_counter_doubles_at_the_edge() {
    let around_the_edge = |algorithm: fn(Rate) -> LimitSpec| {
        let (mut key, edge) = (ten_per_second(algorithm), TODAY + SECOND);
        key.admitted_at(edge - 1_000_000, 15) + key.admitted_at(edge + 1_000_000, 15)
    };
    assert_eq!(around_the_edge(Limit::fixed_window), 20);
    assert_eq!(around_the_edge(Limit::sliding_log), 10);
    // Of the previous 10 the counter still sees 9.99, of which 9 are whole.
    assert_eq!(around_the_edge(Limit::sliding_counter), 11);
}

/// `SlidingWindowLog` recorded refusals, so a client at 11/s against 10/s was admitted 10 times
/// in a minute instead of 600, and its list grew with every request.
#[test]
fn sliding_window_log_records_refusals() {
    let mut key = ten_per_second(Limit::sliding_log);
    assert_eq!(key.admitted_of(11, SECOND, 60 * SECOND), 600);
    // Two words of its own and two for each of the ten units that may be in the window.
    assert!(key.words() <= 2 + 2 * 10, "{} words", key.words());
}

/// `SlidingWindowLog` had its window of one second built in.
#[test]
fn sliding_window_log_knows_only_seconds() {
    let mut key = Key::new(Limit::sliding_log(Rate::new(3, Duration::from_secs(90))));
    assert_eq!(key.admitted_at(TODAY, 5), 3);
    assert!(!key.is_admitted(TODAY + 90 * SECOND - 1));
    assert!(key.is_admitted(TODAY + 90 * SECOND));
}

/// `SlidingWindow` looked for the previous window under a key that was never written, so that it
/// was a fixed window for its first thousand windows.
#[test]
fn sliding_window_forgets_the_previous_window() {
    for window in [1, 2, 500, 999] {
        let mut key = ten_per_second(Limit::sliding_counter);
        assert_eq!(key.admitted_at(window * SECOND + SECOND / 2, 15), 10);
        // Half of the previous window is still in sight.
        assert_eq!(key.admitted_at((window + 1) * SECOND + SECOND / 2, 15), 5);
    }
}

/// After a thousand windows its weight, which mixed milliseconds with an index, became a huge
/// negative number: 1000 of 1000 requests passed at one instant, and no window was ever removed.
#[test]
fn sliding_window_weighs_the_previous_window_below_zero() {
    let mut key = ten_per_second(Limit::sliding_counter);
    for window in 0..2_000 {
        let now = TODAY + window * SECOND;
        assert!(key.admitted_at(now, 1_000) <= 10, "in window {window}");
        assert_eq!(key.words(), 3);
    }
    assert_eq!(ten_per_second(Limit::sliding_counter).admitted_at(TODAY, 1_000), 10);
}
