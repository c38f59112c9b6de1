//! Windows by the calendar of a named time zone, daylight saving included.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp as Instant, ToSpan, Zoned};
use tidegate_core::{Align, Limit, LimitSpec, Rate, Timestamp, Windows};

/// A unit of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight: 23, 24 or 25 hours.
    Day,
    /// From Monday.
    Week,
    /// From the first.
    Month,
    /// From the first of January.
    Year,
}

/// A unit of the calendar in a time zone: where the windows of a limit begin and end.
///
/// ```
/// use tidegate::{Calendar, CalendarUnit, Timestamp};
///
/// let berlin = Calendar::new(CalendarUnit::Day, "Europe/Berlin")?;
/// // 2026-03-29, when clocks go forward: noon is in a day of 23 hours.
/// let noon = Timestamp::from_secs(1_774_778_400);
/// let day = berlin.windows(noon).around(noon);
/// assert_eq!(day.end.since(day.start).as_secs(), 23 * 3600);
/// # Ok::<(), tidegate::UnknownTimeZone>(())
/// ```
#[derive(Clone, Debug)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
    /// The windows around the last moment asked for: they hold for most of the next ones.
    last: Arc<Mutex<Option<Windows>>>,
}

/// A time zone that the tz database does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a time zone; use an IANA name such as `Europe/Berlin` or `UTC`")]
pub struct UnknownTimeZone {
    /// The name that was given.
    pub name: String,
}

impl Calendar {
    /// The calendar of a time zone, by its IANA name.
    ///
    /// # Errors
    /// If there is no such zone.
    pub fn new(unit: CalendarUnit, zone: &str) -> Result<Self, UnknownTimeZone> {
        let zone = TimeZone::get(zone).map_err(|_| UnknownTimeZone { name: zone.to_owned() })?;
        Ok(Self { unit, zone, last: Arc::default() })
    }

    /// A limit of `units` per unit of this calendar.
    #[must_use]
    pub fn limit(&self, units: u64) -> LimitSpec {
        // The period is what headers and displays speak of; windows come from the calendar.
        let days = match self.unit {
            CalendarUnit::Day => 1,
            CalendarUnit::Week => 7,
            CalendarUnit::Month => 30,
            CalendarUnit::Year => 365,
        };
        let rate = Rate::new(units, Duration::from_secs(days * 86_400));
        Limit::fixed_window(rate).align(Align::Calendar)
    }

    /// The window around a moment, the one before and the one after.
    ///
    /// At the ends of the calendar, thousands of years away, windows have no length.
    pub fn windows(&self, now: Timestamp) -> Windows {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some(windows) if windows.edges[1] <= now && now < windows.edges[2] => windows,
            _ => *last.insert(self.compute(now)),
        }
    }

    fn compute(&self, now: Timestamp) -> Windows {
        let secs = i64::try_from(now.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX);
        let instant = Instant::from_second(secs).unwrap_or(Instant::MAX);
        let start = self.start_of(Zoned::new(instant, self.zone.clone()).date());
        let edge = |offset: i32| self.edge(self.step(start, offset));
        Windows { edges: [edge(-1), edge(0), edge(1), edge(2)] }
    }

    fn start_of(&self, date: Date) -> Date {
        match self.unit {
            CalendarUnit::Day => date,
            CalendarUnit::Week if date.weekday() == Weekday::Monday => date,
            CalendarUnit::Week => date.nth_weekday(-1, Weekday::Monday).unwrap_or(date),
            CalendarUnit::Month => date.first_of_month(),
            CalendarUnit::Year => date.first_of_year(),
        }
    }

    fn step(&self, start: Date, count: i32) -> Date {
        let span = match self.unit {
            CalendarUnit::Day => count.days(),
            CalendarUnit::Week => count.weeks(),
            CalendarUnit::Month => count.months(),
            CalendarUnit::Year => count.years(),
        };
        start.saturating_add(span)
    }

    /// The first moment of a day. Where midnight is skipped, that is the moment after the gap;
    /// where it comes twice, the first.
    fn edge(&self, date: Date) -> Timestamp {
        let nanos = date.to_zoned(self.zone.clone()).map_or(i128::MAX, |midnight| {
            midnight.start_of_day().map_or(i128::MAX, |start| start.timestamp().as_nanosecond())
        });
        Timestamp::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}
