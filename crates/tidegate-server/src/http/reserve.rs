//! Reservations: units that are taken now and settled once the real cost is known.

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use tidegate::holder_named;

use super::App;
use super::answer::{self, JSON, Response, respond};
use super::asked::{Asked, Questions, What};
use super::check::refused_status;
use super::problem::Problem;
use crate::front_end::FrontEnd;

/// How long reservations last where nobody says.
const TTL: Duration = Duration::from_secs(60);
/// How long they last at the most.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// What a reservation came to in the end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with `cost`")]
struct Settled {
    cost: u64,
}

impl App {
    pub(crate) async fn reserve(
        &self,
        query: Option<&str>,
        body: &Bytes,
    ) -> Result<Response, Problem> {
        let mut asked = Questions::parse(body)?.only()?;
        let refused = refused_status(query)?;
        let ttl = ttl(&asked)?;
        let has_costs = matches!(&asked.what, What::Descriptors(listed) if listed.has_costs());
        if has_costs && asked.cost != 1 {
            let detail = "a reservation is settled by one cost: give it for the whole or for \
                          descriptors, and not for both";
            return Err(Problem::bad(detail));
        }
        let id = match asked.id.take() {
            Some(id) => id.into_owned(),
            None => random_id()?,
        };
        asked.id = Some(id.clone().into());
        let name = holder_named(&id);
        let verdict = match &asked.what {
            What::Descriptors(listed) => {
                let entries = listed.entries();
                let descriptors = listed.grouped(&entries);
                let query = asked.query(&descriptors);
                self.service.reserve(FrontEnd::Http, &query, name, ttl).await?
            }
            What::Http(request) => {
                let query = asked.query(&[]);
                self.service.reserve_http(FrontEnd::Http, &query, &**request, name, ttl).await?
            }
        };
        if !verdict.knows_domain {
            return Err(Problem::no_domain(&asked.domain));
        }
        if !verdict.allowed {
            return Ok(answer::verdict(&self.config, &verdict, refused));
        }
        let mut json = String::with_capacity(512);
        json.push_str("{\"id\":");
        json.push_str(&serde_json::Value::from(id).to_string());
        // Writing to a string does not fail.
        let _ = write!(json, ",\"ttl_ns\":{},", ttl.as_nanos());
        let mut rest = String::new();
        verdict.write_json(&mut rest);
        json.push_str(rest.strip_prefix('{').unwrap_or(&rest));
        Ok(answer::with_headers(&self.config, &verdict, StatusCode::OK, JSON, json))
    }

    pub(crate) async fn settle(&self, id: &str, body: &Bytes) -> Result<Response, Problem> {
        let Settled { cost } =
            serde_json::from_slice(body).map_err(|error| Problem::json(&error))?;
        self.end_reservation(id, cost).await
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<Response, Problem> {
        self.end_reservation(id, 0).await
    }

    async fn end_reservation(&self, id: &str, cost: u64) -> Result<Response, Problem> {
        match self.service.settle(holder_named(id), cost).await? {
            true => {
                let body = serde_json::json!({ "id": id, "settled": true, "cost": cost });
                Ok(respond(StatusCode::OK, JSON, body.to_string()))
            }
            false => Err(Problem::not_found(format!(
                "there is no reservation `{id}`: it was never made, has ended, or is past its ttl"
            ))),
        }
    }
}

fn ttl(asked: &Asked<'_>) -> Result<Duration, Problem> {
    let Some(text) = &asked.ttl else { return Ok(TTL) };
    let ttl = duration("ttl", text)?;
    match ttl <= TTL_MAX {
        true => Ok(ttl),
        false => Err(Problem::bad(format!("`ttl` of {text}: the most is 1d"))),
    }
}

/// A duration as in rules, longer than none.
pub(crate) fn duration(name: &str, text: &str) -> Result<Duration, Problem> {
    let parsed = tidegate::parse_duration(text).filter(|it| !it.is_zero());
    parsed.ok_or_else(|| {
        let detail =
            format!("`{name}` of `{text}` is not a duration such as 500ms, 30s, 5m, 1h or 7d");
        Problem::bad(detail)
    })
}

/// An id that nobody can guess, so that nobody settles what is another's.
fn random_id() -> Result<String, Problem> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let detail = format!("there are no random numbers: {error}");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
