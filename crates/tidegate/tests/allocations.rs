//! What a request with rules costs in memory: nothing, on the common path.
#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping")]

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate::rules::{Descriptor, Entry, File, Found, Mapped, Options, PlainRequest, Rules};
use tidegate::{Op, Query, RuleLimiter};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const RULES: &str = r#"
domain: api
http:
  - match: { method: POST, path: "/v1/users/{id}/posts" }
    descriptors: [ { action: post, user: "${path.id}" } ]
  - match: { path: "/**" }
    descriptors: [ { ip: "${client_ip}" } ]
descriptors:
  - key: action
    value: post
    descriptors:
      - key: user
        rate_limit: { requests_per_unit: 1000000, unit: hour, algorithm: token_bucket }
  - key: ip
    rate_limits:
      - { requests_per_unit: 1000000, unit: second, algorithm: token_bucket }
      - { requests_per_unit: 1000000, unit: day }
  - key: path
    value: "/static/*"
    rate_limit: { requests_per_unit: 1000000, unit: minute }
"#;

fn rules() -> Rules {
    let loaded = Rules::load(&[File { name: "rules.yaml", text: RULES }], &Options::default());
    loaded.rules.unwrap()
}

/// How often `work` asks for memory when it is done for the second time.
fn allocations(mut work: impl FnMut()) -> usize {
    work();
    let region = Region::new(ALLOCATOR);
    work();
    region.change().allocations
}

/// One test, since the allocator counts for the whole process.
#[test]
fn a_request_that_has_been_seen_allocates_nothing() {
    let limiter = RuleLimiter::new(rules()).unwrap();
    let rules = rules();
    let post = [Entry::new("action", "post"), Entry::new("user", "0123456789abcdef")];
    let (ip, path) = ([Entry::new("ip", "192.0.2.7")], [Entry::new("path", "/static/logo.svg")]);
    let descriptors = [&post[..], &ip, &path].map(Descriptor::new);

    let mut found = Found::new();
    assert_eq!(allocations(|| rules.find("api", &descriptors, &mut found)), 0, "finding");
    assert_eq!(found.limits.len(), 4);

    let query = Query::new("api", &descriptors);
    assert_eq!(allocations(|| assert!(limiter.check(&query).allowed)), 0, "deciding");

    let one = Query::new("api", &descriptors[..1]);
    assert_eq!(allocations(|| assert!(limiter.check(&one).allowed)), 0, "deciding by one limit");

    let waiting = allocations(|| {
        let asked = pin!(limiter.ask_async(Op::Check, &query));
        let asked = asked.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(asked, Poll::Ready(Ok(verdict)) if verdict.allowed));
    });
    assert_eq!(waiting, 0, "waiting for a store that is at hand");

    let request = PlainRequest::parse(
        "POST",
        "https://example.com/v1/users/7/posts?draft=1",
        [("x-request-id", "1")],
        Some("2001:db8::1".parse().unwrap()),
    );
    let request = request.unwrap();
    let (mut mapped, query) = (Mapped::new(), Query::new("api", &[]));
    let asking = allocations(|| {
        let verdict = limiter.ask_http(Op::Check, &query, &request, &mut mapped);
        assert!(verdict.allowed && verdict.limits.len() == 3);
    });
    assert_eq!(asking, 0, "an HTTP request");
}
