//! How often Redis is asked: once for a request whatever it meets, and not at all where the answer
//! is known.

use crate::load::{Load, Plan, Seen, Source};
use crate::servers::Redis;
use crate::services::{Services, body};

const RULES: &str = "
domain: calls
descriptors:
  - { key: one, rate_limit: { requests_per_unit: 1000000, unit: day, algorithm: token_bucket } }
  - key: two
    rate_limits:
      - { requests_per_unit: 1000000, unit: day, algorithm: token_bucket }
      - { requests_per_unit: 1000000, per: 400d, algorithm: sliding_window_counter }
  - key: five
    rate_limits:
      - { requests_per_unit: 1000000, unit: day, algorithm: token_bucket }
      - { requests_per_unit: 1000000, unit: day, algorithm: gcra }
      - { requests_per_unit: 1000000, unit: day }
      - { requests_per_unit: 1000, unit: day, algorithm: sliding_window_log }
      - { requests_per_unit: 1000000, per: 400d, algorithm: sliding_window_counter }
  - { key: few, rate_limit: { requests_per_unit: 5, unit: day, algorithm: token_bucket } }
";

const REQUESTS: usize = 200;

fn start(redis: &Redis, flags: &[&str]) -> Services {
    let patient = ["--store-timeout", "20s"];
    let services = Services::start(1, &redis.url(), RULES, &[&patient, flags].concat());
    // The script is there from then on.
    services.wait_for_store(&[body("calls", &[("one", "warm")], 1)]);
    services
}

fn ask(services: &Services, asks: Vec<String>, requests: usize) -> Vec<Seen> {
    let plan = Plan {
        services: services.addresses(),
        asks,
        clients: 1,
        per_second: None,
        each: Some(requests),
    };
    Load::start(plan).finish().iter().map(|event| event.seen).collect()
}

#[test]
fn a_request_is_one_round_trip_for_one_two_and_five_limits() {
    let redis = Redis::start(&[]);
    let services = start(&redis, &[]);
    for key in ["one", "two", "five"] {
        let asks = (0..REQUESTS).map(|n| body("calls", &[(key, &n.to_string())], 1)).collect();
        let before = redis.calls("evalsha");
        let seen = ask(&services, asks, 2 * REQUESTS);
        assert!(seen.iter().all(|seen| *seen == Seen::Allowed(Source::Store)), "{key}");
        // On keys that are new and on keys that are not.
        assert_eq!(redis.calls("evalsha") - before, 2 * REQUESTS as u64, "{key}");
    }
    // Also where five keys are asked for, and not five limits of one.
    let five = ["one", "two", "five", "few"].map(|key| (key, "together"));
    let before = redis.calls("evalsha");
    let seen = ask(&services, vec![body("calls", &five, 1)], 3);
    assert_eq!(seen, [Seen::Allowed(Source::Store); 3]);
    assert_eq!(redis.calls("evalsha") - before, 3);
}

#[test]
fn a_refused_key_costs_redis_nothing_while_that_is_known() {
    let redis = Redis::start(&[]);
    let services = start(&redis, &["--denial-cache-max-age", "10m"]);
    let few = vec![body("calls", &[("few", "k")], 1)];
    let seen = ask(&services, few.clone(), 6);
    assert_eq!(seen[4..], [Seen::Allowed(Source::Store), Seen::Refused(Source::Store)]);
    let before = (redis.calls("evalsha"), redis.calls("get"));
    let seen = ask(&services, few.clone(), REQUESTS);
    assert_eq!(seen, [Seen::Refused(Source::DenialCache); REQUESTS]);
    assert_eq!((redis.calls("evalsha"), redis.calls("get")), before);
    assert_eq!(services.metric("tidegate_denial_cache_hits_total"), REQUESTS as f64);

    // What is given back is there at once.
    let (status, answer) = services.all[0].http("POST", "/v1/refund", &few[0]);
    assert_eq!(status, 200, "{answer}");
    let seen = ask(&services, few.clone(), 2);
    assert_eq!(seen, [Seen::Allowed(Source::Store), Seen::Refused(Source::Store)]);

    // And one that is told to remember nothing asks every time.
    let services = start(&redis, &["--denial-cache-max-age", "0s"]);
    let before = redis.calls("evalsha");
    let seen = ask(&services, few, REQUESTS);
    assert_eq!(seen, [Seen::Refused(Source::Store); REQUESTS]);
    assert_eq!(redis.calls("evalsha") - before, REQUESTS as u64);
}
