//! Hundreds of clients of several services want the same few keys: they get what one of them would
//! get by itself, and not one more.

use serde_json::{Value, json};

use crate::load::{Event, Load, Plan, Seen, Source};
use crate::servers::{Cluster, Maker, Redis, wait_for};
use crate::services::{Services, body};
use crate::support::Rules;

/// Every algorithm, with limits that nothing comes back to while a test runs.
const RULES: &str = "
domain: race
defaults: { on_store_error: deny }
descriptors:
  - { key: bucket, rate_limit: { requests_per_unit: 100, unit: day, algorithm: token_bucket } }
  - { key: burst, rate_limit: { requests_per_unit: 1, unit: day, algorithm: token_bucket, burst: 100 } }
  - { key: interval, rate_limit: { requests_per_unit: 100, unit: day, algorithm: token_bucket, refill: interval } }
  - { key: leaky, rate_limit: { requests_per_unit: 100, unit: day, algorithm: leaky_bucket } }
  - { key: queue, rate_limit: { requests_per_unit: 1, unit: day, algorithm: leaky_bucket, queue: { size: 99 } } }
  - { key: gcra, rate_limit: { requests_per_unit: 100, unit: day, algorithm: gcra } }
  - { key: window, rate_limit: { requests_per_unit: 100, per: 400d } }
  - { key: first, rate_limit: { requests_per_unit: 100, unit: day, align: first_request } }
  - { key: calendar, rate_limit: { requests_per_unit: 100, unit: year, time_zone: Europe/Berlin } }
  - { key: counted, rate_limit: { requests_per_unit: 100, per: 400d, count_rejected: true } }
  - { key: soft, rate_limit: { requests_per_unit: 100, per: 400d, soft: { over: 20%, for: 1h } } }
  - { key: log, rate_limit: { requests_per_unit: 100, unit: day, algorithm: sliding_window_log } }
  - { key: counter, rate_limit: { requests_per_unit: 100, per: 400d, algorithm: sliding_window_counter } }
  - { key: permits, rate_limit: { requests_per_unit: 100, algorithm: concurrency, lease: 1h } }
  - { key: warm, rate_limit: { requests_per_unit: 100, unit: day, algorithm: warm_up, warm_up: { period: 1h, max_delay: 1d } } }
  - key: several
    rate_limits:
      - { requests_per_unit: 100, unit: day, algorithm: token_bucket }
      - { requests_per_unit: 150, unit: day, algorithm: sliding_window_log }
      - { requests_per_unit: 120, per: 400d }
";

/// All keys that are raced for, with what a request costs.
const RACED: [(&str, u64); 18] = [
    ("bucket", 1),
    ("bucket", 3),
    ("burst", 1),
    ("interval", 1),
    ("leaky", 1),
    ("queue", 1),
    ("gcra", 1),
    ("window", 1),
    ("window", 7),
    ("first", 1),
    ("calendar", 1),
    ("counted", 1),
    ("soft", 1),
    ("log", 1),
    ("counter", 1),
    ("permits", 1),
    ("warm", 1),
    ("several", 1),
];

const SERVICES: usize = 3;
const CLIENTS: usize = 300;
/// Requests of each client, twice for every key: six times what a key admits.
const EACH: usize = 2 * RACED.len();
/// Nobody is answered without Redis because a machine is busy.
const PATIENT: [&str; 2] = ["--store-timeout", "20s"];

fn asks() -> Vec<String> {
    // Different costs are for different keys, so that what is admitted is a number.
    let ask = |(key, cost): &(&str, u64)| body("race", &[(key, &format!("k{cost}"))], *cost);
    RACED.iter().map(ask).collect()
}

/// How many of so many requests the engine admits, which decides one after the other by itself at
/// one moment.
fn model(asks: &[String], requests: usize) -> Vec<usize> {
    let rules = Rules::new(RULES);
    let mut lines = String::new();
    for ask in asks {
        let ask: Value = serde_json::from_str(ask).unwrap();
        let descriptors = json!([ask["descriptors"][0]["entries"]]);
        for number in 0..requests {
            let line = json!({ "t_ns": 1_800_000_000_000_000_000_u64, "domain": "race",
                "descriptors": descriptors, "cost": ask["cost"], "id": number.to_string() });
            lines += &format!("{line}\n");
        }
    }
    let (answers, code) = rules.replay(&lines);
    assert_eq!(code, Some(0));
    let admitted =
        |answers: &[Value]| answers.iter().filter(|answer| answer["allowed"] == true).count();
    answers.chunks(requests).map(admitted).collect()
}

fn admitted(events: &[Event], ask: usize) -> usize {
    events.iter().filter(|event| event.ask == ask && event.seen.is_allowed()).count()
}

/// Whoever was answered was answered by the store, or by what is known of it.
fn assert_all_by_the_store(events: &[Event]) {
    for event in events {
        let is_good = matches!(
            event.seen,
            Seen::Allowed(Source::Store)
                | Seen::Refused(Source::Store)
                | Seen::Refused(Source::DenialCache)
        );
        assert!(is_good, "{event:?}");
    }
}

fn race_on(store: &str) {
    let services = Services::start(SERVICES, store, RULES, &PATIENT);
    let asks = asks();
    services.wait_for_store(&asks);
    let plan = Plan {
        services: services.addresses(),
        asks: asks.clone(),
        clients: CLIENTS,
        per_second: None,
        each: Some(EACH),
    };
    let events = Load::start(plan).finish();
    assert_all_by_the_store(&events);
    let of_each = CLIENTS * EACH / asks.len();
    let model = model(&asks, of_each);
    for (ask, allowed) in model.iter().enumerate() {
        let asked = events.iter().filter(|event| event.ask == ask).count();
        assert_eq!(asked, of_each, "requests for {:?}", RACED[ask]);
        assert_eq!(admitted(&events, ask), *allowed, "admitted for {:?}", RACED[ask]);
        assert!(*allowed < asked, "{:?} is raced for", RACED[ask]);
    }
    // And that is what the rules say.
    assert_eq!(model[0..3], [100, 33, 100]);
    assert!(events.iter().any(|event| event.seen == Seen::Refused(Source::DenialCache)));
    assert_eq!(services.metric("tidegate_store_disagreements_total"), 0.0);
}

#[test]
fn several_services_on_one_redis_admit_exactly_what_one_would() {
    let redis = Redis::start(&[]);
    race_on(&redis.url());
}

#[test]
fn several_services_on_one_valkey_admit_exactly_what_one_would() {
    let valkey = Redis::made_by(Maker::Valkey, &[]);
    race_on(&valkey.url());
}

#[test]
fn several_services_on_a_cluster_admit_exactly_what_one_would() {
    let cluster = Cluster::start();
    race_on(&cluster.url());
}

const PAIRS: &str = "
domain: pairs
defaults: { on_store_error: deny }
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 60, unit: day, algorithm: token_bucket } }
  - { key: ip, rate_limit: { requests_per_unit: 90, unit: day, algorithm: sliding_window_log } }
  - { key: plan, rate_limit: { requests_per_unit: 150, per: 400d } }
";
const USERS: usize = 6;
const IPS: usize = 3;
const PLANS: usize = 2;

/// What is used of a key.
fn used(services: &Services, key: &str, value: &str, limit: u64) -> u64 {
    limit - services.remaining(&body("pairs", &[(key, value)], 1))
}

#[test]
fn requests_that_span_slots_take_from_all_or_from_none() {
    let cluster = Cluster::start();
    let services = Services::start(SERVICES, &cluster.url(), PAIRS, &PATIENT);
    // Every user from everywhere under every plan: keys of all masters, each with every other.
    let mut triples = Vec::new();
    for number in 0..USERS * IPS * PLANS {
        triples.push((number % USERS, number / USERS % IPS, number / USERS / IPS));
    }
    let name = |of: &str, number: usize| format!("{of}-{number}");
    let asks: Vec<String> = triples
        .iter()
        .map(|(user, ip, plan)| {
            let values = [name("user", *user), name("ip", *ip), name("plan", *plan)];
            body("pairs", &[("user", &values[0]), ("ip", &values[1]), ("plan", &values[2])], 1)
        })
        .collect();
    services.wait_for_store(&asks);
    let plan = Plan {
        services: services.addresses(),
        asks,
        clients: CLIENTS,
        per_second: None,
        each: Some(12),
    };
    let events = Load::start(plan.clone()).finish();
    assert_all_by_the_store(&events);
    // Somebody may have been refused because of what another had not given back yet, and such
    // refusals are believed for a second. Later, one after the other, everything is used up that
    // can be: the addresses are what there is least of, 3 times 90.
    let mut events = events;
    let plan = Plan { clients: 1, each: Some(triples.len()), ..plan };
    wait_for("everything is used up", || {
        let later = Load::start(plan.clone()).finish();
        assert_all_by_the_store(&later);
        events.extend(later);
        let all = events.iter().filter(|event| event.seen.is_allowed()).count();
        assert!(all <= 270, "{all} admitted");
        (all == 270).then_some(())
    });

    let taken = |of: &dyn Fn(&(usize, usize, usize)) -> bool| -> u64 {
        let is_one = |event: &&Event| event.seen.is_allowed() && of(&triples[event.ask]);
        events.iter().filter(is_one).count() as u64
    };
    for (key, count, limit) in [("user", USERS, 60), ("ip", IPS, 90), ("plan", PLANS, 150)] {
        for number in 0..count {
            let admitted = taken(&|triple| match key {
                "user" => triple.0 == number,
                "ip" => triple.1 == number,
                _ => triple.2 == number,
            });
            assert!(admitted <= limit, "{key} {number} admitted {admitted} of {limit}");
            // What was taken back is so in the end, and what was not is what was admitted.
            wait_for("what was used is what was admitted", || {
                (used(&services, key, &name(key, number), limit) == admitted).then_some(())
            });
        }
    }
    assert_eq!(services.metric("tidegate_store_disagreements_total"), 0.0);
    assert!(services.metric("tidegate_store_compensations_total") > 0.0, "it came to that");
    assert_eq!(services.metric("tidegate_store_given_up_total"), 0.0);
}
