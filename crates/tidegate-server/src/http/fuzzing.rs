//! The door for those who send rubbish on purpose.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tidegate::rules::{File, Options, Rules};
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter};

use super::check::Deed;
use super::{App, Trusted};
use crate::clock::ServiceClock;
use crate::config::Config;
use crate::drain::Drain;
use crate::service::Service;

const RULES: &str = r#"
domain: d
http:
  - match: { path: "/**" }
    descriptors: [ { ip: "${client_ip}" }, { user: "${header.x-user}" } ]
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 5, unit: second } }
  - { key: user, rate_limit: { requests_per_unit: 5, per: 10s, algorithm: token_bucket } }
"#;

/// Answers the bodies of `/v1/check`, `/v1/explain`, `/v1/reserve` and `/json`.
pub fn http_body(data: &[u8]) {
    static APP: OnceLock<Option<App>> = OnceLock::new();
    let app = APP.get_or_init(|| {
        let rules = Rules::load(&[File { name: "d.yaml", text: RULES }], &Options::default()).rules;
        let clock = ServiceClock::Manual(ManualClock::new());
        let store = MemoryStore::builder().max_keys(10_000).build();
        let limits = RuleLimiter::build(store, clock, rules?, Modes::default()).ok()?;
        let service = Arc::new(Service::new(limits, 0.8));
        Some(App::new(service, Arc::new(Config::default()), Trusted::default(), Drain::default()))
    });
    let Some(app) = app else { return };
    let body = Bytes::copy_from_slice(data);
    for answer in [
        app.check(Deed::Check, None, &body),
        app.check(Deed::Release, None, &body),
        app.reserve(None, &body),
        app.explain_now(&body),
    ] {
        if let Err(problem) = answer {
            let _ = problem.into_response();
        }
    }
    let _ = app.json(&body);
}
