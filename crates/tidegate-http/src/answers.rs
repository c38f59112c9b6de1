//! What a front end was told about answers: what is said of limits and how, which requests are let
//! through without asking, and what answers change of what was counted.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{Response, StatusCode, response};
use tidegate::headers::{EXPOSED, Field, Form, ResetForm};
use tidegate::{Held, Keep, Timestamp, Verdict};

use crate::asked::Asked;
use crate::gate::Asking;

type Shared<F> = Option<Arc<F>>;
type ChangeRefusal = dyn Fn(&Verdict, &mut Response<Bytes>) + Send + Sync;

/// How requests are asked about, and how they are answered.
///
/// ```
/// use http::HeaderName;
/// use tidegate::headers::Field;
/// use tidegate_http::Answers;
///
/// let mut answers = Answers::default();
/// answers.exempt_paths.push("/healthz".into());
/// answers.free_statuses.push(500..=599);
/// answers
///     .rename(Field::Limit, HeaderName::from_static("x-rate-limit-limit"))
///     .leave_out(Field::XRetryAfter);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Answers {
    /// Whether answers to those who are admitted carry the headers of limits too.
    pub on_allowed: bool,
    /// Whether `X-RateLimit-Reset` is a time since 1970, as GitHub has it, instead of seconds from now.
    pub reset_as_epoch: bool,
    /// Refused clients are told to come back up to so many seconds later, at random, so that they do not
    /// all come back together.
    pub jitter_seconds: u64,
    /// The status of refusals. What nobody could decide on is 503 in any case, and gRPC has statuses of
    /// its own.
    pub refused_status: StatusCode,
    /// The body of refusals; a problem as JSON if `None`.
    pub refused_body: Option<RefusedBody>,
    /// Whether scripts of other origins may see the headers: `Access-Control-Expose-Headers` on answers
    /// to requests with an `Origin`.
    pub expose: bool,
    /// Whether the preflight requests of browsers are let through without asking: a script cannot handle
    /// their refusal.
    pub exempt_preflight: bool,
    /// Paths that are let through without asking, such as `/healthz`.
    pub exempt_paths: Vec<String>,
    /// What a request costs, as long as its answer says nothing else. Rules that give a cost themselves
    /// have the last word.
    pub cost: u64,
    /// The header in which an answer says what the request really cost: what was taken before is then
    /// settled at that. Without the header, or with something that is no number, it stays.
    pub cost_header: Option<HeaderName>,
    /// Answers with these statuses give back what their requests took.
    pub free_statuses: Vec<RangeInclusive<u16>>,
    /// The name of each header, at the place of its number; those without are not sent.
    names: [Option<HeaderName>; Field::ALL.len()],
    /// What scripts are shown.
    exposed: HeaderValue,
    on_refusal: Shared<ChangeRefusal>,
    exempts: Shared<dyn Fn(&Asked) -> bool + Send + Sync>,
    cost_of: Shared<dyn Fn(&Asked) -> u64 + Send + Sync>,
    refunds: Shared<dyn Fn(&response::Parts) -> bool + Send + Sync>,
}

/// The body of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedBody {
    /// What it is, such as `text/plain`.
    pub content_type: HeaderValue,
    /// What it says.
    pub text: Bytes,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            on_allowed: true,
            reset_as_epoch: false,
            jitter_seconds: 0,
            refused_status: StatusCode::TOO_MANY_REQUESTS,
            refused_body: None,
            expose: false,
            exempt_preflight: false,
            exempt_paths: Vec::new(),
            cost: 1,
            cost_header: None,
            free_statuses: Vec::new(),
            names: Field::ALL.map(|field| Some(HeaderName::from_static(field.name()))),
            exposed: HeaderValue::from_static(EXPOSED),
            on_refusal: None,
            exempts: None,
            cost_of: None,
            refunds: None,
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers")
            .field("on_allowed", &self.on_allowed)
            .field("refused_status", &self.refused_status)
            .field("exempt_paths", &self.exempt_paths)
            .field("cost", &self.cost)
            .field("cost_header", &self.cost_header)
            .field("free_statuses", &self.free_statuses)
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

/// What is told otherwise.
impl Answers {
    /// Sends a header under another name.
    pub fn rename(&mut self, field: Field, name: HeaderName) -> &mut Self {
        self.names[field as usize] = Some(name);
        self.expose_names()
    }

    /// Does not send a header.
    pub fn leave_out(&mut self, field: Field) -> &mut Self {
        self.names[field as usize] = None;
        self.expose_names()
    }

    /// Changes refusals before they are sent: another body, more headers. Those of gRPC are left as they
    /// are.
    pub fn on_refusal(
        &mut self,
        change: impl Fn(&Verdict, &mut Response<Bytes>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_refusal = Some(Arc::new(change));
        self
    }

    /// Lets requests through without asking that a test is true of.
    pub fn exempt_if(
        &mut self,
        test: impl Fn(&Asked) -> bool + Send + Sync + 'static,
    ) -> &mut Self {
        self.exempts = Some(Arc::new(test));
        self
    }

    /// What a request costs, instead of [`cost`](Self::cost).
    pub fn cost_of(&mut self, cost: impl Fn(&Asked) -> u64 + Send + Sync + 'static) -> &mut Self {
        self.cost_of = Some(Arc::new(cost));
        self
    }

    /// Gives back what a request took if a test is true of its answer.
    pub fn refund_if(
        &mut self,
        test: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> &mut Self {
        self.refunds = Some(Arc::new(test));
        self
    }

    /// Brings what scripts are shown to the names that are sent.
    fn expose_names(&mut self) -> &mut Self {
        let shown = Field::ALL.into_iter().filter(|field| *field != Field::CacheControl);
        let names: Vec<&str> = shown.filter_map(|field| Some(self.name(field)?.as_str())).collect();
        // Names of headers are visible ASCII.
        self.exposed =
            HeaderValue::try_from(names.join(", ")).unwrap_or(HeaderValue::from_static(""));
        self
    }
}

/// What front ends ask.
impl Answers {
    /// The name of a header; `None` if it is not sent.
    pub fn name(&self, field: Field) -> Option<&HeaderName> {
        self.names[field as usize].as_ref()
    }

    /// Whether nobody is asked about a request.
    pub fn exempts(&self, asked: &Asked) -> bool {
        (self.exempt_preflight && asked.is_preflight())
            || self.exempt_paths.iter().any(|path| path == asked.parts.uri.path())
            || self.exempts.as_ref().is_some_and(|exempts| exempts(asked))
    }

    /// How a request is asked about.
    pub fn asking(&self, asked: &Asked) -> Asking {
        let cost = self.cost_of.as_ref().map_or(self.cost, |cost| cost(asked));
        let may_come_back =
            self.cost_header.is_some() || self.refunds.is_some() || !self.free_statuses.is_empty();
        Asking::new(cost, if may_come_back { Keep::All } else { Keep::Needed })
    }

    /// Brings what was counted to what the answer says of its cost: where the rules say how, as they say.
    /// The answer may as well be the front end's own, where it could not ask anybody.
    pub fn settle(&self, held: &mut Held, answer: &response::Parts) {
        let status = answer.status.as_u16();
        held.settle_each(|own| match own {
            Some(own) => own.cost(status, |name| answer.headers.get(name)?.to_str().ok()),
            None => self.cost_by(answer),
        });
    }

    /// What a request has cost that the rules say nothing of; `None` if what was counted stays.
    fn cost_by(&self, answer: &response::Parts) -> Option<u64> {
        let status = answer.status.as_u16();
        let is_free = self.free_statuses.iter().any(|statuses| statuses.contains(&status))
            || self.refunds.as_ref().is_some_and(|refunds| refunds(answer));
        if is_free {
            return Some(0);
        }
        let told = answer.headers.get(self.cost_header.as_ref()?)?;
        told.to_str().ok()?.trim().parse().ok()
    }

    /// How an answer is told that was decided at a time.
    pub(crate) fn form(&self, now: Timestamp) -> Form {
        let reset = match self.reset_as_epoch {
            true => ResetForm::Epoch(now),
            false => ResetForm::Delta,
        };
        Form::default().reset(reset).later(jitter(self.jitter_seconds))
    }

    /// Whether those who are refused for the same reason within a second are told the same.
    pub(crate) fn tells_all_the_same(&self) -> bool {
        !self.reset_as_epoch && self.jitter_seconds == 0 && self.on_refusal.is_none()
    }

    /// What scripts are shown, if this request may be of one.
    pub(crate) fn exposes(&self, asked: &Asked) -> bool {
        self.expose && asked.is_of_script()
    }

    pub(crate) fn exposed(&self) -> &HeaderValue {
        &self.exposed
    }

    /// Lets the program change a refusal.
    pub(crate) fn change(&self, verdict: &Verdict, refusal: &mut Response<Bytes>) {
        if let Some(change) = &self.on_refusal {
            change(verdict, refusal);
        }
    }
}

/// Up to so many seconds, at random.
fn jitter(most: u64) -> u64 {
    if most == 0 {
        return 0;
    }
    // Without random numbers there is no jitter, which is only less good.
    let random = getrandom::u64().unwrap_or(0);
    ((u128::from(random) * (u128::from(most) + 1)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gate as _, KeyGate, key};
    use tidegate::{Limit, Limiter, ManualClock, Rate};

    #[test]
    fn scripts_are_shown_the_names_that_are_sent() {
        let mut answers = Answers::default();
        let mut names: Vec<_> = EXPOSED.split(", ").collect();
        names.sort_unstable();
        let sorted = |answers: &Answers| {
            let mut names: Vec<String> =
                answers.exposed.to_str().unwrap().split(", ").map(str::to_owned).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(sorted(&answers), names);
        answers.rename(Field::Limit, HeaderName::from_static("x-ratelimit-limit"));
        assert_eq!(sorted(&answers), names);
        for field in Field::ALL {
            answers.leave_out(field);
        }
        answers.rename(Field::Limit, HeaderName::from_static("x-own"));
        assert_eq!(answers.exposed, "x-own");
    }

    #[test]
    fn what_an_answer_costs_is_said_by_its_status_and_its_header() {
        let mut answers = Answers {
            cost: 10,
            cost_header: Some(HeaderName::from_static("x-cost")),
            free_statuses: vec![404..=404, 500..=599],
            ..Answers::default()
        };
        answers.refund_if(|answer| answer.headers.contains_key("x-free"));
        for (status, header, left) in [
            (200, ("x-cost", "3"), 97),
            (200, ("x-cost", " 25 "), 75),
            (200, ("x-cost", "much"), 90),
            (200, ("x-cost", "-1"), 90),
            (200, ("x-other", "3"), 90),
            (200, ("x-free", "yes"), 100),
            (404, ("x-cost", "3"), 100),
            (405, ("x-cost", "3"), 97),
            (500, ("x-other", "3"), 100),
            (599, ("x-other", "3"), 100),
        ] {
            let clock = ManualClock::new();
            let limit = Limit::fixed_window(Rate::per_hour(100));
            let limiter = Limiter::builder().limit(limit).clock(clock).build().unwrap();
            let gate = KeyGate::new(limiter, key::everybody());
            let asked = Asked::new(http::Request::new(()).into_parts().0, None);
            let asking = answers.asking(&asked);
            let held = gate.admit_at_once(&asked, asking, |admission| admission.held.take());
            let mut held = held.flatten().unwrap();
            let answer = Response::builder().status(status).header(header.0, header.1);
            answers.settle(&mut held, &answer.body(()).unwrap().into_parts().0);
            drop(held);
            assert_eq!(gate.limiter().peek(&()).remaining, left, "{status} {header:?}");
        }
    }

    #[test]
    fn what_may_come_back_is_kept_only_where_something_may() {
        let asked = Asked::new(http::Request::new(()).into_parts().0, None);
        let keep = |change: fn(&mut Answers)| {
            let mut answers = Answers::default();
            change(&mut answers);
            answers.asking(&asked).keep
        };
        assert_eq!(keep(|_| ()), Keep::Needed);
        assert_eq!(keep(|it| it.free_statuses.push(500..=599)), Keep::All);
        assert_eq!(keep(|it| it.cost_header = Some(HeaderName::from_static("a"))), Keep::All);
        assert_eq!(keep(|it| _ = it.refund_if(|_| false)), Keep::All);
    }
}
