//! From a limit as written down to one that works: every impossible parameter is refused here.

use core::time::Duration;

use crate::algorithm::{Frame, Soft};
use crate::bucket::Bucket;
use crate::concurrency::Concurrency;
use crate::error::LimitError;
use crate::fixed_window::{FixedWindow, Windows};
use crate::interval::Interval;
use crate::limit::{Kind, Limit};
use crate::sliding_counter::SlidingCounter;
use crate::sliding_log::SlidingLog;
use crate::spec::{AlgorithmName, Align, ColdStart, Compare, Lease, LimitSpec, Refill, SoftSpec};
use crate::time::nanos;
use crate::warm_up::{self, WarmUp};
use crate::word::{gcd, reciprocal};

/// How long a permit lasts if nobody says.
const LEASE_DEFAULT: Duration = Duration::from_secs(60);
/// More entries than this are no log but a leak.
const LOG_UNITS_MAX: u64 = u32::MAX as u64;

impl Limit {
    pub(crate) fn from_spec(spec: LimitSpec) -> Result<Self, LimitError> {
        refuse_strangers(&spec)?;
        let limit = spec.largest_cost()?;
        let soft = spec.allowance(limit)?;
        let largest_cap = limit + soft.map_or(0, |soft| soft.extra);
        let kind = if limit == 0 { Kind::Block } else { spec.compile(limit, largest_cap)? };
        let narrow = match &kind {
            Kind::Bucket(bucket) => soft.is_none() && bucket.is_narrow(largest_cap),
            _ => false,
        };
        Ok(Self { kind, frame: Frame { limit, soft }, narrow, spec })
    }
}

impl LimitSpec {
    /// The largest cost ever admissible.
    fn largest_cost(&self) -> Result<u64, LimitError> {
        if self.rate.units == 0 {
            return Ok(0);
        }
        if self.burst == Some(0) {
            return Err(LimitError::Zero { field: "burst", least: "1" });
        }
        let is_log = self.algorithm == AlgorithmName::SlidingWindowLog;
        if is_log && self.rate.units > LOG_UNITS_MAX {
            return Err(self.too_large("requests_per_unit", self.rate.units, LOG_UNITS_MAX));
        }
        match (self.algorithm, self.queue) {
            (AlgorithmName::LeakyBucket, Some(queue)) => queue
                .size
                .checked_add(1)
                .ok_or_else(|| self.too_large("queue.size", queue.size, u64::MAX - 1)),
            _ => Ok(self.burst.unwrap_or(self.rate.units)),
        }
    }

    fn allowance(&self, limit: u64) -> Result<Option<Soft>, LimitError> {
        let Some(SoftSpec { over_bp, span }) = self.soft else { return Ok(None) };
        if self.queue.is_some() {
            return Err(LimitError::Exclude { field: "soft", other: "queue" });
        }
        let span = self.positive("soft.for", span)?;
        let extra = u128::from(limit) * u128::from(over_bp) / 10_000;
        let extra = u64::try_from(extra)
            .ok()
            .filter(|extra| limit.checked_add(*extra).is_some())
            .ok_or(LimitError::SoftTooLarge { limit, over_bp })?;
        Ok(Some(Soft { extra, span }))
    }

    fn compile(&self, limit: u64, largest_cap: u64) -> Result<Kind, LimitError> {
        Ok(match self.algorithm {
            AlgorithmName::TokenBucket if self.refill != Refill::Greedy => {
                Kind::Interval(Interval {
                    units: self.rate.units,
                    period: self.period()?,
                    size: limit,
                    missing: self.missing(limit)?,
                    aligned: self.refill == Refill::IntervalAligned,
                })
            }
            AlgorithmName::TokenBucket | AlgorithmName::Gcra | AlgorithmName::LeakyBucket => {
                Kind::Bucket(self.bucket(limit, largest_cap)?)
            }
            AlgorithmName::FixedWindow => Kind::FixedWindow(FixedWindow {
                length: self.period()?,
                windows: match self.align {
                    Align::Epoch => Windows::Epoch,
                    Align::FirstRequest => Windows::FirstRequest,
                    Align::Calendar => Windows::Calendar,
                },
            }),
            AlgorithmName::SlidingWindowLog => Kind::SlidingLog(SlidingLog {
                length: self.period()?,
                // A debt is remembered up to one more limit; refusals decide nothing beyond it.
                units_max: if self.count_rejected {
                    largest_cap
                } else {
                    largest_cap.saturating_mul(2)
                },
            }),
            AlgorithmName::SlidingWindowCounter => Kind::SlidingCounter(SlidingCounter {
                length: self.period()?,
                exact: self.compare == Compare::Exact,
            }),
            AlgorithmName::Concurrency => Kind::Concurrency(Concurrency {
                lease: match self.lease.unwrap_or(Lease::For(LEASE_DEFAULT)) {
                    Lease::For(lease) => Some(self.positive("lease", lease)?),
                    Lease::Unlimited => None,
                },
            }),
            AlgorithmName::WarmUp => Kind::WarmUp(self.warming()?),
        })
    }

    fn bucket(&self, size: u64, largest_cap: u64) -> Result<Bucket, LimitError> {
        let (units, period) = self.reduced_rate()?;
        let queue = match self.queue {
            Some(queue) => match queue.max_delay {
                Some(delay) => Some(self.span("queue.max_delay", delay)?),
                None => Some(u64::MAX),
            },
            None => None,
        };
        // Ticks of any moment, plus twice the fullest bucket, stay below 2^128.
        let ticks = u128::from(largest_cap) * u128::from(period);
        if u128::from(units) > 1 << 62 || ticks > 1 << 125 {
            return Err(LimitError::TooFine { units: self.rate.units, period: self.rate.period });
        }
        Ok(Bucket {
            units,
            period,
            reciprocal: reciprocal(period),
            size,
            missing: self.missing(size)?,
            queue,
        })
    }

    fn warming(&self) -> Result<WarmUp, LimitError> {
        let Some(ColdStart { period, cold_factor }) = self.warm_up else {
            return Err(LimitError::Missing { field: "warm_up", algorithm: self.algorithm });
        };
        if cold_factor < 2 {
            let field = "warm_up.cold_factor";
            return Err(LimitError::TooSmall { field, given: cold_factor, least: 2 });
        }
        let (units, interval) = self.reduced_rate()?;
        let max_delay = match self.queue.and_then(|queue| queue.max_delay) {
            Some(delay) => self.span("queue.max_delay", delay)?,
            None => u64::MAX,
        };
        let period = self.positive("warm_up.period", period)?;
        let warm_up = WarmUp { units, interval, period, cold_factor, max_delay };
        let ticks = u128::from(period)
            .checked_mul(u128::from(units))
            .and_then(|ticks| ticks.checked_mul(u128::from(cold_factor) + 5));
        if ticks.is_none_or(|ticks| ticks > warm_up::TICKS_MAX) {
            return Err(LimitError::TooFine { units: self.rate.units, period: self.rate.period });
        }
        Ok(warm_up)
    }

    /// The rate without common divisor.
    fn reduced_rate(&self) -> Result<(u64, u64), LimitError> {
        let period = self.period()?;
        let divisor = gcd(self.rate.units, period);
        Ok((self.rate.units / divisor, period / divisor))
    }

    fn missing(&self, size: u64) -> Result<u64, LimitError> {
        let initial = self.initial.unwrap_or(size);
        size.checked_sub(initial).ok_or(LimitError::InitialAboveSize { initial, size })
    }

    fn period(&self) -> Result<u64, LimitError> {
        self.positive("period", self.rate.period)
    }

    fn positive(&self, field: &'static str, given: Duration) -> Result<u64, LimitError> {
        if given.is_zero() {
            return Err(LimitError::Zero { field, least: "1ns" });
        }
        self.span(field, given)
    }

    fn span(&self, field: &'static str, given: Duration) -> Result<u64, LimitError> {
        match nanos(given) {
            u64::MAX => Err(LimitError::TooLong { field, given }),
            nanos => Ok(nanos),
        }
    }

    fn too_large(&self, field: &'static str, given: u64, most: u64) -> LimitError {
        LimitError::TooLarge { field, given, most, algorithm: self.algorithm }
    }
}

/// Refuses parameters that the algorithm does not know.
fn refuse_strangers(spec: &LimitSpec) -> Result<(), LimitError> {
    use AlgorithmName as A;
    let algorithm = spec.algorithm;
    let bucket = matches!(algorithm, A::TokenBucket | A::LeakyBucket | A::Gcra);
    let shaper = matches!(algorithm, A::LeakyBucket | A::WarmUp);
    let strangers = [
        ("burst", spec.burst.is_some() && !bucket),
        ("initial", spec.initial.is_some() && !bucket),
        ("refill", spec.refill != Refill::Greedy && algorithm != A::TokenBucket),
        ("align", spec.align != Align::Epoch && algorithm != A::FixedWindow),
        ("compare", spec.compare != Compare::Floor && algorithm != A::SlidingWindowCounter),
        ("queue", spec.queue.is_some() && !shaper),
        ("lease", spec.lease.is_some() && algorithm != A::Concurrency),
        ("warm_up", spec.warm_up.is_some() && algorithm != A::WarmUp),
        ("soft", spec.soft.is_some() && matches!(algorithm, A::Concurrency | A::WarmUp)),
        (
            "count_rejected",
            spec.count_rejected && !matches!(algorithm, A::FixedWindow | A::SlidingWindowLog),
        ),
    ];
    if let Some((field, _)) = strangers.into_iter().find(|(_, is_stranger)| *is_stranger) {
        return Err(LimitError::NotWith { field, algorithm });
    }
    if algorithm == A::Concurrency && !spec.rate.period.is_zero() {
        return Err(LimitError::NotWith { field: "period", algorithm });
    }
    if algorithm == A::WarmUp && spec.queue.is_some_and(|queue| queue.size != 0) {
        return Err(LimitError::NotWith { field: "queue.size", algorithm });
    }
    if algorithm == A::LeakyBucket && spec.queue.is_some() {
        for (field, given) in [("burst", spec.burst.is_some()), ("initial", spec.initial.is_some())]
        {
            if given {
                return Err(LimitError::Exclude { field, other: "queue" });
            }
        }
    }
    Ok(())
}
