//! A rate: so many units per period.

use core::fmt;
use core::time::Duration;

use crate::text::WriteDuration;

/// So many units per period: 300 per 3 hours, 5 per second.
///
/// A rate is only numbers; whether they make sense is said when a [`Limit`](crate::Limit) is
/// built from it.
///
/// ```
/// use core::time::Duration;
/// use tidegate_core::Rate;
///
/// assert_eq!(Rate::per_minute(30), Rate::new(30, Duration::from_secs(60)));
/// assert_eq!(Rate::new(300, Duration::from_secs(3 * 3600)).to_string(), "300/3h");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// How many units.
    pub units: u64,
    /// In how long.
    pub period: Duration,
}

impl Rate {
    /// `units` in each `period`.
    pub const fn new(units: u64, period: Duration) -> Self {
        Self { units, period }
    }

    /// `units` per second.
    pub const fn per_second(units: u64) -> Self {
        Self::new(units, Duration::from_secs(1))
    }

    /// `units` per minute.
    pub const fn per_minute(units: u64) -> Self {
        Self::new(units, Duration::from_secs(60))
    }

    /// `units` per hour.
    pub const fn per_hour(units: u64) -> Self {
        Self::new(units, Duration::from_secs(3600))
    }

    /// `units` per 24 hours.
    pub const fn per_day(units: u64) -> Self {
        Self::new(units, Duration::from_secs(86_400))
    }

    /// `units` per 7 days.
    pub const fn per_week(units: u64) -> Self {
        Self::new(units, Duration::from_secs(7 * 86_400))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.units, WriteDuration(self.period))
    }
}
