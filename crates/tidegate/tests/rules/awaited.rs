//! Stores that are waited for: asked in every way, and told the same as one that is at hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use proptest::prelude::*;
use tidegate::rules::{Descriptor, Entry, Mapped, Override, PlainRequest, Unit};
use tidegate::{
    Answer, Call, Decision, Exception, Holding, Inherit, Limit, LocalStore as _, ManualClock,
    MemoryError, MemoryStore, Modes, OnError, Op, Outcome, Query, RegisterError, Registered, Retry,
    RuleLimiter, Source, Store, Timestamp, Verdict,
};

use crate::{TestLimiter, rules};

/// A memory store that is waited for, and that may fail: a little of what a store over a network
/// is like.
#[derive(Default)]
struct Far {
    memory: MemoryStore,
    /// Whether it cannot answer, and does as items say.
    is_down: AtomicBool,
    /// Whether the last item of a call is known to refuse, so that nobody is asked.
    knows: AtomicBool,
    under_way: AtomicUsize,
    under_way_most: AtomicUsize,
}

impl Store for Far {
    type Error = MemoryError;

    fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        self.memory.register(id, limit, inherit)
    }

    async fn apply(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, MemoryError> {
        let under_way = self.under_way.fetch_add(1, Relaxed) + 1;
        self.under_way_most.fetch_max(under_way, Relaxed);
        tokio::task::yield_now().await;
        self.under_way.fetch_sub(1, Relaxed);
        if let (true, [before @ .., last]) = (self.knows.load(Relaxed), &mut *answers) {
            for (item, answer) in call.items.iter().zip(before) {
                answer.decision = Decision::unasked(item.limit.limit().limit());
            }
            let wait = Retry::After(Duration::from_secs(1));
            let source = Source::DenialCache;
            let refusal = Decision::without_state(false, 9);
            last.decision = Decision { retry: wait, remaining: 2, source, ..refusal };
            return Ok(Outcome { allowed: false, granted: 0 });
        }
        if !self.is_down.load(Relaxed) {
            return Ok(self.memory.apply_now(call, answers));
        }
        let mut allowed = true;
        for (item, answer) in call.items.iter().zip(answers) {
            let admits = item.on_error == OnError::Allow;
            allowed &= admits;
            answer.decision = match item.on_error {
                OnError::Allow | OnError::Deny => {
                    Decision::without_state(admits, item.limit.limit().limit())
                }
                OnError::Local => Decision {
                    source: Source::Fallback,
                    ..item.limit.limit().peek(None, &tidegate_core::Ask::at(call.now), u64::MAX)
                },
            };
        }
        Ok(Outcome { allowed, granted: if allowed { call.cost } else { 0 } })
    }

    async fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, MemoryError> {
        tokio::task::yield_now().await;
        self.memory.reserve_now(call, answers, id, ttl)
    }

    async fn settle(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, MemoryError> {
        tokio::task::yield_now().await;
        self.memory.settle_now(id, cost, now)
    }

    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp) {
        self.memory.settle_soon(holding, cost, now);
    }
}

type FarLimiter = RuleLimiter<Far, ManualClock>;

fn far(text: &str, modes: Modes) -> FarLimiter {
    let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
    RuleLimiter::build(Far::default(), clock, rules(text), modes).unwrap()
}

const RULES: &str = r#"
domain: d
http:
  - match: { path: "/{user}" }
    descriptors: [ { user: "${path.user}" } ]
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 5, unit: minute, algorithm: token_bucket } }
  - key: both
    rate_limits:
      - { requests_per_unit: 4, unit: minute }
      - { requests_per_unit: 9, unit: hour, algorithm: sliding_window_log }
  - { key: slots, rate_limit: { requests_per_unit: 2, algorithm: concurrency } }
  - { key: quota, quota_mode: true, rate_limit: { requests_per_unit: 3, unit: minute } }
"#;
const KEYS: [&str; 5] = ["user", "both", "slots", "quota", "none"];

/// All that a verdict says.
fn told(verdict: &Verdict) -> String {
    let Verdict { granted, reached, knows_domain, .. } = verdict;
    format!("{granted} {reached:?} {knows_domain} {}", verdict.to_json())
}

/// Something to do with both limiters.
#[derive(Clone, Debug)]
enum Step {
    Ask(Op<'static>, Vec<usize>, u64),
    Http(Op<'static>, u64),
    Release(Vec<usize>),
    Reserve(Vec<usize>, u128, u64),
    Settle(u128, u64),
    Except(usize, bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let keys = || prop::collection::vec(0..KEYS.len(), 1..4);
    let op = || {
        prop::sample::select(vec![
            Op::Check,
            Op::Check,
            Op::Peek,
            Op::UpTo,
            Op::Force,
            Op::Refund,
            Op::Reset,
        ])
    };
    prop_oneof![
        6 => (op(), keys(), 0..4u64).prop_map(|(op, keys, cost)| Step::Ask(op, keys, cost)),
        2 => (op(), 0..4u64).prop_map(|(op, cost)| Step::Http(op, cost)),
        1 => keys().prop_map(Step::Release),
        2 => (keys(), 1..4u128, 0..4u64).prop_map(|(keys, id, cost)| Step::Reserve(keys, id, cost)),
        2 => (1..4u128, 0..4u64).prop_map(|(id, cost)| Step::Settle(id, cost)),
        1 => (0..KEYS.len(), any::<bool>()).prop_map(|(key, blocks)| Step::Except(key, blocks)),
        1 => (0..90u64).prop_map(Step::Wait),
    ]
}

fn with_query<T>(keys: &[usize], cost: u64, ask: impl FnOnce(&Query<'_>) -> T) -> T {
    let entries: Vec<_> = keys.iter().map(|key| [Entry::new(KEYS[*key], "v")]).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
    ask(&Query::new("d", &descriptors).cost(cost).holder(7))
}

/// What each of the two says to a step.
fn both(
    runtime: &tokio::runtime::Runtime,
    (near, far): (&TestLimiter, &FarLimiter),
    step: &Step,
    now: Timestamp,
) -> (String, String) {
    let minute = Duration::from_secs(60);
    match step {
        Step::Ask(op, keys, cost) => with_query(keys, *cost, |query| {
            let answer = runtime.block_on(far.ask_at_async(*op, query, now)).unwrap();
            (told(&near.ask_at(*op, query, now)), told(&answer))
        }),
        Step::Http(op, cost) => {
            let request = PlainRequest::parse("GET", "/v", [("x", "y")], None).unwrap();
            let query = Query::new("d", &[]).cost(*cost);
            let (mut one, mut other) = (Mapped::new(), Mapped::new());
            let answer = far.ask_http_at_async(*op, &query, &request, &mut one, now);
            let answer = runtime.block_on(answer).unwrap();
            (told(&near.ask_http_at(*op, &query, &request, &mut other, now)), told(&answer))
        }
        Step::Release(keys) => with_query(keys, 1, |query| {
            let answer = runtime.block_on(far.release_at_async(query, now)).unwrap();
            (told(&near.release_at(query, now)), told(&answer))
        }),
        Step::Reserve(keys, id, cost) => with_query(keys, *cost, |query| {
            let answer = far.reserve_at_async(query, *id, minute, now);
            let answer = runtime.block_on(answer).unwrap();
            (told(&near.reserve_at(query, *id, minute, now).unwrap()), told(&answer))
        }),
        Step::Settle(id, cost) => {
            let answer = runtime.block_on(far.settle_at_async(*id, *cost, now)).unwrap();
            (near.settle_at(*id, *cost, now).unwrap().to_string(), answer.to_string())
        }
        Step::Except(key, blocks) => {
            let entries = [Entry::new(KEYS[*key], "v")];
            let limit = Override { requests_per_unit: 2, unit: Unit::Minute };
            let exception = if *blocks { Exception::Block } else { Exception::Limit(limit) };
            near.except("d", &entries, exception, minute).unwrap();
            far.except("d", &entries, exception, minute).unwrap();
            Default::default()
        }
        Step::Wait(_) => Default::default(),
    }
}

proptest! {
    #[test]
    fn waited_for_or_not_it_is_the_same(
        steps in prop::collection::vec(step(), 1..40),
        independent in any::<bool>(),
    ) {
        let mut modes = Modes::default();
        modes.independent = independent;
        let (near, far) = (crate::limiter_with(RULES, modes), far(RULES, modes));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut now = Timestamp::from_secs(1_000_000);
        for step in &steps {
            if let Step::Wait(seconds) = step {
                now = now + Duration::from_secs(*seconds);
            }
            let (one, other) = both(&runtime, (&near, &far), step, now);
            prop_assert_eq!(one, other, "{:?}", step);
        }
    }
}

#[tokio::test]
async fn independent_descriptors_are_asked_side_by_side() {
    let mut modes = Modes::default();
    modes.independent = true;
    let limiter = far(RULES, modes);
    let entries = KEYS.map(|key| [Entry::new(key, "v")]);
    let descriptors = entries.each_ref().map(|entries| Descriptor::new(entries));
    let verdict = limiter.ask_async(Op::Check, &Query::new("d", &descriptors)).await.unwrap();
    assert_eq!(verdict.limits.len(), 5, "{}", verdict.to_json());
    assert_eq!(limiter.store().under_way_most.load(Relaxed), 4, "one for each descriptor");

    let limiter = far(RULES, Modes::default());
    assert!(limiter.ask_async(Op::Check, &Query::new("d", &descriptors)).await.unwrap().allowed);
    assert_eq!(limiter.store().under_way_most.load(Relaxed), 1, "all or nothing is one question");
}

#[tokio::test]
async fn a_store_that_cannot_answer_does_as_the_rule_says() {
    let limiter = far(
        "
domain: d
descriptors:
  - { key: open, rate_limit: { requests_per_unit: 5, unit: minute } }
  - { key: closed, rate_limit: { requests_per_unit: 5, unit: minute, on_store_error: deny } }
  - { key: counted, rate_limit: { requests_per_unit: 5, unit: minute, on_store_error: local } }
",
        Modes::default(),
    );
    let ask = async |keys: &[&str]| {
        let entries: Vec<_> = keys.iter().map(|key| [Entry::new(key, "v")]).collect();
        let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
        limiter.ask_async(Op::Check, &Query::new("d", &descriptors)).await.unwrap()
    };
    assert!(!ask(&["closed"]).await.is_unanswered());
    limiter.store().is_down.store(true, Relaxed);
    let open = ask(&["open"]).await;
    assert!(open.allowed && !open.is_unanswered());
    assert_eq!(open.decision.unwrap().source, Source::Fallback);
    let closed = ask(&["closed"]).await;
    assert!(!closed.allowed && closed.is_unanswered());
    assert!(ask(&["open", "closed"]).await.is_unanswered());
    let counted = ask(&["counted"]).await;
    assert!(!counted.allowed && !counted.is_unanswered(), "{}", counted.to_json());
    let headers = tidegate::headers::Headers::of(&closed);
    let wait = headers.iter().find(|(field, _)| field.name() == "retry-after");
    assert_eq!(wait.map(|(_, value)| value), Some("1"));
}

#[tokio::test]
async fn who_was_not_asked_says_nothing_of_what_remains() {
    let limiter = far(RULES, Modes::default());
    limiter.store().knows.store(true, Relaxed);
    let entries = [[Entry::new("user", "v")], [Entry::new("both", "v")]];
    let descriptors = entries.each_ref().map(|entries| Descriptor::new(entries));
    let verdict = limiter.ask_async(Op::Check, &Query::new("d", &descriptors)).await.unwrap();
    assert!(!verdict.allowed && !verdict.is_unanswered());
    let times = r#""retry_after_ns":0,"reset_after_ns":null,"delay_ns":0"#;
    let late = r#""retry_after_ns":1000000000,"reset_after_ns":null,"delay_ns":0"#;
    let rest = r#""soft":false,"shadow":false,"descriptor""#;
    assert_eq!(
        verdict.to_json(),
        format!(
            r#"{{"allowed":false,"limits":[{{"rule":"d.user","allowed":true,"limit":5,{times},{rest}:0}},"#
        ) + &format!(r#"{{"rule":"d.both#0","allowed":true,"limit":4,{times},{rest}:1}},"#)
            + &format!(
                r#"{{"rule":"d.both#1","allowed":false,"limit":9,"remaining":2,{late},{rest}:1}}],"#
            )
            + &format!(r#""remaining":2,{late},"source":"denial_cache"}}"#)
    );
    assert_eq!(verdict.reported().map(|it| it.decision.limit), Some(9));
}

#[tokio::test]
async fn who_stops_waiting_leaves_everything_as_it_was() {
    let limiter = far(RULES, Modes::default());
    let entries = [Entry::new("user", "v")];
    let descriptors = [Descriptor::new(&entries)];
    let query = Query::new("d", &descriptors);
    {
        let mut asked = Box::pin(limiter.ask_async(Op::Check, &query));
        let noop = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert!(asked.as_mut().poll(noop).is_pending());
    }
    let verdict = limiter.ask_async(Op::Peek, &query).await.unwrap();
    assert_eq!(verdict.decision.unwrap().remaining, 5);
    // Rules can be replaced while somebody waits, who then ends by the old ones.
    let mut asked = Box::pin(limiter.ask_async(Op::Check, &query));
    let noop = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(noop).is_pending());
    limiter.replace(rules("domain: other\ndescriptors: []\n")).unwrap();
    assert!(asked.await.unwrap().knows_domain);
    assert!(!limiter.ask_async(Op::Check, &query).await.unwrap().knows_domain);
}
