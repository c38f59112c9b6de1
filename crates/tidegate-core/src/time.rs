//! Time as the engine sees it: whole nanoseconds since the Unix epoch, handed in by the caller.

use core::fmt;
use core::ops::Add;
use core::time::Duration;

/// A moment, in whole nanoseconds since the Unix epoch.
///
/// The engine never asks what time it is: whoever calls it says so. Arithmetic saturates at both
/// ends (the last moment is in the year 2554).
///
/// ```
/// use core::time::Duration;
/// use tidegate_core::Timestamp;
///
/// let noon = Timestamp::from_secs(12 * 3600);
/// assert_eq!(noon + Duration::from_secs(1), Timestamp::from_secs(12 * 3600 + 1));
/// assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const ZERO: Self = Self(0);
    /// The last moment that can be told.
    pub const MAX: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `secs` seconds after the epoch, at most [`Timestamp::MAX`].
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(NANOS_PER_SEC))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / NANOS_PER_SEC, self.0 % NANOS_PER_SEC)
    }
}

/// One window of a calendar: from `start` up to, but not including, `end`.
///
/// The engine knows nothing of time zones; a limit by calendar day, week, month or year is told
/// the window that each decision falls in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first moment inside.
    pub start: Timestamp,
    /// The first moment after it.
    pub end: Timestamp,
}

/// Three windows of a calendar in a row, the middle one around the caller's now.
///
/// A networked store decides by its own clock, which may be just before or after the caller's;
/// so a call carries the neighbours too, and the store picks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Where the first begins, the second, the third, and where the third ends.
    pub edges: [Timestamp; 4],
}

impl Windows {
    /// The window around `now`; outside of all three, the nearest.
    pub fn around(&self, now: Timestamp) -> Window {
        let [first, second, third, end] = self.edges;
        if now < second {
            Window { start: first, end: second }
        } else if now < third {
            Window { start: second, end: third }
        } else {
            Window { start: third, end }
        }
    }
}

/// The moment of a decision, with the calendar window it falls in where the limit needs one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The caller's time.
    pub now: Timestamp,
    /// The calendar window around `now`; only limits aligned to a calendar read it.
    pub window: Option<Window>,
}

impl Moment {
    /// A moment without a calendar, which is all that most limits need.
    pub const fn at(now: Timestamp) -> Self {
        Self { now, window: None }
    }

    pub(crate) const fn nanos(&self) -> u64 {
        self.now.as_nanos()
    }
}

impl From<Timestamp> for Moment {
    fn from(now: Timestamp) -> Self {
        Self::at(now)
    }
}

pub(crate) const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A duration in whole nanoseconds; 584 years at the most.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
