//! What a limit counts: how much, in what time, by which algorithm.

use std::time::Duration;

use tidegate_core::{AlgorithmName, Align, ColdStart, LimitError, LimitSpec, Queue, Rate};

use super::limit::{Around, Common};
use super::map::{Fields, Reader};
use crate::diagnostic::At;
use crate::field::{self, UNITS};
use crate::rule::{Excess, Unit, Zone};
use crate::yaml::Node;

/// The longest period.
const PERIOD_MAX: Duration = Duration::from_secs(400 * 86_400);

impl<'t> Reader<'_, 't> {
    pub(super) fn units(&mut self, fields: &Fields<'_, 't>) -> u64 {
        if !fields.has("requests_per_unit") && !fields.may_hold("requests_per_unit") {
            let at = At::new(fields.place, fields.path);
            let at = at.hint("write `requests_per_unit: 0` if that is meant");
            self.warn(at, "`requests_per_unit` is missing, which is 0 and refuses everything");
        }
        self.number(fields, &field::LIMIT, "requests_per_unit").unwrap_or(0).into()
    }

    /// The period; `None` where there is none or it is wrong.
    pub(super) fn period(
        &mut self,
        fields: &Fields<'_, 't>,
        algorithm: AlgorithmName,
    ) -> Option<Duration> {
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

    pub(super) fn unit(&mut self, fields: &Fields<'_, 't>) -> Option<Unit> {
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
    pub(super) fn spec(
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

    pub(super) fn queue(&mut self, fields: &Fields<'_, 't>) -> Option<Queue> {
        let node = fields.get("queue")?;
        let path = fields.path.key("queue");
        let queue = self.fields(node, &field::QUEUE, &path)?;
        self.require(&queue, "size", "queue: { size: 100, max_delay: 5s }");
        let size = self.number(&queue, &field::QUEUE, "size");
        let max_delay = self.duration(&queue, "max_delay");
        Some(Queue { size: size?.into(), max_delay })
    }

    /// The cold start, and how long a request may wait for it.
    pub(super) fn warm_up(
        &mut self,
        fields: &Fields<'_, 't>,
    ) -> Option<(ColdStart, Option<Duration>)> {
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
    pub(super) fn calendar(
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

    pub(super) fn excess(
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
    pub(super) fn limit_error(&mut self, fields: &Fields<'_, 't>, error: &LimitError) {
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
