//! Days, weeks, months and years as people in a time zone live them.

#![allow(clippy::unwrap_used, reason = "tests say what they expect")]

use std::time::Duration;

use proptest::prelude::*;
use tidegate::{Calendar, CalendarUnit, Limiter, ManualClock, Retry, Timestamp, Window};

const NANOSECOND: Duration = Duration::from_nanos(1);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
const UNITS: [CalendarUnit; 4] =
    [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];

/// Plain offsets, odd ones, and zones with all the ways to skip or repeat a midnight.
const ZONES: [&str; 12] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "America/Havana",
    "Asia/Kathmandu",
    "Asia/Gaza",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Kiritimati",
];

/// A moment by the calendar of UTC, reckoned without the library that is being tested: days since
/// the epoch by counting leap days.
fn utc(year: u64, month: u64, day: u64, hour: u64, minute: u64) -> Timestamp {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize - 1];
    let leap_day = if month > 2 { leaps(year) - leaps(year - 1) } else { 0 };
    let days = (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + before + leap_day + day - 1;
    Timestamp::from_secs(days * 86_400 + hour * 3600 + minute * 60)
}

fn calendar(unit: CalendarUnit, zone: &str) -> Calendar {
    Calendar::new(unit, zone).unwrap()
}

fn window(unit: CalendarUnit, zone: &str, now: Timestamp) -> Window {
    calendar(unit, zone).windows(now).around(now)
}

/// One nanosecond before.
fn just_before(moment: Timestamp) -> Timestamp {
    Timestamp::from_nanos(moment.as_nanos() - 1)
}

/// The first and the last moment inside belong to a window, their neighbours do not.
fn assert_window(unit: CalendarUnit, zone: &str, start: Timestamp, end: Timestamp) {
    let expected = Window { start, end };
    assert_eq!(window(unit, zone, start), expected, "the first moment in {zone}");
    assert_eq!(window(unit, zone, just_before(end)), expected, "the last moment in {zone}");
    assert_eq!(window(unit, zone, end).start, end, "the next in {zone}");
    assert_eq!(window(unit, zone, just_before(start)).end, start, "the one before in {zone}");
}

#[test]
fn the_reckoning_of_this_test_is_right() {
    assert_eq!(utc(1970, 1, 1, 0, 0), Timestamp::ZERO);
    assert_eq!(utc(2000, 3, 1, 0, 0), Timestamp::from_secs(951_868_800));
    assert_eq!(utc(2023, 11, 14, 22, 13), Timestamp::from_secs(1_700_000_000 - 20));
}

#[test]
fn a_day_is_from_midnight_to_midnight() {
    let day = CalendarUnit::Day;
    assert_window(day, "UTC", utc(2026, 1, 15, 0, 0), utc(2026, 1, 16, 0, 0));
    assert_window(day, "Europe/Berlin", utc(2026, 1, 14, 23, 0), utc(2026, 1, 15, 23, 0));
    assert_window(day, "America/New_York", utc(2026, 7, 4, 4, 0), utc(2026, 7, 5, 4, 0));
    // Five hours and three quarters ahead.
    assert_window(day, "Asia/Kathmandu", utc(2026, 1, 14, 18, 15), utc(2026, 1, 15, 18, 15));
    assert_window(day, "Pacific/Kiritimati", utc(2026, 1, 14, 10, 0), utc(2026, 1, 15, 10, 0));
}

#[test]
fn a_day_on_which_clocks_change_is_shorter_or_longer() {
    let day = CalendarUnit::Day;
    let cases = [
        // Berlin goes forward at two in the morning, and back at three.
        ("Europe/Berlin", utc(2026, 3, 28, 23, 0), 23 * HOUR),
        ("Europe/Berlin", utc(2026, 10, 24, 22, 0), 25 * HOUR),
        // Half an hour is enough on Lord Howe Island.
        ("Australia/Lord_Howe", utc(2026, 4, 4, 13, 0), 24 * HOUR + HOUR / 2),
        // At midnight in São Paulo: the day begins at one.
        ("America/Sao_Paulo", utc(2018, 11, 4, 3, 0), 23 * HOUR),
        // At midnight back to eleven: the day before has that hour twice.
        ("America/Sao_Paulo", utc(2018, 2, 17, 2, 0), 25 * HOUR),
        // At one back to midnight: the day begins with the first of the two midnights.
        ("America/Havana", utc(2023, 11, 5, 4, 0), 25 * HOUR),
    ];
    for (zone, start, length) in cases {
        assert_window(day, zone, start, start + length);
    }
}

#[test]
fn a_day_that_begins_twice_begins_once() {
    // At one minute past midnight back to one minute past eleven, the evening before.
    let (start, back) = (utc(2010, 11, 7, 2, 30), utc(2010, 11, 7, 2, 31));
    assert_window(CalendarUnit::Day, "America/St_Johns", start, utc(2010, 11, 8, 3, 30));
    // The evening that comes again belongs to the day that has begun: nobody gets a quota twice.
    let again = window(CalendarUnit::Day, "America/St_Johns", back + HOUR / 2);
    assert_eq!(again.start, start);
}

#[test]
fn a_day_that_never_was_has_no_window() {
    // On Samoa the 30th of December 2011 did not take place.
    let last = utc(2011, 12, 30, 10, 0);
    assert_window(CalendarUnit::Day, "Pacific/Apia", utc(2011, 12, 29, 10, 0), last);
    assert_window(CalendarUnit::Day, "Pacific/Apia", last, utc(2011, 12, 31, 10, 0));
}

#[test]
fn a_week_begins_on_monday() {
    let week = CalendarUnit::Week;
    // 2026-01-05 and 2026-01-12 are Mondays.
    assert_window(week, "UTC", utc(2026, 1, 5, 0, 0), utc(2026, 1, 12, 0, 0));
    assert_window(week, "Europe/Berlin", utc(2026, 1, 4, 23, 0), utc(2026, 1, 11, 23, 0));
    // The week at whose end clocks go forward lacks an hour.
    assert_window(week, "Europe/Berlin", utc(2026, 3, 22, 23, 0), utc(2026, 3, 29, 22, 0));
    // Weeks do not care for the end of a year.
    assert_window(week, "UTC", utc(2025, 12, 29, 0, 0), utc(2026, 1, 5, 0, 0));
    // Every day of one week is in it.
    for day in 0..7 {
        let found = window(week, "Asia/Kathmandu", utc(2026, 1, 5 + day, 12, 0));
        assert_eq!(found.start, utc(2026, 1, 4, 18, 15));
    }
}

#[test]
fn months_have_their_lengths() {
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    for (index, days) in lengths.into_iter().enumerate() {
        let start = utc(2026, index as u64 + 1, 1, 0, 0);
        assert_window(CalendarUnit::Month, "UTC", start, start + days * DAY);
    }
    // Every fourth year, but not every hundredth, but every four hundredth.
    for (year, days) in [(2024, 29), (2000, 29), (2100, 28), (2400, 29)] {
        let start = utc(year, 2, 1, 0, 0);
        assert_window(CalendarUnit::Month, "UTC", start, start + days * DAY);
    }
    // March of Berlin lacks an hour, October has one more.
    let march = utc(2026, 2, 28, 23, 0);
    assert_window(CalendarUnit::Month, "Europe/Berlin", march, march + (31 * DAY - HOUR));
    let october = utc(2026, 9, 30, 22, 0);
    assert_window(CalendarUnit::Month, "Europe/Berlin", october, october + (31 * DAY + HOUR));
}

#[test]
fn years_have_their_lengths() {
    for (year, days) in [(2023, 365), (2024, 366), (2000, 366), (2100, 365)] {
        let start = utc(year, 1, 1, 0, 0);
        assert_window(CalendarUnit::Year, "UTC", start, start + days * DAY);
    }
    let start = utc(2025, 12, 31, 18, 15);
    assert_window(CalendarUnit::Year, "Asia/Kathmandu", start, start + 365 * DAY);
}

#[test]
fn three_windows_adjoin() {
    let now = utc(2024, 2, 10, 12, 0);
    let edges = calendar(CalendarUnit::Month, "UTC").windows(now).edges;
    let firsts = [(2024, 1), (2024, 2), (2024, 3), (2024, 4)];
    assert_eq!(edges, firsts.map(|(year, month)| utc(year, month, 1, 0, 0)));
}

#[test]
fn a_zone_that_nobody_knows_is_refused_by_name() {
    let error = Calendar::new(CalendarUnit::Day, "Europe/Atlantis").unwrap_err();
    assert_eq!(error.name, "Europe/Atlantis");
    assert_eq!(
        error.to_string(),
        "`Europe/Atlantis` is not a time zone; use an IANA name such as `Europe/Berlin` or `UTC`"
    );
}

#[test]
fn a_limit_says_its_length_roughly() {
    let said = UNITS.map(|unit| calendar(unit, "UTC").limit(5).to_string());
    let expected = ["1d", "7d", "30d", "365d"];
    assert_eq!(said, expected.map(|period| format!("fixed_window 5/{period} align=calendar")));
}

#[test]
fn the_ends_of_time_have_windows() {
    for zone in ZONES {
        for unit in UNITS {
            let first = window(unit, zone, Timestamp::ZERO);
            assert!(first.start == Timestamp::ZERO && first.end > Timestamp::ZERO, "{zone}");
            let last = window(unit, zone, just_before(Timestamp::MAX));
            assert!(last.start < Timestamp::MAX && last.end == Timestamp::MAX, "{zone}");
        }
    }
}

/// Used up one nanosecond before the end of a window, full at the end.
fn assert_resets_at(unit: CalendarUnit, zone: &str, end: Timestamp) {
    let now = Timestamp::from_nanos(end.as_nanos() - 7_200_000_000_000);
    let clock = ManualClock::at(now);
    let limiter = Limiter::builder()
        .calendar("quota", 2, calendar(unit, zone))
        .clock(clock.clone())
        .build()
        .unwrap();
    let first = limiter.check("user:42");
    assert_eq!((first.allowed, first.remaining), (true, 1), "{zone}");
    assert_eq!(first.reset_after, Some(2 * HOUR), "{zone}");
    assert!(limiter.check("user:42").allowed, "{zone}");
    assert_eq!(limiter.check("user:42").retry, Retry::After(2 * HOUR), "{zone}");
    clock.set(just_before(end));
    assert_eq!(limiter.check("user:42").retry, Retry::After(NANOSECOND), "{zone}");
    clock.set(end);
    let fresh = limiter.check("user:42");
    assert_eq!((fresh.allowed, fresh.remaining), (true, 1), "{zone}");
}

#[test]
fn a_quota_is_there_again_at_local_midnight_exactly() {
    assert_resets_at(CalendarUnit::Day, "Europe/Berlin", utc(2026, 1, 15, 23, 0));
    assert_resets_at(CalendarUnit::Day, "Europe/Berlin", utc(2026, 3, 29, 22, 0));
    assert_resets_at(CalendarUnit::Day, "Europe/Berlin", utc(2026, 10, 25, 23, 0));
    assert_resets_at(CalendarUnit::Day, "America/Sao_Paulo", utc(2018, 11, 4, 3, 0));
    assert_resets_at(CalendarUnit::Day, "America/St_Johns", utc(2010, 11, 7, 2, 30));
    assert_resets_at(CalendarUnit::Day, "Asia/Kathmandu", utc(2026, 1, 14, 18, 15));
    assert_resets_at(CalendarUnit::Day, "Pacific/Apia", utc(2011, 12, 30, 10, 0));
    assert_resets_at(CalendarUnit::Week, "Europe/Berlin", utc(2026, 3, 29, 22, 0));
    assert_resets_at(CalendarUnit::Month, "America/New_York", utc(2024, 3, 1, 5, 0));
    assert_resets_at(CalendarUnit::Year, "Asia/Kathmandu", utc(2025, 12, 31, 18, 15));
}

#[test]
fn a_quota_is_not_there_again_when_an_evening_comes_twice() {
    let midnight = utc(2010, 11, 7, 2, 30);
    let clock = ManualClock::at(midnight);
    let limiter = Limiter::builder()
        .calendar("quota", 1, calendar(CalendarUnit::Day, "America/St_Johns"))
        .clock(clock.clone())
        .build()
        .unwrap();
    assert!(limiter.check("user:42").allowed);
    // Every minute until the next midnight, 25 hours later.
    for _ in 1..25 * 60 {
        clock.advance(HOUR / 60);
        assert!(!limiter.check("user:42").allowed, "{}", limiter.now());
    }
    clock.advance(HOUR / 60);
    assert!(limiter.check("user:42").allowed);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_moment_is_in_its_window_and_windows_adjoin(
        zone in prop::sample::select(&ZONES[..]),
        unit in prop::sample::select(&UNITS[..]),
        nanos in utc(1970, 1, 1, 0, 0).as_nanos()..utc(2500, 1, 1, 0, 0).as_nanos(),
        inside in 0.0..1.0_f64,
    ) {
        let now = Timestamp::from_nanos(nanos);
        // One calendar for all questions: it remembers its last answer.
        let calendar = calendar(unit, zone);
        let around = |moment| calendar.windows(moment).around(moment);
        let edges = calendar.windows(now).edges;
        prop_assert!(edges.is_sorted());
        let window = around(now);
        prop_assert!(window.start <= now && now < window.end);

        // Everybody else in the window is told the same, and so is a calendar that knows nothing.
        let length = window.end.since(window.start);
        let other = window.start + length.mul_f64(inside).min(length - NANOSECOND);
        for moment in [now, just_before(window.end), window.end] {
            prop_assert_eq!(around(other), window);
            prop_assert_eq!(calendar.windows(moment), self::calendar(unit, zone).windows(moment));
        }

        // Nothing between two windows.
        prop_assert_eq!(around(window.end).start, window.end);
        if window.start > Timestamp::ZERO {
            prop_assert_eq!(around(just_before(window.start)).end, window.start);
        }

        let (least, most) = match unit {
            CalendarUnit::Day => (1, 1),
            CalendarUnit::Week => (7, 7),
            CalendarUnit::Month => (28, 31),
            CalendarUnit::Year => (365, 366),
        };
        // Clocks change by less than three hours, but two islands have skipped a day, and the
        // first window begins with the epoch.
        let least = if window.start == Timestamp::ZERO { Duration::ZERO } else { least * DAY };
        prop_assert!(length + DAY + 3 * HOUR >= least, "{:?}", length);
        prop_assert!(length <= most * DAY + 3 * HOUR, "{:?}", length);
    }
}
