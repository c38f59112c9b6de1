//! Rules with their limits registered in a store, and why they may not be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::Inherit;
use tidegate_rules::{Rule, Rules};
use tidegate_store::{OnError, RegisterError, Registered, Store};

use crate::calendar::Calendar;

/// How often rules have been armed in this process.
static GENERATIONS: AtomicU64 = AtomicU64::new(0);

/// Rules with their limits registered.
#[derive(Debug)]
pub(crate) struct Armed {
    /// Another one for each time that rules are armed.
    pub(crate) generation: u64,
    pub(crate) rules: Rules,
    pub(crate) handles: Box<[Arc<Registered>]>,
    pub(crate) calendars: Box<[Option<Calendar>]>,
    /// What limits that are in no rules answer when the store cannot.
    pub(crate) on_error: OnError,
}

impl Armed {
    pub(crate) fn new<S: Store>(store: &S, rules: Rules) -> Result<Self, RuleError> {
        let mut handles = Vec::with_capacity(rules.all().len());
        let mut calendars = Vec::with_capacity(rules.all().len());
        for rule in rules.all() {
            handles.push(store.register(&rule.counter, rule.limit.clone(), Inherit::Used)?);
            calendars.push(calendar_of(rule)?);
        }
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let (handles, calendars, on_error) = (handles.into(), calendars.into(), OnError::default());
        Ok(Self { generation, rules, handles, calendars, on_error })
    }

    /// No rules, but limits that were built in a program.
    pub(crate) fn limits(
        handles: &[Arc<Registered>],
        calendars: &[Option<Calendar>],
        on_error: OnError,
    ) -> Self {
        let generation = GENERATIONS.fetch_add(1, Ordering::Relaxed);
        let (handles, calendars) = (handles.into(), calendars.into());
        Self { generation, rules: Rules::default(), handles, calendars, on_error }
    }
}

#[cfg(feature = "time-zones")]
fn calendar_of(rule: &Rule) -> Result<Option<Calendar>, RuleError> {
    use crate::calendar::CalendarUnit;
    use tidegate_rules::Unit;

    let Some(zone) = &rule.calendar else { return Ok(None) };
    let unit = match zone.unit {
        Unit::Week => CalendarUnit::Week,
        Unit::Month => CalendarUnit::Month,
        Unit::Year => CalendarUnit::Year,
        _ => CalendarUnit::Day,
    };
    let calendar = Calendar::new(unit, &zone.name);
    calendar.map(Some).map_err(|source| RuleError::TimeZone { rule: rule.id.to_string(), source })
}

#[cfg(not(feature = "time-zones"))]
fn calendar_of(rule: &Rule) -> Result<Option<Calendar>, RuleError> {
    match rule.calendar {
        None => Ok(None),
        Some(_) => Err(RuleError::NoTimeZones { rule: rule.id.to_string() }),
    }
}

/// Says why a name is no time zone: what [`Options::check_time_zone`] of the rules wants.
///
/// [`Options::check_time_zone`]: tidegate_rules::Options::check_time_zone
///
/// # Errors
/// With the reason, if it is none.
#[cfg(feature = "time-zones")]
pub fn check_time_zone(name: &str) -> Result<(), String> {
    use crate::calendar::CalendarUnit;
    Calendar::new(CalendarUnit::Day, name).map(drop).map_err(|error| error.to_string())
}

/// Rules that cannot be enforced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A time zone that nobody knows.
    #[cfg(feature = "time-zones")]
    #[error("rule `{rule}` cannot follow its calendar")]
    TimeZone {
        /// The rule.
        rule: String,
        /// What is wrong.
        #[source]
        source: crate::UnknownTimeZone,
    },
    /// Time zones are not built in.
    #[error("rule `{rule}` names a time zone, and the feature `time-zones` is off")]
    NoTimeZones {
        /// The rule.
        rule: String,
    },
    /// The store knows too many limits.
    #[error(transparent)]
    Register(#[from] RegisterError),
}
