//! `/v1/explain`: which limits a request meets, and why.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::App;
use super::answer::{JSON, Response, respond};
use super::asked::{Questions, What};
use super::problem::Problem;

impl App {
    /// In a thread that may take its time: every rule is looked at.
    pub(crate) async fn explain(self: &Arc<Self>, body: Bytes) -> Result<Response, Problem> {
        let app = Arc::clone(self);
        let explained = tokio::task::spawn_blocking(move || app.explain_now(&body)).await;
        explained.unwrap_or_else(|_| {
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the explanation did not end"))
        })
    }

    pub(super) fn explain_now(&self, body: &Bytes) -> Result<Response, Problem> {
        let asked = Questions::parse(body)?.only()?;
        let limits = self.service.limits();
        if !limits.with_rules(|rules| rules.knows(&asked.domain)) {
            return Err(Problem::no_domain(&asked.domain));
        }
        let explained = match &asked.what {
            What::Descriptors(listed) => {
                limits.explain(&asked.query(&listed.grouped(&listed.entries())))
            }
            What::Http(request) => limits.explain_http(&asked.query(&[]), &**request),
        };
        let explained = explained.map_err(|error| Problem::bad(error.to_string()))?;
        Ok(respond(StatusCode::OK, JSON, explained.to_json()))
    }
}
