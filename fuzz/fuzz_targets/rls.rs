//! Any bytes as a question of Envoy's: whatever it asks, the answer holds together.
//!
//! The first byte gives the modes, the second how many seconds pass before the question, and what
//! follows is the message, and then the same once more a moment later.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter, Timestamp};
use tidegate_proto::{Code, RateLimitRequest, RateLimitResponse};
use tidegate_rules::{File, Options, Rules};
use tidegate_server::{Config, HeaderNames, Service, ServiceClock, fuzzing};

const RULES: &str = "
domain: d
descriptors:
  - { key: a, rate_limit: { name: a, requests_per_unit: 2, unit: minute } }
  - key: b
    rate_limits:
      - { requests_per_unit: 3, unit: second, algorithm: token_bucket, burst: 5, cost: 4294967295 }
      - { requests_per_unit: 4294967295, per: 400d, algorithm: sliding_window_counter }
  - { key: c, shadow_mode: true, rate_limit: { requests_per_unit: 0, unit: year } }
  - { key: q, quota_mode: true, metadata: { x: { y: 1 } }, rate_limit: { requests_per_unit: 1, unit: week } }
  - { key: n, rate_limit: { requests_per_unit: 1, algorithm: concurrency } }
  - { key: u, rate_limit: { unlimited: true, replaces: [{ name: a }] } }
  - { key: 'w*', share_threshold: true, value: '*x*', rate_limit: { requests_per_unit: 9, unit: hour, align: first_request } }
";

fuzz_target!(|bytes: &[u8]| {
    let [flags, seconds, message @ ..] = bytes else { return };
    let Ok(request) = RateLimitRequest::decode(message) else { return };
    let flag = |bit: u8| flags & 1 << bit != 0;
    let mut modes = Modes::default();
    (modes.shadow, modes.quota, modes.independent) = (flag(0), flag(1), flag(2));
    let mut options = Options::default();
    options.lyft_compat = flag(3);
    let mut config = Config::default();
    config.response_headers = flag(4).then(HeaderNames::default);
    config.dynamic_metadata = flag(5);

    let rules = Rules::load(&[File { name: "rules.yaml", text: RULES }], &options).rules;
    let clock = ManualClock::at(Timestamp::from_secs(1234));
    let limits = RuleLimiter::build(
        MemoryStore::new().into(),
        ServiceClock::Manual(clock.clone()),
        rules.expect("sound rules"),
        modes,
    );
    let service = Service::new(limits.expect("limits that can be enforced"), 0.8);
    for _ in 0..2 {
        clock.advance(Duration::from_secs(u64::from(*seconds)));
        match fuzzing::rls(&service, &config, &request) {
            Ok(response) => check(&request, &response, &modes),
            Err(message) => assert!(!message.is_empty()),
        }
    }
});

fn check(request: &RateLimitRequest, response: &RateLimitResponse, modes: &Modes) {
    let is_over = |code: Code| match code {
        Code::Ok => false,
        Code::OverLimit => true,
        Code::Unknown => panic!("no answer: {response:?}"),
    };
    assert_eq!(response.statuses.len(), request.descriptors.len());
    for (asked, status) in request.descriptors.iter().zip(&response.statuses) {
        let over = is_over(status.code());
        assert!(!over || !asked.is_negative_hits, "refused for giving back: {response:?}");
        assert_eq!(status.current_limit.is_some(), status.duration_until_reset.is_some());
        assert!(!over || status.current_limit.is_some(), "refused by nobody: {response:?}");
        if let Some(duration) = &status.duration_until_reset {
            assert!(duration.seconds >= 1 && duration.nanos == 0, "{response:?}");
        }
    }
    let over = is_over(response.overall_code());
    let any = response.statuses.iter().any(|status| is_over(status.code()));
    assert!(!over || any, "refused by nobody: {response:?}");
    assert!(!over || !modes.shadow, "refused by limits that watch: {response:?}");
    let again = RateLimitResponse::decode(&response.encode_to_vec()[..]);
    assert_eq!(again.as_ref(), Ok(response));
}
