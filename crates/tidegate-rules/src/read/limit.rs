//! A limit: what is written, what the domain's defaults add, and whether it makes sense.

use std::sync::Arc;

use tidegate_core::{AlgorithmName, Align, Compare, Lease, Refill, SoftSpec};

use super::map::{Fields, Reader, Replaced};
use crate::diagnostic::At;
use crate::exempt::Exempt;
use crate::field::{self, Shape};
use crate::rule::{OnStoreError, Rule, Unit, Unlimited};

/// What may be said of a limit and of a whole domain.
#[derive(Default)]
pub(crate) struct Common {
    pub(super) algorithm: Option<AlgorithmName>,
    pub(super) refill: Option<Refill>,
    pub(super) align: Option<Align>,
    pub(super) time_zone: Option<Box<str>>,
    pub(super) compare: Option<Compare>,
    pub(super) lease: Option<Lease>,
    pub(super) soft: Option<SoftSpec>,
    pub(super) count_rejected: Option<bool>,
    pub(super) on_store_error: Option<OnStoreError>,
    pub(crate) exempt: Option<Arc<Exempt>>,
    pub(super) shadow: Option<bool>,
    pub(super) percent_bp: Option<u16>,
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
    pub(super) fn has_room(&mut self, fields: &Fields<'_, 't>, bytes: usize) -> bool {
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

    pub(super) fn require(&mut self, fields: &Fields<'_, 't>, name: &str, example: &str) {
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
