//! Services that count in one Redis, and what they do when it is not there.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use support::redis::Redis;
use support::serving::{PATIENCE, Serving, command};
use support::{Folder, text};

const RULES: &str = "
domain: api
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 10, unit: day, algorithm: token_bucket } }
  - { key: open, rate_limit: { requests_per_unit: 3, unit: day } }
  - { key: closed, rate_limit: { requests_per_unit: 3, unit: day, on_store_error: deny } }
  - { key: counted, rate_limit: { requests_per_unit: 3, unit: day, on_store_error: local } }
";

fn check(key: &str) -> String {
    format!(r#"{{"domain":"api","descriptors":[{{"entries":[["{key}","ada"]]}}]}}"#)
}

fn start(redis: &Redis, more: &[&str]) -> (Serving, Folder) {
    let folder = Folder::new(&[("a.yaml", RULES)]);
    let rules = folder.path().join("a.yaml");
    let url = redis.url();
    let arguments = [&["--rules", rules.to_str().unwrap(), "--store", &url], more].concat();
    (Serving::start(&arguments), folder)
}

/// Asks until the answer is from Redis: a service serves before Redis is connected.
fn wait_for_redis(serving: &Serving) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (_, answer) = serving.http("POST", "/v1/peek", &check("open"));
        if answer.contains(r#""source":"store""#) {
            return;
        }
        assert!(Instant::now() < deadline, "{answer}");
    }
}

/// Says all of it at once, and reads until the service hangs up.
fn resp(serving: &Serving, words: &str) -> String {
    let mut stream = TcpStream::connect(serving.address("resp")).unwrap();
    stream.write_all(format!("{words}QUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn two_services_count_together() {
    let redis = Redis::start();
    let slow = ["--store-timeout", "5s", "--denial-cache-max-age", "10m"];
    let ((mut one, _one), (mut other, _other)) = (start(&redis, &slow), start(&redis, &slow));
    assert!(one.ready.ends_with(" store=redis rules=4\n"), "{}", one.ready);
    wait_for_redis(&one);
    wait_for_redis(&other);
    let mut admitted = 0;
    for _ in 0..8 {
        for serving in [&one, &other] {
            let (status, answer) = serving.http("POST", "/v1/check", &check("user"));
            assert!(matches!(status, 200 | 429), "{answer}");
            admitted += usize::from(status == 200);
        }
    }
    assert_eq!(admitted, 10, "as many as one would admit");
    // A refusal that is known needs no Redis.
    let (_, answer) = one.http("POST", "/v1/check", &check("user"));
    assert!(answer.contains(r#""source":"denial_cache""#), "{answer}");
    let (_, metrics) = one.http("GET", "/metrics", "");
    let labels = r#"{domain="api",rule="api.user",outcome="refused",source="denial_cache""#;
    assert!(metrics.contains(&format!("tidegate_decisions_total{labels}")), "{metrics}");
    assert!(!metrics.contains("\ntidegate_denial_cache_hits_total 0\n"), "{metrics}");
    assert!(metrics.contains("\ntidegate_breaker_open 0\n"), "{metrics}");
    assert!(metrics.contains("\ntidegate_store_seconds_count{op=\"check\"}"), "{metrics}");
    for serving in [&mut one, &mut other] {
        assert_eq!(serving.terminate().code(), Some(0));
    }
}

#[test]
fn commands_of_one_read_are_answered_in_their_order() {
    let redis = Redis::start();
    let (serving, _folder) = start(&redis, &["--store-timeout", "5s"]);
    wait_for_redis(&serving);
    let mut words = String::new();
    for n in 0..14 {
        words.push_str("TIDEGATE.CHECK api user bob\r\n");
        words.push_str(&format!("ECHO {n}\r\n"));
    }
    words.push_str("HELLO 3\r\nTIDEGATE.CHECK api none x\r\nCL.THROTTLE k 2 1 60\r\n");
    words.push_str("TIDEGATE.CHECK nobody user x\r\nTIDEGATE.CHECK api user\r\n");
    let answer = resp(&serving, &words);
    let mut rest = &*answer;
    for n in 0..14 {
        let (allowed, remaining) = if n < 10 { (1, 9 - n) } else { (0, 0) };
        let wanted = format!("*6\r\n:{allowed}\r\n:10\r\n:{remaining}\r\n:");
        rest = rest.strip_prefix(&*wanted).unwrap_or_else(|| panic!("{n}: {answer}"));
        let (_, after) = rest.split_once("$8\r\napi.user\r\n").unwrap();
        let said = format!("${}\r\n{n}\r\n", n.to_string().len());
        rest = after.strip_prefix(&*said).unwrap_or_else(|| panic!("{n}: {answer}"));
    }
    let rest = rest.split_once("*6\r\n:1\r\n:-1\r\n:-1\r\n:0\r\n:0\r\n_\r\n").unwrap().1;
    let rest = rest.strip_prefix("*5\r\n:0\r\n:3\r\n:2\r\n:-1\r\n:60\r\n").unwrap();
    assert!(rest.starts_with("-NODOMAIN no rules for domain 'nobody'\r\n-ERR "), "{rest}");
    assert!(rest.ends_with("+OK\r\n"), "{rest}");
}

#[test]
fn without_redis_every_rule_does_what_it_says() {
    let mut redis = Redis::start();
    redis.kill();
    let (mut serving, _folder) = start(&redis, &[]);
    serving.wait_for_log("Redis does not answer");
    assert_eq!(serving.http("GET", "/healthcheck", "").0, 200, "limits go on");
    for _ in 0..5 {
        let (status, answer) = serving.http("POST", "/v1/check", &check("open"));
        assert_eq!(status, 200);
        assert!(answer.contains(r#""source":"fallback""#), "{answer}");
    }
    let statuses: Vec<u16> =
        (0..5).map(|_| serving.http("POST", "/v1/check", &check("counted")).0).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429], "counted by itself");

    let (status, answer) = serving.http("POST", "/v1/check", &check("closed"));
    assert_eq!(status, 503, "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    assert!(head.contains("\r\nretry-after: 1\r\n"), "{head}");
    assert!(body.contains(r#""violated-policies":["api.closed"]"#), "{body}");
    let lyft = r#"{"domain":"api","descriptors":[{"entries":[{"key":"closed","value":"ada"}]}]}"#;
    let (status, answer) = serving.http("POST", "/json", lyft);
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("\r\nretry-after: 1\r\n") && answer.contains("OVER_LIMIT"), "{answer}");
    let said = resp(&serving, "TIDEGATE.CHECK api closed ada\r\n");
    assert!(said.starts_with("*6\r\n:0\r\n:3\r\n:0\r\n:-2\r\n:-2\r\n$10\r\napi.closed"), "{said}");

    let (_, metrics) = serving.http("GET", "/metrics", "");
    assert!(metrics.contains("\ntidegate_breaker_open 1\n"), "{metrics}");
    assert!(metrics.contains("\ntidegate_store_errors_total{kind=\"down\"}"), "{metrics}");
    let fallbacks = "\ntidegate_store_fallbacks_total{policy=\"deny\"} 3\n";
    assert!(metrics.contains(fallbacks), "{metrics}");
    let labels = r#"{domain="api",rule="api.closed",outcome="refused",source="fallback""#;
    assert!(metrics.contains(&format!("tidegate_decisions_total{labels}")), "{metrics}");

    redis.start_again();
    wait_for_redis(&serving);
    assert_eq!(serving.http("POST", "/v1/check", &check("closed")).0, 200);
    assert_eq!(serving.terminate().code(), Some(0));
}

#[test]
fn a_store_that_makes_no_sense_is_not_served() {
    for (arguments, complaint) in [
        (&["--store", "rodeos://me:hunter2@host"][..], "--store: `rodeos://"),
        (&["--store", "redis://host", "--store-prefix", "a b"], "cannot be a prefix of keys"),
        (
            &["--store", "redis://host", "--store-timeout", "0s"],
            "--store-timeout `0s` is too little",
        ),
        (&["--store", "redis://host", "--store-tls-key", "x"], "hint: --store-tls-cert names"),
        (&["--store", "rediss://host", "--store-tls-ca", "/absent.pem"], "TLS to Redis"),
    ] {
        let output = command(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(complaint) && !said.contains("hunter2"), "{arguments:?}: {said}");
    }
}
