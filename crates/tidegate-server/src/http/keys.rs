//! `/v1/keys`: what a key has used, and exceptions from the rules for it.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tidegate::rules::{Descriptor, Entry, Override, Unit};
use tidegate::{Excepted, Exception, ExceptionKind, Op, Query, Verdict};

use super::App;
use super::answer::{JSON, Response, respond};
use super::asked::Text;
use super::problem::Problem;
use super::query::{descriptor, parameter};
use super::reserve::duration;
use crate::front_end::FrontEnd;
use crate::stores::StoreError;

/// How long an exception lasts at the most.
const EXCEPTION_TIME_MAX: Duration = Duration::from_secs(366 * 86_400);

/// The key that is spoken of.
struct Key {
    domain: String,
    entries: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with `for`")]
struct BlockBody<'a> {
    #[serde(borrow, rename = "for")]
    span: Text<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with `requests_per_unit`, `unit` and `for`")]
struct LimitBody<'a> {
    requests_per_unit: u32,
    #[serde(borrow)]
    unit: Text<'a>,
    #[serde(borrow, rename = "for")]
    span: Text<'a>,
}

impl Key {
    fn entries(&self) -> Vec<Entry<'_>> {
        self.entries.iter().map(|(key, value)| Entry::new(key, value)).collect()
    }
}

impl App {
    /// What every limit on a key says, and which exceptions it has.
    pub(crate) async fn key(&self, query: Option<&str>) -> Result<Response, Problem> {
        let key = self.key_of(query)?;
        let verdict = self.peek(&key).await?;
        Ok(self.show(&key, &verdict))
    }

    /// Forgets what a key has used.
    pub(crate) async fn reset_key(&self, query: Option<&str>) -> Result<Response, Problem> {
        let key = self.key_of(query)?;
        let entries = key.entries();
        let descriptors = [Descriptor::new(&entries)];
        let query = Query::new(&key.domain, &descriptors);
        self.service.ask(FrontEnd::Http, Op::Reset, &query).await?;
        let verdict = self.peek(&key).await?;
        Ok(self.show(&key, &verdict))
    }

    pub(crate) async fn block(
        &self,
        query: Option<&str>,
        body: &Bytes,
    ) -> Result<Response, Problem> {
        let key = self.key_of(query)?;
        let BlockBody { span } = parse(body)?;
        self.except(&key, Exception::Block, &span.0).await
    }

    pub(crate) async fn limit(
        &self,
        query: Option<&str>,
        body: &Bytes,
    ) -> Result<Response, Problem> {
        let key = self.key_of(query)?;
        let LimitBody { requests_per_unit, unit, span } = parse(body)?;
        let Some(unit) = Unit::parse(&unit.0) else {
            let units = Unit::ALL.map(Unit::as_str).join(", ");
            return Err(Problem::bad(format!("`unit` of `{}` is none of {units}", unit.0)));
        };
        let limit = Override { requests_per_unit, unit };
        self.except(&key, Exception::Limit(limit), &span.0).await
    }

    async fn except(
        &self,
        key: &Key,
        exception: Exception,
        span: &str,
    ) -> Result<Response, Problem> {
        let span = duration("for", span)?;
        if span > EXCEPTION_TIME_MAX {
            return Err(Problem::bad("`for`: the most is 366d"));
        }
        self.service.except(&key.domain, &key.entries, exception, span).await?;
        let verdict = self.peek(key).await?;
        Ok(self.show(key, &verdict))
    }

    pub(crate) async fn lift(
        &self,
        query: Option<&str>,
        kind: ExceptionKind,
    ) -> Result<Response, Problem> {
        let key = self.key_of(query)?;
        match self.service.lift(&key.domain, &key.entries, kind).await? {
            true => Ok(self.show(&key, &self.peek(&key).await?)),
            false => Err(Problem::not_found("the key has no such exception")),
        }
    }

    /// All exceptions.
    pub(crate) fn exceptions(&self) -> Response {
        let all: Vec<Value> = self.service.limits().exceptions().iter().map(shown_whole).collect();
        respond(StatusCode::OK, JSON, json!({ "exceptions": all }).to_string())
    }

    fn key_of(&self, query: Option<&str>) -> Result<Key, Problem> {
        let missing = |name: &str| Problem::bad(format!("`?{name}=` is missing"));
        let domain = parameter(query, "domain")?.ok_or_else(|| missing("domain"))?;
        let entries = parameter(query, "descriptor")?.ok_or_else(|| missing("descriptor"))?;
        let entries = descriptor(&entries)?;
        if !self.service.limits().with_rules(|rules| rules.knows(&domain)) {
            return Err(Problem::no_domain(&domain));
        }
        Ok(Key { domain, entries })
    }

    /// What limits say to a key that wants nothing. Looking is no traffic: it shows in no metric.
    async fn peek(&self, key: &Key) -> Result<Verdict, StoreError> {
        let entries = key.entries();
        let descriptors = [Descriptor::new(&entries)];
        let query = Query::new(&key.domain, &descriptors).cost(0);
        self.service.limits().ask_async(Op::Peek, &query).await
    }

    fn show(&self, key: &Key, verdict: &Verdict) -> Response {
        let exceptions = self.service.limits().exceptions_of(&key.domain, &key.entries());
        let exceptions: Vec<Value> = exceptions.iter().map(shown).collect();
        let mut body = json!({
            "domain": key.domain, "descriptor": key.entries, "exceptions": exceptions,
        })
        .to_string();
        let mut rest = String::new();
        verdict.write_json(&mut rest);
        body.pop();
        body.push(',');
        body.push_str(rest.strip_prefix('{').unwrap_or(&rest));
        respond(StatusCode::OK, JSON, body)
    }
}

fn parse<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::json(&error))
}

/// An exception of a key that was named.
fn shown(excepted: &Excepted) -> Value {
    // In the width of all times in answers; no exception lasts for so long.
    let rest = u64::try_from(excepted.rest.as_nanos()).unwrap_or(u64::MAX);
    match excepted.exception {
        Exception::Block => json!({ "exception": "block", "ends_in_ns": rest }),
        Exception::Limit(Override { requests_per_unit, unit }) => json!({
            "exception": "limit", "requests_per_unit": requests_per_unit, "unit": unit.as_str(),
            "ends_in_ns": rest,
        }),
    }
}

fn shown_whole(excepted: &Excepted) -> Value {
    let mut shown = shown(excepted);
    shown["domain"] = excepted.domain.clone().into();
    shown["descriptor"] = json!(excepted.entries);
    shown
}
