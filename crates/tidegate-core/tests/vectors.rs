//! The worked vectors, step by step: every one must come out to the nanosecond.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

use std::time::Duration;

use serde::Deserialize;
use tidegate_core::{
    Action, AlgorithmName, Align, Ask, Compare, Decision, Inherit, Limit, LimitSpec, Rate, Refill,
    Retry, State, Timestamp, join,
};

#[derive(Deserialize)]
struct File {
    count: usize,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    algorithm: String,
    params: Params,
    steps: Vec<Step>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Params {
    limit: Option<u64>,
    capacity: Option<u64>,
    burst: Option<u64>,
    refill_tokens: Option<u64>,
    refill_period_ns: Option<u64>,
    refill: Option<String>,
    leak_units: Option<u64>,
    leak_period_ns: Option<u64>,
    rate_units: Option<u64>,
    rate_period_ns: Option<u64>,
    window_ns: Option<u64>,
    // Absent: aligned to the epoch for windows; null: to the first use.
    #[serde(default, deserialize_with = "present")]
    anchor_ns: Option<Option<u64>>,
    initial: Option<u64>,
    start_ns: Option<u64>,
    queue: Option<u64>,
    max_delay_ns: Option<u64>,
    #[serde(default)]
    count_rejected: bool,
    #[serde(default)]
    record_rejected: bool,
    compare: Option<String>,
    seed: Option<Seed>,
    lease_ns: Option<u64>,
    warmup_ns: Option<u64>,
    cold_factor: Option<u64>,
    inherit: Option<String>,
    #[serde(default)]
    limits: Vec<Part>,
}

fn present<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(d).map(Some)
}

#[derive(Deserialize)]
struct Part {
    algorithm: String,
    params: Params,
}

#[derive(Deserialize)]
struct Seed {
    index: u64,
    prev: u64,
    cur: u64,
}

#[derive(Deserialize)]
struct Step {
    t_ns: u64,
    #[serde(default = "one")]
    cost: u64,
    #[serde(default = "check")]
    op: String,
    id: Option<String>,
    to: Option<Params>,
    expect: Expect,
}

fn one() -> u64 {
    1
}

fn check() -> String {
    "check".into()
}

#[derive(Deserialize, Debug, PartialEq)]
struct Expect {
    allowed: bool,
    remaining: Option<u64>,
    retry_after_ns: Option<u64>,
    reset_after_ns: Option<u64>,
    delay_ns: Option<u64>,
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

fn build(algorithm: &str, params: &Params) -> Limit {
    let rate = |units: Option<u64>, period: Option<u64>| {
        Rate::new(units.unwrap(), Duration::from_nanos(period.unwrap()))
    };
    let window = || rate(params.limit, params.window_ns);
    let mut spec = match algorithm {
        "token_bucket" => {
            let mut spec = Limit::token_bucket(rate(params.refill_tokens, params.refill_period_ns));
            if params.refill.as_deref() == Some("interval") {
                let aligned = params.anchor_ns == Some(Some(0));
                spec.refill = if aligned { Refill::IntervalAligned } else { Refill::Interval };
            }
            spec.burst(params.capacity.unwrap())
        }
        "leaky_bucket_meter" => Limit::leaky_bucket(rate(params.leak_units, params.leak_period_ns))
            .burst(params.capacity.unwrap()),
        "leaky_bucket_queue" => Limit::leaky_queue(
            rate(params.rate_units, params.rate_period_ns),
            params.queue.unwrap(),
        ),
        "gcra" => {
            Limit::gcra(rate(params.rate_units, params.rate_period_ns)).burst(params.burst.unwrap())
        }
        "fixed_window" => Limit::fixed_window(window()).align(match params.anchor_ns {
            Some(None) => Align::FirstRequest,
            _ => Align::Epoch,
        }),
        "sliding_window_log" => Limit::sliding_log(window()),
        "sliding_window_counter" => Limit::sliding_counter(window()),
        "concurrency" => match params.lease_ns {
            Some(lease) => {
                Limit::concurrency(params.limit.unwrap()).lease(Duration::from_nanos(lease))
            }
            None => Limit::concurrency(params.limit.unwrap()).without_lease(),
        },
        "warm_up" => Limit::warm_up(
            rate(params.rate_units, params.rate_period_ns),
            Duration::from_nanos(params.warmup_ns.unwrap()),
        )
        .cold_factor(params.cold_factor.unwrap()),
        other => panic!("unknown algorithm {other}"),
    };
    spec.initial = params.initial;
    spec.count_rejected = params.count_rejected || params.record_rejected;
    if params.compare.as_deref() == Some("exact") {
        spec.compare = Compare::Exact;
    }
    if let Some(max_delay) = params.max_delay_ns {
        spec = spec.max_delay(Duration::from_nanos(max_delay));
    }
    spec.build().unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// One limit of a vector with what it remembers.
struct Subject {
    limit: Limit,
    state: Option<State>,
}

impl Subject {
    fn new(algorithm: &str, params: &Params) -> Self {
        let limit = build(algorithm, params);
        let mut state = None;
        if let Some(seed) = &params.seed {
            let start = seed.index * params.window_ns.unwrap();
            state = limit.unpack(&[start, seed.prev, seed.cur]);
        }
        if let Some(start) = params.start_ns {
            // The key was first seen, and refused something, at the start.
            let ask = Ask::at(Timestamp::from_nanos(start));
            let _ = limit.settle(&mut state, &ask, u64::MAX, Action::Refuse);
        }
        Self { limit, state }
    }

    fn settle(&mut self, ask: &Ask, cost: u64, admitted: bool) -> Decision {
        let action = match (admitted, self.limit.counts_rejected()) {
            (true, _) => Action::Take,
            (false, true) => Action::Count,
            (false, false) => Action::Refuse,
        };
        self.limit.settle(&mut self.state, ask, cost, action)
    }
}

fn check_all(subjects: &mut [Subject], ask: &Ask, cost: u64) -> Decision {
    let fits = |subject: &Subject| subject.limit.fits(subject.state.as_ref(), ask, cost);
    let admitted = subjects.iter().all(fits);
    let decisions: Vec<Decision> =
        subjects.iter_mut().map(|subject| subject.settle(ask, cost, admitted)).collect();
    join(admitted, &decisions).unwrap()
}

fn run(step: &Step, subjects: &mut [Subject]) -> Decision {
    let holder = step.id.as_deref().map_or(0, |id| u128::from(id.as_bytes()[0]));
    let ask = Ask { at: Timestamp::from_nanos(step.t_ns).into(), holder };
    let subject = &mut subjects[0];
    match step.op.as_str() {
        "check" | "acquire" => check_all(subjects, &ask, step.cost),
        "force" => subject.limit.settle(&mut subject.state, &ask, step.cost, Action::Force),
        "refund" | "release" => subject.limit.refund(&mut subject.state, &ask, step.cost),
        "reconfigure" => {
            let to = step.to.as_ref().unwrap();
            let inherit = match to.inherit.as_deref().unwrap() {
                "as_is" => Inherit::AsIs,
                "proportional" => Inherit::Proportional,
                "additive" => Inherit::Additive,
                "reset" => Inherit::Reset,
                other => panic!("unknown inheritance {other}"),
            };
            let new = build("token_bucket", to);
            subject.state = subject
                .state
                .as_ref()
                .and_then(|state| new.inherit(&subject.limit, state, &ask, inherit));
            subject.limit = new;
            subject.limit.peek(subject.state.as_ref(), &ask, 0)
        }
        other => panic!("unknown operation {other}"),
    }
}

#[test]
fn every_vector_comes_out() {
    let file: File = serde_json::from_str(include_str!("vectors/algorithms.json")).unwrap();
    assert_eq!(file.vectors.len(), file.count);
    let mut wrong = Vec::new();
    for vector in &file.vectors {
        let mut subjects: Vec<Subject> = if vector.algorithm == "multi" {
            let parts = vector.params.limits.iter();
            parts.map(|part| Subject::new(&part.algorithm, &part.params)).collect()
        } else {
            vec![Subject::new(&vector.algorithm, &vector.params)]
        };
        for (index, step) in vector.steps.iter().enumerate() {
            let decision = run(step, &mut subjects);
            let found = Expect {
                allowed: decision.allowed,
                remaining: step.expect.remaining.map(|_| decision.remaining),
                retry_after_ns: decision.retry.after().map(ns),
                reset_after_ns: match step.expect.remaining {
                    None => step.expect.reset_after_ns,
                    Some(_) => decision.reset_after.map(ns),
                },
                delay_ns: step.expect.delay_ns.map(|_| ns(decision.delay)),
            };
            if found != step.expect {
                let name = &vector.name;
                wrong.push(format!("{name} step {index}: {found:?}, not {:?}", step.expect));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn null_retry_tells_never_from_unknown() {
    let ask = Ask::at(Timestamp::ZERO);
    let bucket = LimitSpec::new(AlgorithmName::Gcra, Rate::per_second(2)).build().unwrap();
    assert_eq!(bucket.peek(None, &ask, 3).retry, Retry::Never);
    let permits = Limit::concurrency(1).without_lease().build().unwrap();
    let mut state = None;
    let _ = permits.settle(&mut state, &Ask { holder: 1, ..ask }, 1, Action::Take);
    assert_eq!(permits.peek(state.as_ref(), &Ask { holder: 2, ..ask }, 1).retry, Retry::Unknown);
}
