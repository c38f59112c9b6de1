//! `/v1/check` and its like.

use bytes::Bytes;
use http::StatusCode;
use tidegate::rules::Mapped;
use tidegate::{Op, Verdict};

use super::App;
use super::answer::{self, JSON, Response, respond};
use super::asked::{Asked, Questions, What};
use super::problem::Problem;
use super::query::parameter;
use crate::front_end::FrontEnd;

/// What is asked of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Check,
    Peek,
    Refund,
    Release,
}

impl App {
    /// Does something with the limits that requests meet, and answers with what they said.
    pub(crate) async fn check(
        &self,
        deed: Deed,
        query: Option<&str>,
        body: &Bytes,
    ) -> Result<Response, Problem> {
        let questions = Questions::parse(body)?;
        let asked = match questions {
            Questions::One(asked) => asked,
            Questions::Several(checks) => return self.check_all(deed, &checks).await,
        };
        let refused = refused_status(query)?;
        let verdict = self.decide(deed, &asked).await?;
        if !verdict.knows_domain {
            return Err(Problem::no_domain(&asked.domain));
        }
        Ok(answer::verdict(&self.config, &verdict, refused))
    }

    /// Several at once: each by itself, in their order. If something is wrong with one of them,
    /// none is done.
    async fn check_all(&self, deed: Deed, checks: &[Asked<'_>]) -> Result<Response, Problem> {
        let all = || checks.iter().enumerate();
        let unknown = self.service.limits().with_rules(|rules| {
            all().find(|(_, asked)| !rules.knows(&asked.domain)).map(|(index, _)| index)
        });
        if let Some(index) = unknown {
            let problem = Problem::no_domain(&checks[index].domain);
            return Err(problem.within(format_args!("checks[{index}]")));
        }
        if deed == Deed::Release
            && let Some((index, _)) = all().find(|(_, asked)| asked.id.is_none())
        {
            return Err(no_holder().within(format_args!("checks[{index}]")));
        }
        let mut out = String::with_capacity(64 + checks.len() * 256);
        out.push_str("{\"results\":[");
        for (index, asked) in all() {
            if index > 0 {
                out.push(',');
            }
            self.decide(deed, asked).await?.write_json(&mut out);
        }
        out.push_str("]}");
        Ok(respond(StatusCode::OK, JSON, out))
    }

    async fn decide(&self, deed: Deed, asked: &Asked<'_>) -> Result<Verdict, Problem> {
        let op = match deed {
            Deed::Check => Op::Check,
            Deed::Peek => Op::Peek,
            Deed::Refund => Op::Refund,
            Deed::Release if asked.id.is_none() => return Err(no_holder()),
            Deed::Release => return self.release(asked).await,
        };
        Ok(match &asked.what {
            What::Descriptors(listed) => {
                let entries = listed.entries();
                let descriptors = listed.grouped(&entries);
                self.service.ask(FrontEnd::Http, op, &asked.query(&descriptors)).await?
            }
            What::Http(request) => {
                let (query, mut mapped) = (asked.query(&[]), Mapped::new());
                let service = &self.service;
                let asked = service.ask_http(FrontEnd::Http, op, &query, &**request, &mut mapped);
                asked.await?
            }
        })
    }

    async fn release(&self, asked: &Asked<'_>) -> Result<Verdict, Problem> {
        let limits = self.service.limits();
        let now = limits.now();
        Ok(match &asked.what {
            What::Descriptors(listed) => {
                let entries = listed.entries();
                let descriptors = listed.grouped(&entries);
                let query = asked.query(&descriptors);
                limits.release_at_async(&query, now).await?
            }
            What::Http(request) => {
                let (query, mut mapped) = (asked.query(&[]), Mapped::new());
                let released = limits.release_http_at_async(&query, &**request, &mut mapped, now);
                released.await?
            }
        })
    }
}

fn no_holder() -> Problem {
    Problem::bad("`id` is missing: it says whose permits these are")
}

/// What refusals are told by: 429, unless `?status=200` says otherwise.
pub(crate) fn refused_status(query: Option<&str>) -> Result<StatusCode, Problem> {
    if query.is_none() {
        return Ok(StatusCode::TOO_MANY_REQUESTS);
    }
    match parameter(query, "status")?.as_deref() {
        None => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some("200") => Ok(StatusCode::OK),
        Some(other) => Err(Problem::bad(format!("`status={other}`: it can only be 200"))),
    }
}
