//! Calls over several slots, with every part in a slot of its own, on one real Redis.

#[path = "../../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Compare, Inherit, Limit, LimitSpec, Rate, Refill, Timestamp};
use tidegate_store::{
    Answer, Call, Holding, Item, Mode, Op, Outcome, RegisterError, Registered, Store, conformance,
};

use self::support::Server;
use super::plan::Plan;
use super::{APART, Engine};
use crate::client::{Client, ClientOptions};
use crate::script::{SCRIPT, ScriptOp, probe};
use crate::stats::Stats;
use crate::store::{RedisError, TimeSource};
use crate::tls::TlsFiles;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

/// A store that asks for every part by itself.
struct Apart(Engine);

impl Apart {
    fn open(server: &Server) -> Self {
        let stats: Arc<Stats> = Arc::default();
        let options = ClientOptions {
            deadline: Duration::from_secs(5),
            in_flight_max: 10_000,
            script: SCRIPT,
            probe,
            prefix: "tg".to_owned(),
            tls: TlsFiles::default(),
            sentinel_username: None,
            sentinel_password: None,
        };
        let target = server.url().parse().unwrap();
        let client = Client::open(target, options, Arc::clone(&stats)).unwrap();
        let engine = Engine::new(client, "tg".to_owned(), TimeSource::Caller, stats);
        Self(Engine { apart: true, ..engine })
    }

    fn limit(&self, id: &str, spec: LimitSpec) -> Arc<Registered> {
        self.register(id, spec.build().unwrap(), Inherit::Used).unwrap()
    }

    async fn ask(
        &self,
        op: Op<'_>,
        items: &[Item<'_>],
        cost: u64,
        holder: u128,
    ) -> (Outcome, Vec<Answer>) {
        let mut answers = vec![Answer::default(); items.len()];
        let call = Call::new(op, items, cost, NOW).held_by(holder);
        let outcome = self.apply(&call, &mut answers).await.unwrap();
        (outcome, answers)
    }

    async fn remaining(&self, item: Item<'_>) -> u64 {
        self.ask(Op::Peek, &[item], 0, 99).await.1[0].decision.remaining
    }
}

impl Store for Apart {
    type Error = RedisError;

    fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        let attached = Engine::attach(&limit)
            .map_err(|why| RegisterError::Unfit { id: id.to_owned(), why })?;
        Ok(Arc::new(Registered::with(id, limit, inherit, attached)))
    }

    async fn apply(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, RedisError> {
        self.0.apply(call, answers, &mut SmallVec::new()).await
    }

    async fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, RedisError> {
        self.0.reserve(call, answers, id, ttl).await
    }

    async fn settle(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, RedisError> {
        self.0.settle(id, cost, now).await.map(|keys| keys.is_some())
    }

    fn settle_soon(&self, _: Holding, _: u64, _: Timestamp) {}
}

/// Limits of ten of every algorithm.
fn tens() -> Vec<(&'static str, LimitSpec)> {
    let rate = Rate::per_minute(10);
    vec![
        ("bucket", Limit::token_bucket(rate)),
        ("odd bucket", Limit::token_bucket(Rate::new(7, Duration::from_secs(13))).burst(10)),
        ("initial", Limit::token_bucket(rate).burst(12).initial(10)),
        ("soft bucket", Limit::token_bucket(rate).soft(20, Duration::from_secs(5))),
        ("queue", Limit::leaky_queue(rate, 9)),
        ("interval", Limit::token_bucket(rate).refill(Refill::Interval)),
        ("window", Limit::fixed_window(rate)),
        ("counter", Limit::sliding_counter(rate)),
        ("exact counter", Limit::sliding_counter(rate).compare(Compare::Exact)),
        ("log", Limit::sliding_log(rate)),
        ("permits", Limit::concurrency(10)),
        ("warm-up", Limit::warm_up(rate, Duration::from_secs(9))),
    ]
}

/// If nobody interferes, a request over several slots is like one over a single slot: answers, and
/// what is left behind by those that are refused, are exactly the same.
#[tokio::test(flavor = "multi_thread")]
async fn slots_apart_conform() {
    let server = Server::redis();
    let store = Apart::open(&server);
    conformance::all(&store).await;
    let stats = store.0.stats.read();
    assert_eq!((stats.disagreements, stats.given_up), (0, 0));
    assert!(stats.compensations > 100, "{}", stats.compensations);
}

/// Somebody else takes between the taking and its being taken back: what is left is then what it
/// would be had the refused request never been, or less, but never more.
#[tokio::test(flavor = "multi_thread")]
async fn interference_never_mints() {
    let server = Server::redis();
    let store = Apart::open(&server);
    let full = store.limit("full", Limit::fixed_window(Rate::per_minute(1)));
    let full = Item::new(b"full", &full);
    assert!(store.ask(Op::Check, &[full], 1, 1).await.0.allowed);
    for (name, spec) in tens() {
        for (first, refused, between) in [(0, 3, 2), (2, 3, 4), (4, 1, 1), (1, 5, 0)] {
            let limit = store.limit(&format!("{name} {first} {refused} {between}"), spec);
            let item = Item::new(b"key", &limit);
            store.ask(Op::Check, &[item], first, 1).await;
            let before = store.remaining(item).await;

            // What a refused check does, step by step.
            let items = [item, full];
            let call = Call::new(Op::Check, &items, refused, NOW).held_by(2);
            let plan = Plan::new(&call, false, store.0.client.deadline()).unwrap();
            let slots = store.0.slots(&plan, ScriptOp::Check);
            let mut found = store.0.blocked(&plan, NOW);
            for of_slot in store.0.ask_apart(&plan, &slots, ScriptOp::Check, APART, NOW).await {
                of_slot.unwrap().into_iter().for_each(|(place, one)| found[place] = one);
            }
            assert_eq!([found[0].fits, found[1].fits], [true, false], "{name}");
            store.ask(Op::Check, &[item], between, 3).await;
            store.0.take_back(&plan, &slots, &found, &[0, 1], NOW, 0).unwrap().await.unwrap();

            let left = store.remaining(item).await;
            let due = match name {
                // It has no level; what was promised to others stays promised.
                "warm-up" => before,
                _ => before - between,
            };
            assert!(left <= due, "{name}: {left} left of {due}");
            // A queue gives back its last slot only; everything else can tell takings apart.
            let exact = name != "queue" || between == 0;
            assert!(!exact || left == due, "{name}, {between} in between: {left} left of {due}");
        }
    }
}

/// Many at once, most of them refused because of another slot: admitted is never more than the limit,
/// and when all is quiet, what is left is the rest.
#[tokio::test(flavor = "multi_thread")]
async fn refused_requests_leave_nothing_behind() {
    let server = Server::redis();
    let store = Arc::new(Apart::open(&server));
    let full = store.limit("full", Limit::fixed_window(Rate::per_minute(1)));
    assert!(store.ask(Op::Check, &[Item::new(b"full", &full)], 1, 1).await.0.allowed);
    for (name, spec) in tens() {
        if name == "queue" || name == "warm-up" {
            // What is behind a slot in a queue keeps it in place.
            continue;
        }
        let limit = store.limit(name, spec);
        let admitted = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..24u64)
            .map(|task| {
                let (store, full) = (Arc::clone(&store), Arc::clone(&full));
                let (limit, admitted) = (Arc::clone(&limit), Arc::clone(&admitted));
                tokio::spawn(async move {
                    for round in 0..6 {
                        let item = Item::new(b"key", &limit);
                        let holder = u128::from(task * 100 + round);
                        let refused = task % 3 != 0;
                        let mode = if refused { Mode::Enforce } else { Mode::Shadow };
                        let other = Item { mode, ..Item::new(b"full", &full) };
                        let (outcome, _) = store.ask(Op::Check, &[item, other], 1, holder).await;
                        assert!(!(refused && outcome.allowed));
                        admitted.fetch_add(u64::from(outcome.allowed), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let admitted = admitted.load(Ordering::Relaxed);
        let most = if name == "soft bucket" { 12 } else { 10 };
        assert!(admitted <= most, "{name}: {admitted}");
        let item = Item::new(b"key", &limit);
        let left = store.remaining(item).await;
        let limit = if name == "initial" { 10 } else { limit.limit().limit() };
        assert_eq!(left, limit.saturating_sub(admitted), "{name}: {admitted} admitted");
    }
    assert_eq!(store.0.stats.read().given_up, 0);
}
