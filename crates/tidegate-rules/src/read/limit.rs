//! A limit: what is written, what the domain's defaults add, and whether it makes sense.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    AlgorithmName, Align, ColdStart, Compare, Lease, LimitError, LimitSpec, Queue, Rate, Refill,
    SoftSpec,
};

use super::map::{Fields, Reader, Replaced};
use crate::diagnostic::At;
use crate::exempt::Exempt;
use crate::field::{self, Shape, UNITS};
use crate::rule::{Excess, OnStoreError, Rule, Unit, Unlimited, Zone};
use crate::yaml::Node;

/// The longest period.
const PERIOD_MAX: Duration = Duration::from_secs(400 * 86_400);

/// What may be said of a limit and of a whole domain.
#[derive(Default)]
pub(crate) struct Common {
    algorithm: Option<AlgorithmName>,
    refill: Option<Refill>,
    align: Option<Align>,
    time_zone: Option<Box<str>>,
    compare: Option<Compare>,
    lease: Option<Lease>,
    soft: Option<SoftSpec>,
    count_rejected: Option<bool>,
    on_store_error: Option<OnStoreError>,
    pub(crate) exempt: Option<Arc<Exempt>>,
    shadow: Option<bool>,
    percent_bp: Option<u16>,
}

/// What a descriptor says of all its limits.
pub(crate) struct Around<'a> {
    /// The way to the descriptor, as people read it.
    pub(crate) id: &'a str,
    /// The same so that no two are alike.
    pub(crate) counter: &'a str,
    pub(crate) shadow: Option<bool>,
    pub(crate) quota: bool,
    pub(crate) enabled: bool,
    pub(crate) percent_bp: Option<u16>,
    pub(crate) exempt: Option<&'a Arc<Exempt>>,
    pub(crate) defaults: &'a Common,
}

/// A limit that was read.
pub(crate) enum Reading {
    Unlimited(Unlimited),
    Limit(Box<Rule>),
}

impl<'t> Reader<'_, 't> {
    /// The fields that limits and defaults have in common.
    ///
    /// Who is exempt from all limits around these is exempt here too.
    pub(crate) fn common(
        &mut self,
        fields: &Fields<'_, 't>,
        shape: &'static Shape,
        exempt_around: Option<&Arc<Exempt>>,
    ) -> Common {
        let algorithm = self.word(fields, shape, "algorithm");
        let refill = self.word(fields, shape, "refill").map(|word| match word {
            "interval" => Refill::Interval,
            "interval_aligned" => Refill::IntervalAligned,
            _ => Refill::Greedy,
        });
        let align = self.word(fields, shape, "align").map(|word| match word {
            "first_request" => Align::FirstRequest,
            _ => Align::Epoch,
        });
        let compare = self.word(fields, shape, "compare").map(|word| match word {
            "exact" => Compare::Exact,
            _ => Compare::Floor,
        });
        let on_store_error = self.word(fields, shape, "on_store_error").map(|word| match word {
            "deny" => OnStoreError::Deny,
            "local" => OnStoreError::Local,
            _ => OnStoreError::Allow,
        });
        if let Some(consistency @ ("leased" | "eventual")) = self.word(fields, shape, "consistency")
        {
            let path = fields.path.key("consistency");
            let place = fields.get("consistency").map_or(fields.place, |node| node.place);
            let at = At::new(place, &path).wide(consistency).hint("leave it out, or write `exact`");
            self.error(at, format!("consistency `{consistency}` is not built yet"));
        }
        Common {
            algorithm: algorithm.and_then(algorithm_of),
            refill,
            align,
            time_zone: self.time_zone(fields),
            compare,
            lease: self.lease(fields),
            soft: self.soft(fields),
            count_rejected: self.flag(fields, "count_rejected"),
            on_store_error,
            exempt: Exempt::within(exempt_around, &self.texts(fields, "exempt")),
            shadow: self.flag(fields, "shadow_mode"),
            percent_bp: self.share(fields),
        }
    }

    fn lease(&mut self, fields: &Fields<'_, 't>) -> Option<Lease> {
        match fields.get("lease")?.scalar().map(|scalar| &*scalar.text) {
            Some("none") => Some(Lease::Unlimited),
            _ => self.duration(fields, "lease").map(Lease::For),
        }
    }

    fn time_zone(&mut self, fields: &Fields<'_, 't>) -> Option<Box<str>> {
        let name = self.text(fields, "time_zone")?;
        if let Err(reason) = (self.options.check_time_zone)(name) {
            let path = fields.path.key("time_zone");
            let place = fields.get("time_zone").map_or(fields.place, |node| node.place);
            let at = At::new(place, &path).wide(name);
            self.error(at, reason);
            return None;
        }
        Some(name.into())
    }

    fn soft(&mut self, fields: &Fields<'_, 't>) -> Option<SoftSpec> {
        let node = fields.get("soft")?;
        let path = fields.path.key("soft");
        let soft = self.fields(node, &field::SOFT, &path)?;
        let (over, span) = (self.percent(&soft, "over"), self.duration(&soft, "for"));
        for needed in ["over", "for"] {
            self.require(&soft, needed, "soft: { over: 20%, for: 30s }");
        }
        Some(SoftSpec { over_bp: over?, span: span? })
    }

    /// A share of keys, in hundredths of a percent.
    pub(crate) fn share(&mut self, fields: &Fields<'_, 't>) -> Option<u16> {
        let found = self.percent(fields, "percent")?;
        let node = fields.get("percent")?;
        let path = fields.path.key("percent");
        let at = At::new(node.place, &path).over(node);
        match u16::try_from(found) {
            Ok(0) => {
                self.warn(at, "`percent` is 0: the limit applies to nobody");
                Some(0)
            }
            Ok(share @ ..=10_000) => Some(share),
            _ => {
                self.error(at, "`percent` is above 100%");
                None
            }
        }
    }

    /// Whether the name of one more limit may be kept. That there is no room is said once.
    fn has_room(&mut self, fields: &Fields<'_, 't>, bytes: usize) -> bool {
        if let Some(left) = self.names.checked_sub(bytes) {
            *self.names = left;
            return true;
        }
        if *self.names > 0 {
            *self.names = 0;
            let at = At::new(fields.place, fields.path).hint("shorten the keys and values above");
            self.error(at, "the names of all limits up to here take more than 256 MiB");
        }
        false
    }

    fn require(&mut self, fields: &Fields<'_, 't>, name: &str, example: &str) {
        if !fields.has(name) {
            let at = At::new(fields.place, fields.path).hint(format!("for example `{example}`"));
            self.error(at, format!("`{name}` is missing"));
        }
    }

    /// One limit. `position` says which of several it is.
    pub(crate) fn limit(
        &mut self,
        fields: &Fields<'_, 't>,
        around: &Around<'_>,
        position: Option<usize>,
    ) -> Option<Reading> {
        let name = self.text(fields, "name").filter(|name| !name.is_empty());
        let replaces = self.replaces(fields, name);
        let id = id_of(around.id, name, position);
        if !self.has_room(fields, id.len() + around.counter.len()) {
            return None;
        }
        let unlimited = self.flag(fields, "unlimited");
        if unlimited.is_none() && fields.has("unlimited") {
            // Whether anything else has to be there cannot be known.
            return None;
        }
        if unlimited == Some(true) {
            self.check_unlimited(fields, position);
            let origin = self.origin(fields.place);
            // One that is turned off sets no limit either, but takes none away.
            let replaces = if around.enabled { replaces } else { Box::default() };
            return Some(Reading::Unlimited(Unlimited { id, replaces, origin }));
        }
        let own = self.common(fields, &field::LIMIT, around.exempt);
        if position.is_none() && fields.has("shadow_mode") {
            let at = At::new(fields.place_of("shadow_mode"), fields.path).wide("shadow_mode");
            let at = at.hint("write it beside `rate_limit`, one level up");
            self.warn(at, "`shadow_mode` inside `rate_limit` is ignored, as at Lyft");
        }
        let shadow = match around.shadow {
            // What a descriptor watches, none of its limits refuses.
            Some(true) => true,
            no => position.and(own.shadow).or(no).or(around.defaults.shadow).unwrap_or(false),
        };
        let algorithm =
            own.algorithm.or(around.defaults.algorithm).unwrap_or(AlgorithmName::FixedWindow);
        let units = self.units(fields);
        let period = self.period(fields, algorithm);
        let cost = self.number(fields, &field::LIMIT, "cost");
        let enabled = self.flag(fields, "enabled").unwrap_or(true);
        let excess = self.word(fields, &field::LIMIT, "excess");
        let (spec, calendar) = self.spec(fields, &own, around, algorithm, units, period)?;
        let limit = match spec.build() {
            Ok(limit) => limit,
            Err(error) => {
                self.limit_error(fields, &error);
                return None;
            }
        };
        let excess = self.excess(fields, &spec, excess);
        Some(Reading::Limit(Box::new(Rule {
            id,
            counter: counter_of(around.counter, name, position),
            name: name.map(Into::into),
            limit,
            requests_per_unit: u32::try_from(units).unwrap_or(u32::MAX),
            unit: period.and_then(Unit::of_length),
            calendar,
            cost: cost.unwrap_or(1),
            shadow,
            quota: around.quota,
            excess,
            on_store_error: own
                .on_store_error
                .or(around.defaults.on_store_error)
                .unwrap_or_default(),
            replaces,
            enabled: enabled && around.enabled,
            percent_bp: (own.percent_bp.or(around.percent_bp))
                .or(around.defaults.percent_bp)
                .unwrap_or(10_000),
            exempt: own.exempt,
            origin: self.origin(fields.place),
        })))
    }

    fn replaces(&mut self, fields: &Fields<'_, 't>, own: Option<&str>) -> Box<[Box<str>]> {
        let mut replaces: Vec<Box<str>> = Vec::new();
        let list = self.list(fields, "replaces");
        let path = fields.path.key("replaces");
        for (index, item) in list.iter().enumerate() {
            let path = path.index(index);
            if !self.is_map(item, &path) {
                continue;
            }
            let Some(entry) = self.fields(item, &field::REPLACES, &path) else { continue };
            let at = At::new(item.place, &path);
            match self.text(&entry, "name").filter(|name| !name.is_empty()) {
                None => self.error(at, "should not have an empty replaces entry"),
                Some(name) if Some(name) == own => {
                    self.error(
                        at.wide(name),
                        "replaces should not contain name of same descriptor",
                    );
                }
                Some(name) => {
                    let origin = self.origin(item.place);
                    let (name, own) = (name.into(), own.map(Into::into));
                    let path = path.to_string();
                    self.replaced.push(Replaced { name, own, origin, path });
                    replaces.push(self.replaced[self.replaced.len() - 1].name.clone());
                }
            }
        }
        replaces.into()
    }

    fn check_unlimited(&mut self, fields: &Fields<'_, 't>, position: Option<usize>) {
        if position.is_some() {
            let at = At::new(fields.place_of("unlimited"), fields.path).wide("unlimited");
            let at = at.hint("write `rate_limit: { unlimited: true }` instead of the list");
            self.error(at, "`unlimited` has no meaning beside other limits");
        }
        // Of the right type, though nobody asks how many.
        self.number(fields, &field::LIMIT, "requests_per_unit");
        for (name, place) in fields.names() {
            if !matches!(name, "unlimited" | "name" | "replaces" | "unit") {
                let at = At::new(place, fields.path).wide(name);
                self.warn(at, format!("`{name}` has no meaning when unlimited"));
            }
        }
        let Some(node) = fields.get("unit") else { return };
        let path = fields.path.key("unit");
        let shown = node.shown();
        let at = At::new(node.place, &path).over(node);
        if Unit::parse(&shown).is_some() {
            self.error(at, "should not specify rate limit unit when unlimited");
        } else {
            self.warn(at, format!("`unit: {shown}` has no meaning when unlimited"));
        }
    }

    fn units(&mut self, fields: &Fields<'_, 't>) -> u64 {
        if !fields.has("requests_per_unit") && !fields.may_hold("requests_per_unit") {
            let at = At::new(fields.place, fields.path);
            let at = at.hint("write `requests_per_unit: 0` if that is meant");
            self.warn(at, "`requests_per_unit` is missing, which is 0 and refuses everything");
        }
        self.number(fields, &field::LIMIT, "requests_per_unit").unwrap_or(0).into()
    }

    /// The period; `None` where there is none or it is wrong.
    fn period(&mut self, fields: &Fields<'_, 't>, algorithm: AlgorithmName) -> Option<Duration> {
        let given = ["unit", "per", "unit_multiplier"].into_iter().find(|name| fields.has(name));
        if algorithm == AlgorithmName::Concurrency {
            if let Some(name) = given {
                let at = At::new(fields.place_of(name), fields.path).wide(name);
                self.error(at, format!("`{name}` has no meaning for `{algorithm}`"));
            }
            return None;
        }
        let multiplier = self.number(fields, &field::LIMIT, "unit_multiplier");
        let period = match (fields.has("unit"), fields.has("per")) {
            (true, true) => {
                let at = At::new(fields.place_of("per"), fields.path).wide("per");
                let at = at.hint("keep `unit`, or `per` for a length that no unit has");
                self.error(at, "`unit` and `per` exclude each other");
                return None;
            }
            (false, true) => {
                if fields.has("unit_multiplier") {
                    let place = fields.place_of("unit_multiplier");
                    let at = At::new(place, fields.path).wide("unit_multiplier");
                    self.error(at, "`unit_multiplier` goes with `unit`, not with `per`");
                }
                self.duration(fields, "per")?
            }
            _ => self.unit(fields)?.length().checked_mul(multiplier.unwrap_or(1))?,
        };
        if period > PERIOD_MAX || period.is_zero() {
            let name = if fields.has("per") { "per" } else { "unit_multiplier" };
            let at = At::new(fields.place_of(name), fields.path).wide(name);
            let message = match period.is_zero() {
                true => "a period of 0 is none".to_owned(),
                false => {
                    format!("the period is {} days; the longest is 400", period.as_secs() / 86_400)
                }
            };
            self.error(at, message);
            return None;
        }
        Some(period)
    }

    fn unit(&mut self, fields: &Fields<'_, 't>) -> Option<Unit> {
        let word = self.text(fields, "unit").unwrap_or_default();
        let unit = Unit::parse(word);
        if unit.is_none() && !fields.may_hold("unit") {
            let path = fields.path.key("unit");
            let at = match fields.get("unit") {
                Some(node) => At::new(node.place, &path).wide(word).suggest(word, UNITS),
                None => At::new(fields.place, &path)
                    .hint("write `unit: minute`, or `per: 30s` for any other length"),
            };
            self.error(at, format!("invalid rate limit unit '{word}'"));
        }
        unit
    }

    /// The limit as the engine wants it. A default that an algorithm does not know is no part of
    /// its limits; a field that is written there is, and will be refused.
    fn spec(
        &mut self,
        fields: &Fields<'_, 't>,
        own: &Common,
        around: &Around<'_>,
        algorithm: AlgorithmName,
        units: u64,
        period: Option<Duration>,
    ) -> Option<(LimitSpec, Option<Zone>)> {
        use AlgorithmName as A;
        let defaults = around.defaults;
        let is = |wanted: AlgorithmName| algorithm == wanted;
        let number =
            |reader: &mut Self, name| reader.number(fields, &field::LIMIT, name).map(u64::from);
        let (burst, initial) = (number(self, "burst"), number(self, "initial"));
        let queue = self.queue(fields);
        let (warm_up, longest_wait) = self.warm_up(fields).unzip();
        // The engine keeps the bound on waiting where queues keep it.
        let queue = queue.or(longest_wait
            .flatten()
            .map(|max_delay| Queue { size: 0, max_delay: Some(max_delay) }));
        let calendar = self.calendar(fields, own, defaults, algorithm, period);
        // What is wrong with a map has been said; the limit is not judged as if it were absent.
        let is_lost = (fields.has("queue") && queue.is_none())
            || (fields.has("warm_up") && warm_up.is_none());
        if is_lost {
            return None;
        }
        let rate = match (is(A::Concurrency), period) {
            (true, _) => Rate::new(units, Duration::ZERO),
            (false, period) => Rate::new(units, period?),
        };
        let soft_fits = queue.is_none() && !is(A::WarmUp) && !is(A::Concurrency);
        let lyft = self.options.lyft_compat && is(A::FixedWindow);
        let counts = own
            .count_rejected
            .or(defaults.count_rejected.filter(|_| is(A::FixedWindow) || is(A::SlidingWindowLog)));
        let align = match calendar {
            Some(_) => Some(Align::Calendar),
            None => own.align.or(defaults.align.filter(|_| is(A::FixedWindow))),
        };
        let spec = LimitSpec {
            burst,
            initial,
            queue,
            warm_up,
            refill: own
                .refill
                .or(defaults.refill.filter(|_| is(A::TokenBucket)))
                .unwrap_or_default(),
            align: align.unwrap_or_default(),
            compare: (own.compare)
                .or(defaults.compare.filter(|_| is(A::SlidingWindowCounter)))
                .unwrap_or_default(),
            lease: own.lease.or(defaults.lease.filter(|_| is(A::Concurrency))),
            soft: own.soft.or(defaults.soft.filter(|_| soft_fits)),
            count_rejected: counts.unwrap_or(lyft),
            ..LimitSpec::new(algorithm, rate)
        };
        Some((spec, calendar))
    }

    fn queue(&mut self, fields: &Fields<'_, 't>) -> Option<Queue> {
        let node = fields.get("queue")?;
        let path = fields.path.key("queue");
        let queue = self.fields(node, &field::QUEUE, &path)?;
        self.require(&queue, "size", "queue: { size: 100, max_delay: 5s }");
        let size = self.number(&queue, &field::QUEUE, "size");
        let max_delay = self.duration(&queue, "max_delay");
        Some(Queue { size: size?.into(), max_delay })
    }

    /// The cold start, and how long a request may wait for it.
    fn warm_up(&mut self, fields: &Fields<'_, 't>) -> Option<(ColdStart, Option<Duration>)> {
        let node = fields.get("warm_up")?;
        let path = fields.path.key("warm_up");
        let warm_up = self.fields(node, &field::WARM_UP, &path)?;
        self.require(&warm_up, "period", "warm_up: { period: 4s, cold_factor: 3 }");
        let period = self.duration(&warm_up, "period");
        let cold_factor = self.number(&warm_up, &field::WARM_UP, "cold_factor");
        let max_delay = self.duration(&warm_up, "max_delay");
        let cold_start =
            ColdStart { period: period?, cold_factor: cold_factor.unwrap_or(3).into() };
        Some((cold_start, max_delay))
    }

    /// The calendar of a limit, where it has one: its own time zone, or that of the domain if the
    /// limit is one that calendars are for.
    fn calendar(
        &mut self,
        fields: &Fields<'_, 't>,
        own: &Common,
        defaults: &Common,
        algorithm: AlgorithmName,
        period: Option<Duration>,
    ) -> Option<Zone> {
        // As written: 24 hours are as long as a day, and are not one of the calendar.
        let written = fields.get("unit").and_then(Node::scalar);
        let unit = written
            .and_then(|word| Unit::parse(&word.text))
            .filter(|unit| period == Some(unit.length()))
            .filter(|unit| matches!(unit, Unit::Day | Unit::Week | Unit::Month | Unit::Year));
        let fits = algorithm == AlgorithmName::FixedWindow && unit.is_some();
        if own.time_zone.is_none() && (!fits || own.align.is_some()) {
            return None;
        }
        let name = own.time_zone.as_ref().or(defaults.time_zone.as_ref())?;
        let place = fields.get("time_zone").map_or(fields.place, |node| node.place);
        let path = fields.path.key("time_zone");
        let at = At::new(place, &path).wide(name);
        if algorithm != AlgorithmName::FixedWindow {
            self.error(at, format!("`time_zone` has no meaning for `{algorithm}`"));
            return None;
        }
        if own.align.is_some() {
            self.error(at, "`time_zone` and `align` exclude each other");
            return None;
        }
        let Some(unit) = unit else {
            // An unknown unit has been reported already.
            if period.is_some() {
                let at = at.hint("a calendar has days, weeks, months and years");
                self.error(
                    at,
                    "`time_zone` needs `unit: day`, `week`, `month` or `year` and no multiplier",
                );
            }
            return None;
        };
        Some(Zone { unit, name: name.clone() })
    }

    fn excess(
        &mut self,
        fields: &Fields<'_, 't>,
        spec: &LimitSpec,
        excess: Option<&'static str>,
    ) -> Excess {
        let place = fields.get("excess").map_or(fields.place, |node| node.place);
        let path = fields.path.key("excess");
        let at = At::new(place, &path).wide(excess.unwrap_or_default());
        let shapes = fields.has("queue") || spec.algorithm == AlgorithmName::WarmUp;
        match excess {
            Some("delay") if !shapes => {
                let at =
                    at.hint("`algorithm: leaky_bucket` with `queue: { size: 100, max_delay: 5s }`");
                self.error(at, "`excess: delay` needs `queue`");
                Excess::Delay
            }
            Some("delay") => Excess::Delay,
            Some("queue") if spec.algorithm == AlgorithmName::Concurrency => {
                self.error(at, "`excess: queue` needs a rate, which `concurrency` has not");
                Excess::Queue
            }
            Some("queue") => Excess::Queue,
            _ => Excess::Reject,
        }
    }

    /// Points at the field that makes a limit impossible.
    fn limit_error(&mut self, fields: &Fields<'_, 't>, error: &LimitError) {
        let name = match error {
            LimitError::NotWith { field, .. }
            | LimitError::Exclude { field, .. }
            | LimitError::Missing { field, .. }
            | LimitError::Zero { field, .. }
            | LimitError::TooSmall { field, .. }
            | LimitError::TooLong { field, .. }
            | LimitError::TooLarge { field, .. } => field,
            LimitError::InitialAboveSize { .. } => "initial",
            LimitError::SoftTooLarge { .. } => "soft",
            _ => "requests_per_unit",
        };
        let name = match name.split('.').next().unwrap_or(name) {
            "period" if fields.has("per") => "per",
            "period" => "unit",
            name => name,
        };
        let path = fields.path.key(name);
        let at = At::new(fields.place_of(name), &path);
        let at = if fields.has(name) { at.wide(name) } else { at };
        let at = match error {
            LimitError::NotWith { field, .. } => match field::LIMIT.field(field) {
                Some(known) if !known.with.is_empty() => {
                    at.hint(format!("`{field}` goes with {}", known.with.replace("` `", "`, `")))
                }
                _ => at,
            },
            LimitError::Missing { field: "warm_up", .. } => {
                at.hint("for example `warm_up: { period: 4s, cold_factor: 3 }`")
            }
            _ => at,
        };
        self.error(at, error.to_string());
    }
}

fn algorithm_of(word: &'static str) -> Option<AlgorithmName> {
    AlgorithmName::ALL.into_iter().find(|name| name.as_str() == word)
}

/// What people call a limit.
fn id_of(way: &str, name: Option<&str>, position: Option<usize>) -> Box<str> {
    match (name, position) {
        (Some(name), _) => name.into(),
        (None, Some(position)) => format!("{way}#{position}").into(),
        (None, None) => way.into(),
    }
}

/// What a store calls it. A limit among several that has a name keeps its counters when the
/// others are put in another order.
fn counter_of(way: &str, name: Option<&str>, position: Option<usize>) -> Box<str> {
    match (name, position) {
        (_, None) => way.into(),
        (Some(name), Some(_)) => format!("{way}@{name}").into(),
        (None, Some(position)) => format!("{way}#{position}").into(),
    }
}
