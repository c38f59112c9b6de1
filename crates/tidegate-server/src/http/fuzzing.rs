//! The door for those who send rubbish on purpose.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::Body as _;
use tidegate::rules::{File, Options, Rules};
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter};
use tidegate_http::Trusted;

use super::App;
use super::answer::Response;
use super::check::Deed;
use super::problem::Problem;
use crate::clock::ServiceClock;
use crate::config::Config;
use crate::drain::Drain;
use crate::service::Service;
use crate::soon::at_once;

const RULES: &str = r#"
domain: d
http:
  - match: { path: "/**" }
    descriptors: [ { ip: "${client_ip}" }, { user: "${header.x-user}" } ]
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 5, unit: second } }
  - { key: user, rate_limit: { requests_per_unit: 5, per: 10s, algorithm: token_bucket } }
"#;

/// Answers the bodies of `/v1/check`, `/v1/release`, `/v1/reserve`, `/v1/explain` and, last, `/json`:
/// a status and a body for each.
pub fn http_body(data: &[u8]) -> Vec<(u16, Bytes)> {
    static APP: OnceLock<Option<App>> = OnceLock::new();
    let app = APP.get_or_init(|| {
        let rules = Rules::load(&[File { name: "d.yaml", text: RULES }], &Options::default()).rules;
        let clock = ServiceClock::Manual(ManualClock::new());
        let store = MemoryStore::builder().max_keys(10_000).build();
        let limits = RuleLimiter::build(store.into(), clock, rules?, Modes::default()).ok()?;
        let service = Arc::new(Service::new(limits, 0.8));
        Some(App::new(service, Arc::new(Config::default()), Trusted::default(), Drain::default()))
    });
    let app = app.as_ref().expect("the rules above can be enforced");
    let body = Bytes::copy_from_slice(data);
    let answers = [
        at_once(app.check(Deed::Check, None, &body)),
        at_once(app.check(Deed::Release, None, &body)),
        at_once(app.reserve(None, &body)),
        app.explain_now(&body),
        Ok(at_once(app.json(&body))),
    ];
    let answers = answers.map(|answer| answer.unwrap_or_else(Problem::into_response));
    answers.map(|answer| (answer.status().as_u16(), whole(answer))).into()
}

/// A body that is all there.
fn whole(response: Response) -> Bytes {
    let mut body = response.into_body();
    let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
    match frame {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    }
}
