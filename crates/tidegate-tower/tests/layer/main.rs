//! The layer before services that are called by hand, by a clock that stands still.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

mod answers;
mod delay;
mod endings;
mod ordering;
mod passing;
mod readiness;
mod snapshots;
mod stores;
mod worked_examples;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use tidegate::rules::{File, Options, Rules};
use tidegate::{Limit, LimitSpec, Limiter, ManualClock, MemoryStore, Modes, RuleLimiter};
use tidegate_tower::{Asked, Gate, LimitBody, RuleGate, TidegateLayer, key};
use tower::{Layer as _, Service, ServiceExt as _};

type Body = Full<Bytes>;
type Answer = Response<LimitBody<Body>>;
type ManualRules = TidegateLayer<RuleGate<MemoryStore, ManualClock>>;

/// A service that counts how often it is called, and answers as it is told.
#[derive(Clone)]
struct Counting {
    calls: Arc<AtomicUsize>,
    answer: fn() -> Response<Body>,
}

impl Counting {
    fn new() -> Self {
        Self::answering(|| Response::new(Body::from("hello")))
    }

    fn answering(answer: fn() -> Response<Body>) -> Self {
        Self { calls: Arc::default(), answer }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Service<Request<Body>> for Counting {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok((self.answer)()))
    }
}

fn limiter(limit: LimitSpec) -> (Limiter<MemoryStore, ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().limit(limit).clock(clock.clone()).build().unwrap();
    (limiter, clock)
}

/// A layer of rules by a clock that is moved by hand.
fn rules(text: &str) -> (ManualRules, ManualClock) {
    let clock = ManualClock::new();
    let loaded = Rules::load(&[File { name: "rules.yaml", text }], &Options::default());
    let rules = loaded.rules.unwrap_or_else(|| panic!("{}", loaded.report));
    let domain = rules.domains().next().unwrap().to_owned();
    let limiter =
        RuleLimiter::build(MemoryStore::new(), clock.clone(), rules, Modes::default()).unwrap();
    (TidegateLayer::rules(limiter, domain), clock)
}

/// A layer of one limit for everybody.
fn limit(
    limit: LimitSpec,
) -> (TidegateLayer<impl Gate<Asked>>, Limiter<MemoryStore, ManualClock>, ManualClock) {
    let (limiter, clock) = limiter(limit);
    (TidegateLayer::new(limiter.clone(), key::everybody()), limiter, clock)
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::default()).unwrap()
}

/// Asks a service behind a layer.
async fn ask<G: Gate<Asked>>(
    layer: &TidegateLayer<G>,
    service: &Counting,
    request: Request<Body>,
) -> Answer {
    layer.layer(service.clone()).oneshot(request).await.unwrap()
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers().get(name).map(|value| value.to_str().unwrap())
}

async fn text(answer: Answer) -> String {
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn who_is_refused_never_reaches_the_service_and_consumes_nothing() {
    let (layer, limiter, _clock) = limit(Limit::per_second(2));
    let service = Counting::new();
    for _ in 0..2 {
        assert_eq!(ask(&layer, &service, get("/")).await.status(), 200);
    }
    let before = limiter.peek(&()).reset_after;
    for _ in 0..5 {
        assert_eq!(ask(&layer, &service, get("/")).await.status(), 429);
    }
    assert_eq!(service.calls(), 2);
    assert_eq!(limiter.peek(&()).reset_after, before);
}

#[tokio::test]
async fn the_body_of_the_service_comes_through() {
    let (layer, ..) = limit(Limit::per_second(2));
    let answer = ask(&layer, &Counting::new(), get("/")).await;
    assert_eq!(text(answer).await, "hello");
}

#[test]
fn futures_are_small() {
    // What has no limits before it has nothing to carry but the service's own future.
    type Future = tidegate_tower::ResponseFuture<Counting, Body>;
    let size = size_of::<Future>() - size_of::<<Counting as Service<Request<Body>>>::Future>();
    assert!(size <= 192, "{size} bytes more than the service's");
    assert!(size_of::<LimitBody<Body>>() <= size_of::<Body>() + 24);
}
