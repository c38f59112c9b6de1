//! A limit in the script's numbers: doubles that are integers below 2^53, times in microseconds.

pub(crate) mod lists;
mod states;
mod units;

use std::time::Duration;

use tidegate_core::{AlgorithmName, Align, Compare, Lease, Limit, LimitSpec, Refill};

use crate::tag::tag_of;

/// What counts are cut off at, far above every limit.
const UNITS_MOST: u64 = 1 << 40;
/// The last moment, and the longest span, that the script is told.
const MICROS_MOST: u64 = (1 << 53) - 2;
/// A lease without an end.
const NEVER: u64 = (1 << 53) - 1;
/// The largest number of units that a limit may name.
const NAMED_MOST: u64 = u32::MAX as u64;
/// The most that a log may hold, or permits be held: when the limit changes, all of it is carried over
/// in one piece, of which the client reads 32 MiB.
const LISTED_MOST: u64 = 1_000_000;
const PERIOD_MOST: Duration = Duration::from_secs(400 * 86_400);
const CENTURY: Duration = Duration::from_secs(36_525 * 86_400);
/// How long a full key is remembered whose first sight matters, in microseconds: a day.
const FIRST_SIGHT_MEMORY: u64 = 86_400_000_000;

/// What the store attaches to a limit: all that can be worked out before a request is there.
#[derive(Debug)]
pub(crate) struct Attached {
    /// The number of the handle, which no other has.
    pub(crate) serial: u64,
    pub(crate) terms: Terms,
    /// What values of this limit begin with.
    pub(crate) tag: Vec<u8>,
    /// What a request says of the limit, up to the units.
    pub(crate) fixed: Vec<u8>,
    /// The same for the quick way, if the limit can go it.
    pub(crate) quick: Option<Vec<u8>>,
}

/// What the numbers of an algorithm mean.
#[derive(Clone, Debug)]
pub(crate) enum Terms {
    /// Asks nothing of Redis.
    Block,
    Bucket(Ticks),
    Interval,
    FixedWindow,
    SlidingCounter,
    SlidingLog,
    Concurrency,
    WarmUp {
        units: u64,
        interval: u64,
    },
}

/// The ticks of a bucket: `period` of them are a unit, `per_us` a microsecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    pub(crate) period: u64,
    pub(crate) per_us: u64,
}

impl Ticks {
    /// Whole microseconds and the rest.
    pub(crate) fn split(&self, ticks: u128) -> (f64, f64) {
        let per_us = u128::from(self.per_us);
        let whole = ticks / per_us;
        if whole > u128::from(MICROS_MOST) {
            return (MICROS_MOST as f64, 0.0);
        }
        (whole as f64, (ticks % per_us) as f64)
    }

    pub(crate) fn of_units(&self, units: u64) -> (f64, f64) {
        self.split(u128::from(units) * u128::from(self.period))
    }
}

/// A number that is one exactly, as a double.
pub(crate) fn put(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_all<const N: usize>(out: &mut Vec<u8>, numbers: [f64; N]) {
    numbers.into_iter().for_each(|number| put(out, number));
}

/// An integer of any size, in digits of 24 bits.
fn put_wide(out: &mut Vec<u8>, mut number: u128) {
    let place = out.len();
    out.push(0);
    loop {
        out.extend_from_slice(&(number as u32).to_le_bytes()[..3]);
        out[place] += 1;
        number >>= 24;
        if number == 0 {
            break;
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A span that was checked to be whole microseconds.
fn micros(span: Duration) -> f64 {
    (nanos(span) / 1000).min(MICROS_MOST) as f64
}

/// Whole microseconds and nanoseconds.
fn split_nanos(nanos: u64) -> (f64, f64) {
    if nanos == u64::MAX {
        return (MICROS_MOST as f64, 0.0);
    }
    ((nanos / 1000).min(MICROS_MOST) as f64, (nanos % 1000) as f64)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Terms {
    /// The algorithm's number in the script; zero for none.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Block => 0,
            Self::Bucket(_) => 1,
            Self::Interval => 2,
            Self::FixedWindow => 3,
            Self::SlidingCounter => 4,
            Self::SlidingLog => 5,
            Self::Concurrency => 6,
            Self::WarmUp { .. } => 7,
        }
    }

    /// The bit by which a request says that the algorithm is needed.
    pub(crate) fn bit(&self) -> u8 {
        1u8.checked_shl(u32::from(self.kind()).wrapping_sub(1)).unwrap_or(0)
    }

    /// Whether the state is spread over three keys.
    pub(crate) fn is_spread(&self) -> bool {
        matches!(self, Self::Concurrency)
    }

    fn of(limit: &Limit) -> Self {
        let spec = limit.spec();
        if limit.limit() == 0 {
            return Self::Block;
        }
        let period = nanos(spec.rate.period);
        let divisor = gcd(spec.rate.units, period).max(1);
        let (units, reduced) = (spec.rate.units / divisor, period / divisor);
        match spec.algorithm {
            AlgorithmName::TokenBucket if spec.refill != Refill::Greedy => Self::Interval,
            AlgorithmName::FixedWindow => Self::FixedWindow,
            AlgorithmName::SlidingWindowCounter => Self::SlidingCounter,
            AlgorithmName::SlidingWindowLog => Self::SlidingLog,
            AlgorithmName::Concurrency => Self::Concurrency,
            AlgorithmName::WarmUp => Self::WarmUp { units, interval: reduced },
            _ => Self::Bucket(Ticks { period: reduced, per_us: units.saturating_mul(1000) }),
        }
    }
}

impl Attached {
    /// Works out what can be known of a limit.
    ///
    /// # Errors
    /// If its numbers are too large for the script.
    pub(crate) fn new(limit: &Limit) -> Result<Self, String> {
        let terms = Terms::of(limit);
        check(limit, &terms)?;
        let tag = tag_of(limit.spec());
        let fixed = fixed(limit, &terms, &tag);
        let quick = quick(limit, &terms, &tag);
        Ok(Self { serial: 0, terms, tag, fixed, quick })
    }
}

/// The largest cost that is ever admitted, a soft allowance included.
pub(crate) fn largest_cap(limit: &Limit) -> u64 {
    let extra = limit
        .spec()
        .soft
        .map_or(0, |soft| u128::from(limit.limit()) * u128::from(soft.over_bp) / 10_000);
    limit.limit().saturating_add(u64::try_from(extra).unwrap_or(u64::MAX))
}

/// Refuses what could not be counted exactly.
fn check(limit: &Limit, terms: &Terms) -> Result<(), String> {
    let spec = limit.spec();
    let named = [("requests_per_unit", spec.rate.units), ("burst", limit.limit())];
    for (field, given) in named {
        if given > NAMED_MOST {
            return Err(format!("`{field}` is {given}; in Redis it can be at most {NAMED_MOST}"));
        }
    }
    if matches!(terms, Terms::Block) {
        return Ok(());
    }
    let cap = largest_cap(limit);
    if matches!(terms, Terms::SlidingLog | Terms::Concurrency) && cap > LISTED_MOST {
        let name = spec.algorithm;
        return Err(format!("a {name} of {cap} units; in Redis it can hold {LISTED_MOST}"));
    }
    let spans = [
        ("the period", Some(spec.rate.period), is_by_windows(terms)),
        ("`lease`", lease(spec), true),
        ("`soft.for`", spec.soft.map(|soft| soft.span), true),
        ("`warm_up.period`", spec.warm_up.map(|warm_up| warm_up.period), false),
    ];
    for (field, given, whole) in spans {
        let Some(given) = given else { continue };
        if given > PERIOD_MOST {
            return Err(format!("{field} is {given:?}; in Redis it can be at most 400 days"));
        }
        if whole && given.subsec_nanos() % 1000 != 0 {
            return Err(format!("{field} is {given:?}; Redis counts in whole microseconds"));
        }
    }
    let filling = match terms {
        Terms::Bucket(ticks) => {
            let us = u128::from(cap) * u128::from(ticks.period) / u128::from(ticks.per_us);
            Some(Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX)))
        }
        Terms::Interval => limit.earning_time(),
        _ => None,
    };
    if filling.is_some_and(|filling| filling > CENTURY) {
        return Err("it takes more than a century to fill; in Redis that is too long".to_owned());
    }
    Ok(())
}

fn is_by_windows(terms: &Terms) -> bool {
    !matches!(terms, Terms::Bucket(_) | Terms::WarmUp { .. } | Terms::Concurrency)
}

fn lease(spec: &LimitSpec) -> Option<Duration> {
    match spec.lease {
        _ if spec.algorithm != AlgorithmName::Concurrency => None,
        Some(Lease::Unlimited) => None,
        Some(Lease::For(lease)) => Some(lease),
        // What the engine gives if nobody says.
        None => Some(Duration::from_secs(60)),
    }
}

/// What a request says of a limit, in the order that the script's `read` expects.
fn fixed(limit: &Limit, terms: &Terms, tag: &[u8]) -> Vec<u8> {
    let spec = limit.spec();
    // Two flags follow the kind in each request: see `request.rs`.
    let mut out = vec![u8::from(limit.counts_rejected()), u8::from(limit.remembers_first_sight())];
    put(&mut out, spec.soft.map_or(0.0, |soft| micros(soft.span)));
    out.push(tag.len() as u8);
    out.extend_from_slice(tag);
    let (cap, soft_cap) = (limit.limit(), largest_cap(limit));
    let caps = [cap as f64, soft_cap as f64];
    let memory = if limit.remembers_first_sight() { FIRST_SIGHT_MEMORY as f64 } else { 0.0 };
    let missing = spec.initial.map_or(0, |initial| cap.saturating_sub(initial));
    match terms {
        Terms::Block => {}
        Terms::Bucket(ticks) => {
            put(&mut out, ticks.per_us as f64);
            for units in [cap, soft_cap, missing] {
                let (whole, rest) = ticks.of_units(units);
                put_all(&mut out, [whole, rest]);
            }
            put(&mut out, memory);
            let max_delay = spec.queue.and_then(|queue| queue.max_delay);
            out.push(u8::from(spec.queue.is_some()) + u8::from(max_delay.is_some()));
            let delay = u128::from(max_delay.map_or(0, nanos));
            let (whole, rest) = ticks.split(delay * u128::from(ticks.per_us / 1000));
            put_all(&mut out, [whole, rest]);
        }
        Terms::Interval => {
            put_all(&mut out, [spec.rate.units as f64, micros(spec.rate.period)]);
            put_all(&mut out, caps);
            put_all(&mut out, [missing as f64, memory]);
            out.push(u8::from(spec.refill == Refill::IntervalAligned));
        }
        Terms::FixedWindow => {
            put(&mut out, micros(spec.rate.period));
            put_all(&mut out, caps);
            out.push(windows(spec));
        }
        Terms::SlidingCounter => {
            put(&mut out, micros(spec.rate.period));
            put_all(&mut out, caps);
            out.push(u8::from(spec.compare == Compare::Exact));
        }
        Terms::SlidingLog => {
            put(&mut out, micros(spec.rate.period));
            put_all(&mut out, caps);
            // As many as the engine keeps.
            let most = if limit.counts_rejected() { soft_cap } else { soft_cap.saturating_mul(2) };
            put(&mut out, most as f64);
        }
        Terms::Concurrency => put_all(&mut out, [lease(spec).map_or(0.0, micros), cap as f64]),
        Terms::WarmUp { units, interval } => put_warm_up(&mut out, limit, *units, *interval),
    }
    out
}

/// The constants of `tidegate-core`'s warm-up.
fn put_warm_up(out: &mut Vec<u8>, limit: &Limit, units: u64, interval: u64) {
    let spec = limit.spec();
    let Some(cold) = spec.warm_up else { return };
    let max_delay = spec.queue.and_then(|queue| queue.max_delay).map_or(u64::MAX, nanos);
    let (whole, rest) = split_nanos(max_delay);
    put_all(out, [limit.limit() as f64, whole, rest]);
    let (units, interval) = (u128::from(units), u128::from(interval));
    let (period, factor) = (u128::from(nanos(cold.period)), u128::from(cold.cold_factor));
    let ticks = units * (factor + 5);
    put_wide(out, period * ticks);
    put_wide(out, period * units * (factor + 1));
    // More than the coldest key has is as good as all of it.
    put_wide(out, interval.saturating_mul(2).saturating_mul(factor + 1).min(period * ticks + 1));
    put_wide(out, ticks);
    put_wide(out, interval);
    put_wide(out, units);
    put_wide(out, factor - 1);
    put_wide(out, 16 * period * units * (factor + 1));
}

/// What the quick way of the script expects of a plain limit, after the time and the units.
fn quick(limit: &Limit, terms: &Terms, tag: &[u8]) -> Option<Vec<u8>> {
    let spec = limit.spec();
    let is_late = spec.queue.is_some_and(|queue| queue.max_delay.is_some());
    if spec.soft.is_some() || limit.remembers_first_sight() || is_late {
        return None;
    }
    let mut out = Vec::new();
    match terms {
        Terms::Bucket(ticks) => {
            let (whole, rest) = ticks.of_units(limit.limit());
            put_all(&mut out, [ticks.per_us as f64, whole, rest]);
        }
        Terms::FixedWindow => {
            put_all(&mut out, [micros(spec.rate.period), limit.limit() as f64]);
            out.extend_from_slice(&[windows(spec), u8::from(limit.counts_rejected())]);
        }
        _ => return None,
    }
    out.push(tag.len() as u8);
    out.extend_from_slice(tag);
    Some(out)
}

/// Where windows begin, as the script has it.
fn windows(spec: &LimitSpec) -> u8 {
    match spec.align {
        Align::Epoch => 0,
        Align::FirstRequest => 1,
        Align::Calendar => 2,
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Rate;

    use super::*;

    fn why(spec: LimitSpec) -> String {
        Attached::new(&spec.build().unwrap()).unwrap_err()
    }

    #[test]
    fn what_cannot_be_counted_exactly_is_refused() {
        let day = Duration::from_secs(86_400);
        assert!(why(Limit::per_second(1 << 32)).contains("4294967296"));
        assert!(why(Limit::per_second(5).burst(1 << 32)).contains("`burst`"));
        assert!(why(Limit::fixed_window(Rate::new(5, 401 * day))).contains("400 days"));
        let odd = Duration::from_nanos(1_000_001);
        assert!(why(Limit::fixed_window(Rate::new(5, odd))).contains("microseconds"));
        assert!(why(Limit::sliding_log(Rate::per_day(1_000_001))).contains("1000000"));
        assert!(why(Limit::concurrency(1_000_001)).contains("1000000"));
        assert!(why(Limit::concurrency(5).lease(odd)).contains("`lease`"));
        let slow = Limit::token_bucket(Rate::new(1, 400 * day)).burst(100);
        assert!(why(slow).contains("century"));
    }

    #[test]
    fn what_can_is_not() {
        let day = Duration::from_secs(86_400);
        for spec in [
            Limit::token_bucket(Rate::new(u32::MAX.into(), 400 * day)),
            Limit::token_bucket(Rate::new(7, Duration::from_nanos(13_000_001))),
            Limit::sliding_counter(Rate::new(u32::MAX.into(), 400 * day)),
            Limit::fixed_window(Rate::new(0, Duration::from_nanos(1))),
        ] {
            assert!(Attached::new(&spec.build().unwrap()).is_ok(), "{spec:?}");
        }
    }
}
