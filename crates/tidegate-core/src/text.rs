//! Limits and durations as text: one form to print, to compare, to keep in snapshots and to parse.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::error::LimitError;
use crate::limit::Limit;
use crate::rate::Rate;
use crate::spec::{
    AlgorithmName, Align, ColdStart, Compare, Lease, LimitSpec, Queue, Refill, SoftSpec,
};

const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Writes a duration exactly, in the largest unit that divides it: `3h`, `1500ms`.
pub(crate) struct WriteDuration(pub(crate) Duration);

impl fmt::Display for WriteDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let (name, size) = UNITS
            .into_iter()
            .find(|(_, size)| nanos >= *size && nanos.is_multiple_of(*size))
            .unwrap_or(("s", 1_000_000_000));
        write!(f, "{}{name}", nanos / size)
    }
}

/// Reads one whole number with one unit: `500ms`, `10s`, `5m`, `3h`, `7d`.
///
/// ```
/// use core::time::Duration;
/// use tidegate_core::parse_duration;
///
/// assert_eq!(parse_duration("3h"), Some(Duration::from_secs(10_800)));
/// assert_eq!(parse_duration("3 hours"), None);
/// ```
pub fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, size) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let nanos = number.parse::<u128>().ok()?.checked_mul(size)?;
    let secs = u64::try_from(nanos / 1_000_000_000).ok()?;
    let subsec = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Duration::new(secs, subsec))
}

impl Refill {
    const NAMES: [(Self, &'static str); 3] = [
        (Self::Greedy, "greedy"),
        (Self::Interval, "interval"),
        (Self::IntervalAligned, "interval_aligned"),
    ];
}

impl Align {
    const NAMES: [(Self, &'static str); 3] = [
        (Self::Epoch, "epoch"),
        (Self::FirstRequest, "first_request"),
        (Self::Calendar, "calendar"),
    ];
}

impl Compare {
    const NAMES: [(Self, &'static str); 2] = [(Self::Floor, "floor"), (Self::Exact, "exact")];
}

fn name_of<T: PartialEq>(names: &[(T, &'static str)], value: &T) -> &'static str {
    names.iter().find(|(named, _)| named == value).map_or("", |(_, name)| name)
}

fn value_of<T: Copy>(names: &[(T, &'static str)], name: &str) -> Option<T> {
    names.iter().find(|(_, known)| *known == name).map(|(value, _)| *value)
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec().fmt(f)
    }
}

/// The algorithm, the rate, and what differs from the defaults.
///
/// ```
/// use tidegate_core::{Limit, Rate};
///
/// let limit = Limit::token_bucket(Rate::per_minute(10)).burst(20).build()?;
/// assert_eq!(limit.to_string(), "token_bucket 10/1m burst=20");
/// assert_eq!("token_bucket 10/1m burst=20".parse::<Limit>()?, limit);
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
impl fmt::Display for LimitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.algorithm {
            AlgorithmName::Concurrency => write!(f, "{} {}", self.algorithm, self.rate.units)?,
            _ => write!(f, "{} {}", self.algorithm, self.rate)?,
        }
        if let Some(burst) = self.burst {
            write!(f, " burst={burst}")?;
        }
        if self.refill != Refill::Greedy {
            write!(f, " refill={}", name_of(&Refill::NAMES, &self.refill))?;
        }
        if self.align != Align::Epoch {
            write!(f, " align={}", name_of(&Align::NAMES, &self.align))?;
        }
        if self.compare != Compare::Floor {
            write!(f, " compare={}", name_of(&Compare::NAMES, &self.compare))?;
        }
        if let Some(initial) = self.initial {
            write!(f, " initial={initial}")?;
        }
        if let Some(queue) = self.queue {
            write!(f, " queue={}", queue.size)?;
            if let Some(max_delay) = queue.max_delay {
                write!(f, " max_delay={}", WriteDuration(max_delay))?;
            }
        }
        match self.lease {
            None => {}
            Some(Lease::Unlimited) => write!(f, " lease=none")?,
            Some(Lease::For(lease)) => write!(f, " lease={}", WriteDuration(lease))?,
        }
        if let Some(ColdStart { period, cold_factor }) = self.warm_up {
            write!(f, " warm_up={} cold_factor={cold_factor}", WriteDuration(period))?;
        }
        if let Some(SoftSpec { over_bp, span }) = self.soft {
            write!(f, " soft_over_bp={over_bp} soft_for={}", WriteDuration(span))?;
        }
        if self.count_rejected {
            f.write_str(" count_rejected=true")?;
        }
        Ok(())
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        text.parse::<LimitSpec>()?.build()
    }
}

impl FromStr for LimitSpec {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let fail = |reason: String| LimitError::Text { text: text.into(), reason };
        let mut words = text.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let algorithm = AlgorithmName::ALL
            .into_iter()
            .find(|known| known.as_str() == name)
            .ok_or_else(|| fail(alloc::format!("`{name}` is not an algorithm")))?;
        let rate = words
            .next()
            .and_then(|word| parse_rate(algorithm, word))
            .ok_or_else(|| fail("after the algorithm comes a rate such as `10/1m`".to_string()))?;
        let mut spec = Self::new(algorithm, rate);
        for word in words {
            let understood = word.split_once('=').and_then(|(key, value)| spec.set(key, value));
            understood.ok_or_else(|| fail(alloc::format!("`{word}` is not understood")))?;
        }
        Ok(spec)
    }
}

fn parse_rate(algorithm: AlgorithmName, word: &str) -> Option<Rate> {
    if algorithm == AlgorithmName::Concurrency {
        return Some(Rate::new(word.parse().ok()?, Duration::ZERO));
    }
    let (units, period) = word.split_once('/')?;
    Some(Rate::new(units.parse().ok()?, parse_duration(period)?))
}

impl LimitSpec {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "burst" => self.burst = Some(value.parse().ok()?),
            "initial" => self.initial = Some(value.parse().ok()?),
            "refill" => self.refill = value_of(&Refill::NAMES, value)?,
            "align" => self.align = value_of(&Align::NAMES, value)?,
            "compare" => self.compare = value_of(&Compare::NAMES, value)?,
            "queue" => self.queue = Some(Queue { size: value.parse().ok()?, max_delay: None }),
            "max_delay" => *self = self.max_delay(parse_duration(value)?),
            "lease" if value == "none" => self.lease = Some(Lease::Unlimited),
            "lease" => self.lease = Some(Lease::For(parse_duration(value)?)),
            "warm_up" => {
                self.warm_up = Some(ColdStart { period: parse_duration(value)?, cold_factor: 3 });
            }
            "cold_factor" => *self = self.cold_factor(value.parse().ok()?),
            "soft_over_bp" => {
                self.soft = Some(SoftSpec { over_bp: value.parse().ok()?, span: Duration::ZERO });
            }
            "soft_for" => self.soft.as_mut()?.span = parse_duration(value)?,
            "count_rejected" => self.count_rejected = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}
