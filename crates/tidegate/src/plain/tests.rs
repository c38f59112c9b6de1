use std::time::Duration;

use proptest::prelude::*;
use tidegate_rules::{Descriptor, Entry, File, Options, Rules};
use tidegate_store::{MemoryStore, OnFull};

use super::*;
use crate::{ManualClock, RuleLimiter};

/// Every kind of limit, plain and not.
const RULES: &str = "
domain: d
descriptors:
  - { key: bucket, rate_limit: { requests_per_unit: 3, unit: second, algorithm: token_bucket, burst: 5 } }
  - { key: gcra, rate_limit: { requests_per_unit: 7, unit: minute, algorithm: gcra, cost: 2 } }
  - { key: leaky, rate_limit: { requests_per_unit: 2, unit: second, algorithm: leaky_bucket } }
  - { key: queue, rate_limit: { requests_per_unit: 2, unit: second, algorithm: leaky_bucket, queue: { size: 3 } } }
  - { key: interval, rate_limit: { requests_per_unit: 3, unit: second, algorithm: token_bucket, refill: interval } }
  - { key: initial, rate_limit: { requests_per_unit: 3, unit: second, algorithm: token_bucket, initial: 1 } }
  - { key: window, rate_limit: { requests_per_unit: 3, unit: second } }
  - { key: counted, rate_limit: { requests_per_unit: 3, unit: second, count_rejected: true } }
  - { key: day, rate_limit: { requests_per_unit: 3, unit: day, time_zone: Europe/Berlin } }
  - { key: log, rate_limit: { requests_per_unit: 3, unit: second, algorithm: sliding_window_log } }
  - { key: counter, rate_limit: { requests_per_unit: 3, unit: second, algorithm: sliding_window_counter } }
  - { key: soft, rate_limit: { requests_per_unit: 4, unit: second, soft: { over: 50%, for: 2s } } }
  - { key: warm, rate_limit: { requests_per_unit: 3, unit: second, algorithm: warm_up, warm_up: { period: 2s } } }
  - { key: slots, rate_limit: { requests_per_unit: 2, algorithm: concurrency } }
  - { key: blocked, rate_limit: { requests_per_unit: 0, unit: second } }
  - { key: watched, shadow_mode: true, rate_limit: { requests_per_unit: 1, unit: second } }
  - { key: quota, quota_mode: true, rate_limit: { requests_per_unit: 1, unit: second } }
  - { key: unlimited, rate_limit: { unlimited: true } }
  - key: both
    rate_limits:
      - { requests_per_unit: 3, unit: second, algorithm: token_bucket }
      - { requests_per_unit: 5, unit: minute }
";
const KEYS: [&str; 20] = [
    "bucket",
    "gcra",
    "leaky",
    "queue",
    "interval",
    "initial",
    "window",
    "counted",
    "day",
    "log",
    "counter",
    "soft",
    "warm",
    "slots",
    "blocked",
    "watched",
    "quota",
    "unlimited",
    "both",
    "none",
];

/// One request: how much later, what, its cost, and the cost of its first descriptor.
type Step = (u64, Vec<(usize, u8)>, u64, Option<u64>);

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![Just(0), 0..700_000_000u64, Just(1_000_000_000)];
    let descriptors = prop::collection::vec((0..KEYS.len(), 0..2u8), 1..3);
    let cost = prop_oneof![8 => Just(1u64), 1 => Just(0), 2 => 2..6u64, 1 => Just(u64::MAX)];
    let own = prop_oneof![5 => Just(None), 1 => (0..4u64).prop_map(Some)];
    // Most requests have one descriptor.
    (
        wait,
        prop_oneof![3 => descriptors.clone().prop_map(|mut all| { all.truncate(1); all }), 1 => descriptors],
        cost,
        own,
    )
}

fn twin(store: MemoryStore) -> (RuleLimiter<MemoryStore, ManualClock>, ManualClock) {
    let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
    let loaded = Rules::load(&[File { name: "d.yaml", text: RULES }], &Options::default());
    let rules = loaded.rules.expect("good rules");
    let limiter = RuleLimiter::build(store, clock.clone(), rules, Modes::default());
    (limiter.expect("rules that can be enforced"), clock)
}

/// All that a verdict says.
fn told(verdict: &Verdict) -> String {
    let each: Vec<_> = verdict.limits.iter().map(|one| (one.descriptor, one.decision)).collect();
    let Verdict { allowed, granted, decision, reached, knows_domain, .. } = verdict;
    let json = verdict.to_json();
    format!("{allowed} {granted} {decision:?} {each:?} {reached:?} {knows_domain} {json}")
}

proptest! {
    #[test]
    fn both_ways_decide_alike(
        steps in prop::collection::vec(step(), 1..60),
        on_full in prop_oneof![3 => Just(None), 1 => Just(Some(OnFull::Deny)), 1 => Just(Some(OnFull::Allow))],
    ) {
        let builder = match on_full {
            None => MemoryStore::builder(),
            Some(on_full) => MemoryStore::builder().shards(1).max_keys(3).on_full(on_full),
        };
        let (short, clock) = twin(builder.build());
        let (general, other_clock) = twin(builder.build());
        for (wait, asked, cost, own_cost) in steps {
            // Which spent keys make room at the bound is a matter of chance.
            let wait = if on_full.is_none() { wait } else { 0 };
            clock.advance(Duration::from_nanos(wait));
            other_clock.advance(Duration::from_nanos(wait));
            let values = ["a", "b"];
            let entries: Vec<_> = asked
                .iter()
                .map(|(key, value)| [Entry::new(KEYS[*key], values[usize::from(*value)])])
                .collect();
            let mut descriptors: Vec<_> =
                entries.iter().map(|entries| Descriptor::new(entries)).collect();
            descriptors[0].cost = own_cost;
            let query = Query::new("d", &descriptors).cost(cost).holder(7);
            let quick = short.check(&query);
            let long = general.ask_generally(Op::Check, &query);
            prop_assert_eq!(told(&quick), told(&long), "{:?}", asked);
        }
    }
}
