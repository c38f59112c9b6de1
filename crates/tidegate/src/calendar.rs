//! Calendar windows: days, weeks, months and years in a time zone.

#[cfg(feature = "time-zones")]
mod zoned;

use tidegate_core::{Timestamp, Windows};

#[cfg(feature = "time-zones")]
pub use self::zoned::{Calendar, CalendarUnit, UnknownTimeZone};

/// Without the feature `time-zones` there are no calendars.
#[cfg(not(feature = "time-zones"))]
#[derive(Clone, Debug)]
pub(crate) enum Calendar {}

#[cfg(not(feature = "time-zones"))]
impl Calendar {
    pub(crate) fn windows(&self, _now: Timestamp) -> Windows {
        match *self {}
    }
}

#[cfg(feature = "time-zones")]
const _: fn(&Calendar, Timestamp) -> Windows = Calendar::windows;
