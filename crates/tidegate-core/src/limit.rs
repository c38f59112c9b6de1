//! A limit that has been checked: what every store and front end works with.

use core::time::Duration;

use crate::algorithm::{Ask, Frame, until};
use crate::bucket::Bucket;
use crate::concurrency::Concurrency;
use crate::fixed_window::{FixedWindow, Windows};
use crate::interval::Interval;
use crate::rate::Rate;
use crate::sliding_counter::SlidingCounter;
use crate::sliding_log::SlidingLog;
use crate::spec::{AlgorithmName, Align, ColdStart, LimitSpec, Queue};
use crate::time::{Moment, nanos};
use crate::warm_up::WarmUp;

/// One limit: an algorithm with its numbers, checked and ready.
///
/// ```
/// use core::time::Duration;
/// use tidegate_core::{Action, Ask, Limit, Rate, Retry, Timestamp};
///
/// let limit = Limit::token_bucket(Rate::per_second(2)).build()?;
/// let ask = Ask::at(Timestamp::from_secs(1));
/// let mut state = None;
/// for _ in 0..2 {
///     assert!(limit.fits(state.as_ref(), &ask, 1));
///     let _ = limit.settle(&mut state, &ask, 1, Action::Take);
/// }
/// let refused = limit.settle(&mut state, &ask, 1, Action::Refuse);
/// assert_eq!(refused.retry, Retry::After(Duration::from_millis(500)));
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub(crate) kind: Kind,
    pub(crate) frame: Frame,
    pub(crate) narrow: bool,
    pub(crate) spec: LimitSpec,
}

/// The algorithm, its parameters reduced to what the arithmetic needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Bucket(Bucket),
    Interval(Interval),
    FixedWindow(FixedWindow),
    SlidingLog(SlidingLog),
    SlidingCounter(SlidingCounter),
    Concurrency(Concurrency),
    WarmUp(WarmUp),
}

/// Ways to write a limit down.
impl Limit {
    /// Tokens that come back at `rate`, up to `burst` of them (the rate's units if not said).
    pub const fn token_bucket(rate: Rate) -> LimitSpec {
        LimitSpec::new(AlgorithmName::TokenBucket, rate)
    }

    /// Water that leaks at `rate` from a bucket that holds `burst`; refuses what would spill.
    pub const fn leaky_bucket(rate: Rate) -> LimitSpec {
        LimitSpec::new(AlgorithmName::LeakyBucket, rate)
    }

    /// A queue of `size` that lets requests out at `rate`, evenly spaced: admitted requests are
    /// told how long to wait. What finds the queue full is refused.
    pub const fn leaky_queue(rate: Rate, size: u64) -> LimitSpec {
        let mut spec = LimitSpec::new(AlgorithmName::LeakyBucket, rate);
        spec.queue = Some(Queue { size, max_delay: None });
        spec
    }

    /// A count that starts again with each window of the rate's period.
    pub const fn fixed_window(rate: Rate) -> LimitSpec {
        LimitSpec::new(AlgorithmName::FixedWindow, rate)
    }

    /// Never more than the rate's units in any window of its period: exact, and as large as the
    /// limit.
    pub const fn sliding_log(rate: Rate) -> LimitSpec {
        LimitSpec::new(AlgorithmName::SlidingWindowLog, rate)
    }

    /// Two counters that come near to a sliding window in three words.
    pub const fn sliding_counter(rate: Rate) -> LimitSpec {
        LimitSpec::new(AlgorithmName::SlidingWindowCounter, rate)
    }

    /// The generic cell rate algorithm: a token bucket by another name.
    pub const fn gcra(rate: Rate) -> LimitSpec {
        LimitSpec::new(AlgorithmName::Gcra, rate)
    }

    /// At most `permits` at once; they are given back, or expire.
    pub const fn concurrency(permits: u64) -> LimitSpec {
        LimitSpec::new(AlgorithmName::Concurrency, Rate::new(permits, Duration::ZERO))
    }

    /// A steady `rate` that a key reaches over `period` and loses by idling. Requests are told
    /// how long to wait.
    pub const fn warm_up(rate: Rate, period: Duration) -> LimitSpec {
        let mut spec = LimitSpec::new(AlgorithmName::WarmUp, rate);
        spec.warm_up = Some(ColdStart { period, cold_factor: 3 });
        spec
    }

    /// A token bucket of `units` per second. As short as it gets: `Limit::per_second(5)`.
    pub const fn per_second(units: u64) -> LimitSpec {
        Self::token_bucket(Rate::per_second(units))
    }

    /// A token bucket of `units` per minute.
    pub const fn per_minute(units: u64) -> LimitSpec {
        Self::token_bucket(Rate::per_minute(units))
    }

    /// A token bucket of `units` per hour.
    pub const fn per_hour(units: u64) -> LimitSpec {
        Self::token_bucket(Rate::per_hour(units))
    }

    /// A token bucket of `units` per 24 hours.
    pub const fn per_day(units: u64) -> LimitSpec {
        Self::token_bucket(Rate::per_day(units))
    }
}

/// What a limit says of itself.
impl Limit {
    /// The largest cost it can ever admit: the burst of a bucket, size plus one of a queue, zero
    /// of a limit that blocks. A soft allowance is not part of it.
    pub const fn limit(&self) -> u64 {
        self.frame.limit
    }

    /// What it was built from.
    pub const fn spec(&self) -> &LimitSpec {
        &self.spec
    }

    /// Its algorithm.
    pub const fn algorithm(&self) -> AlgorithmName {
        self.spec.algorithm
    }

    /// Whether decisions have to bring the calendar window they fall in.
    pub const fn needs_calendar(&self) -> bool {
        matches!(self.kind, Kind::FixedWindow(FixedWindow { windows: Windows::Calendar, .. }))
    }

    /// Whether refused requests are to be recorded with [`Action::Count`](crate::Action::Count).
    pub const fn counts_rejected(&self) -> bool {
        self.spec.count_rejected
    }

    /// Whether units are permits that a holder keeps and gives back.
    pub const fn is_concurrency(&self) -> bool {
        matches!(self.kind, Kind::Concurrency(_))
    }

    /// How long the fixed window lasts that a key without a past is counted in; `None` for limits
    /// that have no such windows. A limit that blocks has the window it was written with.
    ///
    /// ```
    /// use core::time::Duration;
    /// use tidegate_core::{Limit, Moment, Rate, Timestamp};
    ///
    /// let at = Moment::at(Timestamp::from_secs(1234));
    /// let limit = Limit::fixed_window(Rate::per_minute(5)).build()?;
    /// assert_eq!(limit.window_left(&at), Some(Duration::from_secs(26)));
    /// assert_eq!(Limit::per_minute(5).build()?.window_left(&at), None);
    /// # Ok::<(), tidegate_core::LimitError>(())
    /// ```
    pub fn window_left(&self, at: &Moment) -> Option<Duration> {
        if self.spec.algorithm != AlgorithmName::FixedWindow {
            return None;
        }
        let windows = match self.spec.align {
            Align::Epoch => Windows::Epoch,
            Align::FirstRequest => Windows::FirstRequest,
            Align::Calendar => Windows::Calendar,
        };
        let window = FixedWindow { length: nanos(self.spec.rate.period).max(1), windows };
        let ask = Ask { at: *at, holder: 0 };
        Some(Duration::from_nanos(until(window.end(&ask), ask.now())))
    }

    /// The time in which `limit` units are earned, rounded up to the nanosecond; `None` for
    /// concurrency limits and for one that blocks, which earn nothing.
    pub fn earning_time(&self) -> Option<Duration> {
        let nanos = match self.kind {
            Kind::Block | Kind::Concurrency(_) => return None,
            Kind::Bucket(bucket) => (u128::from(bucket.size) * u128::from(bucket.period))
                .div_ceil(u128::from(bucket.units)),
            Kind::Interval(interval) => {
                u128::from(interval.size.div_ceil(interval.units)) * u128::from(interval.period)
            }
            Kind::WarmUp(warm_up) => (u128::from(self.frame.limit) * u128::from(warm_up.interval))
                .div_ceil(u128::from(warm_up.units)),
            Kind::FixedWindow(FixedWindow { length, .. })
            | Kind::SlidingLog(SlidingLog { length, .. })
            | Kind::SlidingCounter(SlidingCounter { length, .. }) => u128::from(length),
        };
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}
