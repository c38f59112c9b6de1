//! The commands that Redis has to allow: a user with exactly those of docs/operations.md can do
//! everything, and needs each of them.

use std::path::Path;

use serde_json::{Value, json};

use crate::servers::{Cluster, Redis, Reply};
use crate::services::{Services, body};

const RULES: &str = "
domain: acl
defaults: { on_store_error: deny }
descriptors:
  - { key: bucket, rate_limit: { requests_per_unit: 5, unit: day, algorithm: token_bucket } }
  - { key: interval, rate_limit: { requests_per_unit: 5, unit: day, algorithm: token_bucket, refill: interval } }
  - { key: window, rate_limit: { requests_per_unit: 5, unit: day } }
  - { key: calendar, rate_limit: { requests_per_unit: 5, unit: year, time_zone: Europe/Berlin } }
  - { key: log, rate_limit: { requests_per_unit: 5, unit: day, algorithm: sliding_window_log } }
  - { key: counter, rate_limit: { requests_per_unit: 5, unit: day, algorithm: sliding_window_counter } }
  - { key: permits, rate_limit: { requests_per_unit: 5, algorithm: concurrency, lease: 1h } }
  - { key: forever, rate_limit: { requests_per_unit: 5, algorithm: concurrency, lease: none } }
  - { key: queue, rate_limit: { requests_per_unit: 5, unit: day, algorithm: leaky_bucket, queue: { size: 9 } } }
  - { key: warm, rate_limit: { requests_per_unit: 5, unit: day, algorithm: warm_up, warm_up: { period: 1h } } }
";
const KEYS: [&str; 10] = [
    "bucket", "interval", "window", "calendar", "log", "counter", "permits", "forever", "queue",
    "warm",
];

/// The user as the page has it: `user tidegate on … +evalsha …`.
fn rule(page: &str, start: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = std::fs::read_to_string(root).unwrap();
    let line = page.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("no line that starts with `{start}`"));
    line.split_whitespace().skip(2).map(str::to_owned).collect()
}

fn set_user(redis: &Redis, rule: &[String]) {
    let words: Vec<&str> = rule.iter().map(String::as_str).collect();
    redis.ask(&[&["ACL", "SETUSER", "tidegate", "reset"], &words[..]].concat());
}

/// Everything that a service asks of its store.
fn use_all(services: &Services) {
    let some: Vec<_> = (0..20).map(|n| body("acl", &[("bucket", &n.to_string())], 1)).collect();
    services.wait_for_store(&some);
    let ask = |path: &str, body: &str| {
        let (status, answer) = services.all[0].http("POST", path, body);
        let (_, answer) = answer.split_once("\r\n\r\n").unwrap();
        assert!([200, 429].contains(&status), "{path} {body}: {answer}");
        let answer: Value = serde_json::from_str(answer).unwrap();
        assert_ne!(answer["source"], "fallback", "{path} {body}: {answer}");
        answer
    };
    for key in KEYS {
        let one = body("acl", &[(key, "k")], 1);
        for _ in 0..7 {
            ask("/v1/check", &one);
        }
        ask("/v1/peek", &one);
        ask("/v1/refund", &one);
        let mut reserve: Value = serde_json::from_str(&body("acl", &[(key, "r")], 2)).unwrap();
        reserve["ttl"] = json!("30s");
        let reserved = ask("/v1/reserve", &reserve.to_string());
        let id = reserved["id"].as_str().unwrap();
        let settled = ask(&format!("/v1/reserve/{id}/settle"), r#"{"cost":1}"#);
        assert_eq!(settled["settled"], true, "{key}");
        let keys = |method: &str, what: &str, body: &str| {
            let path = format!("/v1/keys{what}?domain=acl&descriptor={key}=k");
            let (status, answer) = services.all[0].http(method, &path, body);
            assert_eq!(status, 200, "{method} {path}: {answer}");
        };
        keys("DELETE", "", "");
        keys("POST", "/block", r#"{"for":"1h"}"#);
        keys("DELETE", "/block", "");
    }
    let mut held: Value = serde_json::from_str(&body("acl", &[("permits", "h")], 1)).unwrap();
    held["id"] = json!("holder");
    ask("/v1/check", &held.to_string());
    ask("/v1/release", &held.to_string());
    let all: Vec<_> = KEYS.iter().map(|key| (*key, "together")).collect();
    ask("/v1/check", &body("acl", &all, 1));
}

/// What was refused, as Redis remembers it.
fn refused(redis: &Redis) -> Vec<String> {
    let log = redis.ask(&["ACL", "LOG"]);
    let entry = |entry: &Reply| format!("{entry:?}");
    log.list().iter().map(entry).collect()
}

#[test]
fn a_user_with_the_documented_commands_can_do_everything_and_needs_each() {
    let redis = Redis::start(&[]);
    let rule = rule("operations.md", "user tidegate ");
    set_user(&redis, &rule);
    let store = format!("redis://tidegate:secret@127.0.0.1:{}", redis.port);
    let services = Services::start(1, &store, RULES, &["--store-timeout", "20s"]);
    use_all(&services);
    replay(&services, &store);
    assert_eq!(refused(&redis), [""; 0]);
    let allowed = rule.iter().filter_map(|word| word.strip_prefix('+'));
    let unused: Vec<&str> = allowed.filter(|word| redis.calls(word) == 0).collect();
    assert_eq!(unused, [""; 0], "allowed, and nobody has called them");
}

/// `tidegate replay` has a time of its own, and removes what it has written.
fn replay(services: &Services, store: &str) {
    let mut lines = String::new();
    for key in KEYS {
        let line = json!({ "t_ns": 1_800_000_000_000_000_000_u64, "domain": "acl",
            "descriptors": [[[key, "k"]]] });
        lines += &format!("{line}\n");
    }
    // Leases that have ended are counted off.
    let late = json!({ "t_ns": 1_800_004_000_000_000_000_u64, "domain": "acl",
        "descriptors": [[["permits", "k"]]] });
    lines += &format!("{late}\n");
    let command = services.subcommand("replay", store);
    let output = crate::support::run_command(command, lines);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_cluster_needs_one_command_more() {
    let cluster = Cluster::start();
    let rule = rule("operations.md", "user tidegate ");
    let more = self::rule("operations.md", "# cluster: ");
    for master in &cluster.masters {
        set_user(master, &[&rule[..], &more[..]].concat());
    }
    let store = cluster.url().replace("://", "://tidegate:secret@");
    let services = Services::start(1, &store, RULES, &["--store-timeout", "20s"]);
    use_all(&services);
    for master in &cluster.masters {
        assert_eq!(refused(master), [""; 0]);
    }
}
