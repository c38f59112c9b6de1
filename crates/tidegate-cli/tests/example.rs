//! The example that is shipped, under traffic: every sentence of its comments, and one request more.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use serde_json::{Value, json};

use support::{example, replay, text, tidegate};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;
/// Monday, 2026-11-16, 00:00 UTC.
const MONDAY: u64 = 1_794_787_200 * SECOND;

/// Requests in the making.
#[derive(Default)]
struct Traffic {
    lines: String,
}

impl Traffic {
    fn send(&mut self, t_ns: u64, method: &str, url: &str, headers: Value, ip: &str) {
        let http = json!({ "method": method, "url": url, "headers": headers, "client_ip": ip });
        let line = json!({ "t_ns": t_ns, "domain": "examples", "http": http });
        self.lines.push_str(&format!("{line}\n"));
    }

    fn post(&mut self, t_ns: u64, url: &str, user: &str) {
        self.send(t_ns, "POST", url, json!({ "x-user-id": user }), "198.51.100.1");
    }

    fn get(&mut self, t_ns: u64, url: &str, ip: &str) {
        self.send(t_ns, "GET", url, json!({}), ip);
    }

    /// Which of the requests were admitted.
    fn admitted(&self) -> Vec<bool> {
        let (answers, code) = replay(&example(), &self.lines);
        assert_eq!(code, Some(0), "{answers:?}");
        answers.iter().map(|answer| answer["allowed"].as_bool().unwrap()).collect()
    }

    fn count(&self) -> usize {
        self.admitted().into_iter().filter(|admitted| *admitted).count()
    }
}

#[test]
fn the_example_is_right() {
    let output = tidegate(&["check", "--deny-warnings", &example()]);
    assert_eq!(text(&output.stdout), "ok: 1 file, 12 rules, no warnings\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn e1_two_articles_in_any_second() {
    let mut traffic = Traffic::default();
    // The third within a second of the first, though in the next second of the clock.
    for t_ns in [SECOND / 2, SECOND, SECOND + SECOND / 2 - 1, SECOND + SECOND / 2] {
        traffic.post(t_ns, "/v1/articles", "ada");
    }
    traffic.post(SECOND, "/v1/articles", "bob");
    traffic.send(SECOND, "POST", "/v1/articles", json!({}), "198.51.100.1");
    assert_eq!(traffic.admitted(), [true, true, false, true, true, false]);
}

#[test]
fn e2_ten_accounts_per_address_and_day() {
    let mut traffic = Traffic::default();
    let create = |traffic: &mut Traffic, t_ns, ip: &str| {
        traffic.send(t_ns, "POST", "/v1/accounts", json!({}), ip);
    };
    // In Berlin the day begins an hour before it does in UTC.
    let midnight = MONDAY - HOUR;
    for number in 0..11 {
        create(&mut traffic, midnight - SECOND, &format!("2001:db8::{number:x}"));
    }
    create(&mut traffic, midnight - SECOND, "2001:db8:0:1::1");
    create(&mut traffic, midnight, "2001:db8::1");
    for _ in 0..20 {
        create(&mut traffic, midnight, "192.0.2.8");
    }
    let admitted = traffic.admitted();
    assert_eq!(admitted[..11].iter().filter(|admitted| **admitted).count(), 10);
    assert!(!admitted[10] && admitted[11..].iter().all(|admitted| *admitted));
}

#[test]
fn e3_five_rewards_per_device_and_week() {
    let mut traffic = Traffic::default();
    for day in [0, 1, 2, 3, 4, 5, 6, 7] {
        let headers = json!({ "x-device-id": "d1" });
        traffic.send(MONDAY + day * DAY, "POST", "/v1/rewards", headers, "198.51.100.1");
    }
    assert_eq!(traffic.admitted(), [true, true, true, true, true, false, false, true]);
}

#[test]
fn e4_three_hundred_tweets_in_three_hours() {
    let mut traffic = Traffic::default();
    for number in 0..301 {
        traffic.post(MONDAY + number * SECOND, "/v1/tweets", "ada");
    }
    assert_eq!(traffic.count(), 300);
    // The window slides: what was posted three hours ago makes room bit by bit.
    traffic.post(MONDAY + 3 * HOUR, "/v1/tweets", "ada");
    traffic.post(MONDAY + 3 * HOUR + HOUR / 2, "/v1/tweets", "ada");
    assert_eq!(traffic.admitted()[301..], [false, true]);
}

#[test]
fn e5_three_buckets_for_each_user() {
    for (what, most) in [("posts", 1), ("friends", 150), ("likes", 5)] {
        let mut traffic = Traffic::default();
        for _ in 0..=most {
            traffic.post(MONDAY, &format!("/v1/social/{what}"), "ada");
        }
        assert_eq!(traffic.count(), most, "{what}");
        traffic.post(MONDAY, &format!("/v1/social/{what}"), "bob");
        traffic.post(MONDAY + DAY, &format!("/v1/social/{what}"), "ada");
        assert_eq!(traffic.count(), most + 2, "{what}");
    }
}

#[test]
fn e6_one_bucket_for_the_whole_system() {
    let mut traffic = Traffic::default();
    for number in 0..10_001u64 {
        traffic.get(MONDAY, "/any/page", &format!("10.{}.{}.1", number / 200, number % 200));
    }
    assert_eq!(traffic.count(), 10_000);
}

#[test]
fn e7_the_third_in_a_second_is_refused() {
    let mut traffic = Traffic::default();
    for _ in 0..3 {
        traffic.get(MONDAY, "/v1/status", "198.51.100.1");
    }
    traffic.get(MONDAY + SECOND, "/v1/status?verbose=1", "198.51.100.1");
    assert_eq!(traffic.admitted(), [true, true, false, true]);
}

#[test]
fn e8_bursts_for_the_endpoint_and_for_each_address() {
    let mut traffic = Traffic::default();
    for _ in 0..11 {
        traffic.get(MONDAY, "/v1/search", "198.51.100.1");
    }
    // The endpoint is empty too, and has earned one token after a fifth of a second.
    traffic.get(MONDAY, "/v1/search", "198.51.100.2");
    traffic.get(MONDAY + SECOND / 5 - 1, "/v1/search", "198.51.100.2");
    traffic.get(MONDAY + SECOND / 5, "/v1/search", "198.51.100.2");
    let admitted = traffic.admitted();
    assert_eq!(admitted[..10], [true; 10]);
    assert_eq!(admitted[10..], [false, false, false, true]);
}

#[test]
fn e9_five_marketing_messages_per_number_and_day() {
    let mut traffic = Traffic::default();
    let message = |traffic: &mut Traffic, kind: &str, number: &str| {
        let headers = json!({ "x-message-type": kind, "x-to-number": number });
        traffic.send(MONDAY, "POST", "/v1/messages", headers, "198.51.100.1");
    };
    for _ in 0..6 {
        message(&mut traffic, "marketing", "+49301");
    }
    message(&mut traffic, "marketing", "+49302");
    for _ in 0..6 {
        message(&mut traffic, "alarm", "+49301");
    }
    let admitted = traffic.admitted();
    assert_eq!(admitted[..7], [true, true, true, true, true, false, true]);
    assert_eq!(admitted[7..], [true; 6]);
}

#[test]
fn a_refused_request_takes_nothing_from_the_others() {
    let mut traffic = Traffic::default();
    // Ada's third article is refused and so takes nothing from the whole system.
    for _ in 0..3 {
        traffic.post(MONDAY, "/v1/articles", "ada");
    }
    let (answers, _) = replay(&example(), &traffic.lines);
    let left = |answer: &Value| answer["limits"][0]["remaining"].as_u64();
    assert_eq!(answers.iter().map(left).collect::<Vec<_>>(), [Some(9999), Some(9998), Some(9998)]);
    assert_eq!(answers[2]["limits"][0]["rule"], "whole-system");
    assert_eq!(answers[2]["limits"][1]["rule"], "examples.action_article.user");
    assert_eq!(answers[2]["retry_after_ns"], SECOND);
}
