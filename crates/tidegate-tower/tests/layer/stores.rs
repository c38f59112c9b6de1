//! Stores that take their time, and stores that have no answer.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use tidegate::rules::{File, Options, Rules};
use tidegate::{
    Call, Holding, Inherit, Limit, Limiter, LocalStore as _, ManualClock, MemoryError, MemoryStore,
    Modes, OnError, Outcome, RegisterError, Registered, RuleLimiter, Store, Timestamp,
};
use tidegate_tower::{TidegateLayer, key};

use crate::{Body, Counting, ask, get, header, text};

/// Decides when it is asked, and answers a little later or never.
#[derive(Clone)]
struct Remote {
    memory: Arc<MemoryStore>,
    is_up: bool,
}

impl Remote {
    fn new(is_up: bool) -> Self {
        Self { memory: Arc::new(MemoryStore::new()), is_up }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no answer")]
struct NoAnswer;

impl Store for Remote {
    type Error = NoAnswer;

    fn register(
        &self,
        id: &str,
        limit: tidegate::Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        self.memory.register(id, limit, inherit)
    }

    async fn apply(
        &self,
        call: &Call<'_>,
        answers: &mut [tidegate::Answer],
    ) -> Result<Outcome, NoAnswer> {
        tokio::task::yield_now().await;
        match self.is_up {
            true => Ok(self.memory.apply_now(call, answers)),
            false => Err(NoAnswer),
        }
    }

    async fn reserve(
        &self,
        _: &Call<'_>,
        _: &mut [tidegate::Answer],
        _: u128,
        _: Duration,
    ) -> Result<Outcome, NoAnswer> {
        Err(NoAnswer)
    }

    async fn settle(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, NoAnswer> {
        self.memory.settle_now(id, cost, now).map_err(|_: MemoryError| NoAnswer)
    }

    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp) {
        self.memory.settle_soon(holding, cost, now);
    }
}

fn limits(store: Remote, on_error: OnError) -> Limiter<Remote, ManualClock> {
    Limiter::builder()
        .limit(Limit::per_minute(2))
        .on_store_error(on_error)
        .store(store)
        .clock(ManualClock::new())
        .build_on()
        .unwrap()
}

#[tokio::test]
async fn a_store_of_another_machine_is_waited_for() {
    let layer = TidegateLayer::new(limits(Remote::new(true), OnError::Allow), key::everybody());
    let service = Counting::new();
    let mut told = Vec::new();
    for _ in 0..3 {
        let answer = ask(&layer, &service, get("/")).await;
        told.push((
            answer.status().as_u16(),
            header(&answer, "x-ratelimit-remaining").unwrap().to_owned(),
        ));
    }
    let told: Vec<_> = told.iter().map(|(status, left)| (*status, &**left)).collect();
    assert_eq!(told, [(200, "1"), (200, "0"), (429, "0")]);
    assert_eq!(service.calls(), 2);
}

#[tokio::test]
async fn permits_of_such_a_store_come_back() {
    let limiter = Limiter::builder()
        .limit(Limit::concurrency(1))
        .store(Remote::new(true))
        .clock(ManualClock::new())
        .build_on()
        .unwrap();
    let layer = TidegateLayer::new(limiter, key::everybody());
    let service = Counting::new();
    let first = ask(&layer, &service, get("/")).await;
    assert_eq!(ask(&layer, &service, get("/")).await.status(), 429);
    drop(first);
    assert_eq!(ask(&layer, &service, get("/")).await.status(), 200);
}

#[tokio::test]
async fn who_cannot_be_counted_passes_or_is_told_503() {
    let service = Counting::new();
    let open = TidegateLayer::new(limits(Remote::new(false), OnError::Allow), key::everybody());
    assert_eq!(ask(&open, &service, get("/")).await.status(), 200);
    let closed = TidegateLayer::new(limits(Remote::new(false), OnError::Deny), key::everybody());
    let answer = ask(&closed, &service, get("/")).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(header(&answer, "retry-after"), Some("1"));
    assert_eq!(header(&answer, "cache-control"), Some("no-store"));
    assert!(text(answer).await.contains("\"detail\":\"the store of the limits has no answer\""));
    assert_eq!(service.calls(), 1);
    let grpc = Request::post("/a").header("content-type", "application/grpc+proto");
    let answer = ask(&closed, &service, grpc.body(Body::default()).unwrap()).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "grpc-status")), (200, Some("14")));
}

#[tokio::test]
async fn each_rule_says_what_happens_then() {
    let text = "
domain: d
http:
  - { match: { path: /open }, descriptors: [ { open: yes } ] }
  - { match: { path: /closed }, descriptors: [ { closed: yes } ] }
  - { match: { path: /both }, descriptors: [ { open: yes }, { closed: yes } ] }
  - { match: { path: /shadow }, descriptors: [ { shadow: yes } ] }
descriptors:
  - { key: open, rate_limit: { requests_per_unit: 1, unit: hour } }
  - { key: closed, rate_limit: { requests_per_unit: 1, unit: hour, on_store_error: deny } }
  - { key: shadow, shadow_mode: true, rate_limit: { requests_per_unit: 1, unit: hour, on_store_error: deny } }
";
    let loaded = Rules::load(&[File { name: "d.yaml", text }], &Options::default());
    let rules = loaded.rules.unwrap_or_else(|| panic!("{}", loaded.report));
    let clock = ManualClock::new();
    let limiter = RuleLimiter::build(Remote::new(false), clock, rules, Modes::default()).unwrap();
    let layer = TidegateLayer::rules(limiter, "d");
    let service = Counting::new();
    for (path, status) in [("/open", 200), ("/closed", 503), ("/both", 503), ("/shadow", 200)] {
        assert_eq!(ask(&layer, &service, get(path)).await.status(), status, "{path}");
    }
}
