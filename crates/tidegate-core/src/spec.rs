//! A limit as it is written down, before anybody has checked that it makes sense.

use core::fmt;
use core::time::Duration;

use crate::error::LimitError;
use crate::limit::Limit;
use crate::rate::Rate;

/// The algorithms by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AlgorithmName {
    /// Tokens that come back continuously or at intervals.
    TokenBucket,
    /// Water that leaks at a rate; with a queue, requests that leave at a rate.
    LeakyBucket,
    /// A count per window.
    FixedWindow,
    /// Every unit with its time.
    SlidingWindowLog,
    /// Two counts, weighted.
    SlidingWindowCounter,
    /// The generic cell rate algorithm.
    Gcra,
    /// Permits in flight.
    Concurrency,
    /// A rate that has to be earned.
    WarmUp,
}

impl AlgorithmName {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingWindowLog,
        Self::SlidingWindowCounter,
        Self::Gcra,
        Self::Concurrency,
        Self::WarmUp,
    ];

    /// The name in rules and in text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenBucket => "token_bucket",
            Self::LeakyBucket => "leaky_bucket",
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindowLog => "sliding_window_log",
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::Gcra => "gcra",
            Self::Concurrency => "concurrency",
            Self::WarmUp => "warm_up",
        }
    }
}

impl fmt::Display for AlgorithmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How tokens come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Refill {
    /// Continuously: each as soon as it is earned.
    #[default]
    Greedy,
    /// All of a period's at its end; periods are counted from a key's first use.
    Interval,
    /// All of a period's at its end; periods are counted from the Unix epoch.
    IntervalAligned,
}

/// Where fixed windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Align {
    /// At multiples of the window since the Unix epoch.
    #[default]
    Epoch,
    /// At a key's first request.
    FirstRequest,
    /// Where a calendar says: each decision is told the window it falls in.
    Calendar,
}

/// How the sliding window counter compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compare {
    /// Only whole units of the previous window's share count.
    #[default]
    Floor,
    /// The fraction counts too.
    Exact,
}

/// How long permits last that nobody gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lease {
    /// Until this long after they were taken or renewed.
    For(Duration),
    /// For ever: a holder that dies takes its permits along.
    Unlimited,
}

/// The waiting room of a leaky bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    /// How many units may wait.
    pub size: u64,
    /// How long a request may wait; `None` for as long as it takes.
    pub max_delay: Option<Duration>,
}

/// A cold start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColdStart {
    /// How long it takes to reach the full rate.
    pub period: Duration,
    /// How many times slower a cold key starts.
    pub cold_factor: u64,
}

/// An allowance above the limit for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SoftSpec {
    /// How much above, in hundredths of a percent of the limit.
    pub over_bp: u32,
    /// For how long from the first unit above.
    pub span: Duration,
}

/// A limit as written down: what [`Limit::token_bucket`] and its like return.
///
/// Chain what the algorithm knows and call [`build`](Self::build); parameters that make no sense
/// are refused there, by name.
///
/// ```
/// use tidegate_core::{Limit, Rate};
///
/// let limit = Limit::token_bucket(Rate::per_second(5)).burst(10).build()?;
/// assert_eq!(limit.limit(), 10);
///
/// let wrong = Limit::fixed_window(Rate::per_second(5)).burst(10).build();
/// assert_eq!(wrong.unwrap_err().to_string(), "`burst` has no meaning for `fixed_window`");
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitSpec {
    /// The algorithm.
    pub algorithm: AlgorithmName,
    /// Units per period; permits for a concurrency limit. Zero blocks.
    pub rate: Rate,
    /// What a bucket holds; the rate's units if not given.
    pub burst: Option<u64>,
    /// How a token bucket is refilled.
    pub refill: Refill,
    /// Where fixed windows begin.
    pub align: Align,
    /// How the sliding window counter compares.
    pub compare: Compare,
    /// What a bucket holds when a key is first seen; full if not given.
    pub initial: Option<u64>,
    /// The waiting room of a leaky bucket.
    pub queue: Option<Queue>,
    /// The lease of a concurrency limit.
    pub lease: Option<Lease>,
    /// The cold start of a warm-up.
    pub warm_up: Option<ColdStart>,
    /// An allowance above the limit.
    pub soft: Option<SoftSpec>,
    /// Whether refused requests count.
    pub count_rejected: bool,
}

impl LimitSpec {
    /// A limit with nothing but an algorithm and a rate.
    pub const fn new(algorithm: AlgorithmName, rate: Rate) -> Self {
        Self {
            algorithm,
            rate,
            burst: None,
            refill: Refill::Greedy,
            align: Align::Epoch,
            compare: Compare::Floor,
            initial: None,
            queue: None,
            lease: None,
            warm_up: None,
            soft: None,
            count_rejected: false,
        }
    }

    /// What a bucket holds, and so the largest burst. Token bucket, leaky bucket, GCRA.
    #[must_use]
    pub const fn burst(mut self, units: u64) -> Self {
        self.burst = Some(units);
        self
    }

    /// How tokens come back. Token bucket.
    #[must_use]
    pub const fn refill(mut self, refill: Refill) -> Self {
        self.refill = refill;
        self
    }

    /// Where windows begin. Fixed window.
    #[must_use]
    pub const fn align(mut self, align: Align) -> Self {
        self.align = align;
        self
    }

    /// How to compare. Sliding window counter.
    #[must_use]
    pub const fn compare(mut self, compare: Compare) -> Self {
        self.compare = compare;
        self
    }

    /// What a key has when it is first seen. Buckets without a queue.
    ///
    /// A key that is full is remembered for a day, so that it does not start from here again after
    /// every pause; this needs memory for every key of that day.
    #[must_use]
    pub const fn initial(mut self, units: u64) -> Self {
        self.initial = Some(units);
        self
    }

    /// The longest time that a request may be held. Leaky bucket with a queue, warm-up.
    #[must_use]
    pub const fn max_delay(mut self, max_delay: Duration) -> Self {
        let size = match self.queue {
            Some(queue) => queue.size,
            None => 0,
        };
        self.queue = Some(Queue { size, max_delay: Some(max_delay) });
        self
    }

    /// How long a permit lasts that is not given back; a minute if not said. Concurrency.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(Lease::For(lease));
        self
    }

    /// Permits last until they are given back, also when their holder dies. Concurrency.
    #[must_use]
    pub const fn without_lease(mut self) -> Self {
        self.lease = Some(Lease::Unlimited);
        self
    }

    /// How many times slower a cold key starts; 3 if not said. Warm-up.
    #[must_use]
    pub const fn cold_factor(mut self, cold_factor: u64) -> Self {
        if let Some(warm_up) = self.warm_up {
            self.warm_up = Some(ColdStart { period: warm_up.period, cold_factor });
        }
        self
    }

    /// Lets a key exceed the limit by so many percent for a while; then it has to replenish fully
    /// before it may again. Not for queues, warm-up and concurrency.
    #[must_use]
    pub const fn soft(mut self, percent: u32, span: Duration) -> Self {
        self.soft = Some(SoftSpec { over_bp: percent.saturating_mul(100), span });
        self
    }

    /// Counts refused requests too, as Lyft's service does: a client that goes on too fast stays
    /// refused. Fixed window, sliding window log.
    #[must_use]
    pub const fn count_rejected(mut self) -> Self {
        self.count_rejected = true;
        self
    }

    /// Checks the parameters and makes the limit.
    ///
    /// # Errors
    /// Says which parameter is impossible and why.
    pub fn build(self) -> Result<Limit, LimitError> {
        Limit::from_spec(self)
    }
}
