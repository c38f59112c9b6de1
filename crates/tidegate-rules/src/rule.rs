//! A limit of the rules, as it is enforced.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Limit;

use crate::exempt::Exempt;
use crate::yaml::Place;

/// A limit with everything that the rules say about it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rule {
    /// What headers, metrics and people call it: its `name`, or the way to it through the rules.
    ///
    /// Two rules may be given one name; [`counter`](Self::counter) tells them apart.
    pub id: Box<str>,
    /// What a store calls it: one of a kind, and the same in the next version of the file, so
    /// that a changed limit keeps what its keys have used.
    pub counter: Box<str>,
    /// The name, where it has one.
    pub name: Option<Box<str>>,
    /// The limit.
    pub limit: Limit,
    /// Units per period, as written.
    pub requests_per_unit: u32,
    /// The period, where it is one of Lyft's units.
    pub unit: Option<Unit>,
    /// The calendar that windows follow.
    pub calendar: Option<Zone>,
    /// Units of this limit for each unit of the request's cost.
    pub cost: u32,
    /// Counts and reports, but refuses nobody.
    pub shadow: bool,
    /// Refuses only together with all others of its kind.
    pub quota: bool,
    /// What becomes of a request that is over.
    pub excess: Excess,
    /// What to answer when the store cannot.
    pub on_store_error: OnStoreError,
    /// The names of the limits that this one stands in for.
    pub replaces: Box<[Box<str>]>,
    /// Whether it is turned on.
    pub enabled: bool,
    /// The share of keys that it applies to, in hundredths of a percent.
    pub percent_bp: u16,
    /// Who does not meet it.
    pub exempt: Option<Arc<Exempt>>,
    /// Which of the files it is from, and where in it.
    pub origin: Origin,
}

/// A rule that says there is no limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unlimited {
    /// What people call it.
    pub id: Box<str>,
    /// The names of the limits that are not asked where this one is met.
    pub replaces: Box<[Box<str>]>,
    /// Where it was written.
    pub origin: Origin,
}

/// Where something was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, by its position among those that were loaded.
    pub file: u32,
    /// The place in it.
    pub place: Place,
}

/// A calendar: a unit and a time zone by its IANA name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Day, week, month or year.
    pub unit: Unit,
    /// The time zone.
    pub name: Box<str>,
}

/// The units of Lyft's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A second.
    Second,
    /// 60 seconds.
    Minute,
    /// 3600 seconds.
    Hour,
    /// 86,400 seconds.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All of them, shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The name in rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The unit of this name, in whatever case.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.as_str().eq_ignore_ascii_case(name))
    }

    /// Its length.
    pub const fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        })
    }

    /// The unit of this length, if there is one.
    pub fn of_length(length: Duration) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.length() == length)
    }
}

/// What becomes of a request that is over its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Excess {
    /// It is refused.
    #[default]
    Reject,
    /// It is held until its slot.
    Delay,
    /// It is accepted and delivered later.
    Queue,
}

/// What to answer when the store cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreError {
    /// Let everything pass.
    #[default]
    Allow,
    /// Refuse everything.
    Deny,
    /// Count in memory.
    Local,
}

impl Rule {
    /// Whether it is met by whoever leads there, and leaves other limits alone.
    pub(crate) fn is_plain(&self) -> bool {
        self.enabled
            && self.percent_bp >= 10_000
            && self.exempt.is_none()
            && self.replaces.is_empty()
    }

    /// Whether a key belongs to the share that the rule applies to: the same keys always, and of a
    /// larger share all that were in the smaller one.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.percent_bp >= 10_000 || self.share_of(key) < self.percent_bp
    }

    #[inline(never)]
    fn share_of(&self, key: &[u8]) -> u16 {
        use siphasher::sip::SipHasher13;
        use std::hash::Hasher as _;
        // Not secret, but the same in every process; other rules choose other keys.
        let mut hasher = SipHasher13::new();
        hasher.write(self.counter.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(key);
        u16::try_from(hasher.finish() % 10_000).unwrap_or(0)
    }
}
