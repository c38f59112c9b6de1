//! What the server says of itself: health, rules, metrics, and what there is to ask.

use std::fmt::Write as _;

use http::StatusCode;
use serde_json::{Value, json};
use tidegate::rules::{Origin, Rule, Rules};

use super::App;
use super::answer::{JSON, Response, respond};
use super::problem::Problem;
use super::query::parameter;
use super::route::ROUTES;
use crate::metrics::METRICS_TYPE;

/// How many rules are listed at a time.
const RULES_LISTED_MAX: usize = 1000;

const TEXT: &str = "text/plain; charset=utf-8";

const OPENAPI: &str = include_str!("openapi.json");

impl App {
    /// As Lyft's: what load balancers ask.
    pub(crate) fn health(&self) -> Response {
        match self.drain.is_leaving() {
            false => respond(StatusCode::OK, TEXT, "OK"),
            true => respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT, ""),
        }
    }

    pub(crate) fn ready(&self) -> Response {
        match self.drain.is_leaving() {
            false => respond(StatusCode::OK, TEXT, "ready\n"),
            true => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "draining\n"),
        }
    }

    pub(crate) fn metrics(&self) -> Response {
        respond(StatusCode::OK, METRICS_TYPE, self.service.render_metrics())
    }

    /// The rules in force, a page at a time.
    pub(crate) fn rules(&self, query: Option<&str>) -> Result<Response, Problem> {
        let offset = match parameter(query, "offset")? {
            None => 0,
            Some(text) => text
                .parse::<usize>()
                .map_err(|_| Problem::bad(format!("`offset={text}` is not a number")))?,
        };
        let body = self.service.limits().with_rules(|rules| {
            let limited = rules.all().iter().enumerate().map(|(at, rule)| limited(rules, at, rule));
            let unlimited = rules.unlimited().iter().enumerate().map(|(at, rule)| {
                let domain = rules.domain_of_unlimited(at);
                listed(rules, &rule.id, domain, rule.origin, json!({ "unlimited": true }))
            });
            let total = rules.all().len() + rules.unlimited().len();
            let page: Vec<Value> =
                limited.chain(unlimited).skip(offset).take(RULES_LISTED_MAX).collect();
            let end = offset.saturating_add(page.len());
            let next = (end < total).then_some(end);
            json!({ "total": total, "offset": offset, "next_offset": next, "rules": page })
        });
        Ok(respond(StatusCode::OK, JSON, body.to_string()))
    }

    pub(crate) fn openapi(&self) -> Response {
        respond(StatusCode::OK, JSON, OPENAPI)
    }

    pub(crate) fn index(&self) -> Response {
        let mut page = String::from("tidegate: rate limits as a service\n\n");
        for route in ROUTES {
            let methods =
                if route.methods.is_empty() { "any".into() } else { route.methods.join("|") };
            // Writing to a string does not fail.
            let _ = writeln!(page, "{methods:<12} {:<26} {}", route.path, route.help);
        }
        respond(StatusCode::OK, TEXT, page)
    }
}

fn limited(rules: &Rules, at: usize, rule: &Rule) -> Value {
    let more = json!({
        "unlimited": false,
        "limit": rule.limit.to_string(),
        "algorithm": rule.limit.algorithm().as_str(),
        "requests_per_unit": rule.requests_per_unit,
        "unit": rule.unit.map(|unit| unit.as_str()),
        "time_zone": rule.calendar.as_ref().map(|zone| &*zone.name),
        "name": rule.name.as_deref(),
        "cost": rule.cost,
        "shadow": rule.shadow,
        "quota": rule.quota,
        "enabled": rule.enabled,
    });
    listed(rules, &rule.id, rules.domain_of(at), rule.origin, more)
}

fn listed(rules: &Rules, id: &str, domain: &str, origin: Origin, mut more: Value) -> Value {
    more["id"] = id.into();
    more["domain"] = domain.into();
    more["file"] = rules.file(origin).into();
    more["line"] = origin.place.line.into();
    more["column"] = origin.place.column.into();
    more["source"] = rules.source_line(origin).into();
    more
}
