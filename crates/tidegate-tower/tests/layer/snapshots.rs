//! What clients are told, for each algorithm, admitted and refused; and that it is the truth.

use std::fmt::Write as _;
use std::time::Duration;

use crate::{Answer, Counting, ask, get, header, rules, text};

/// Rules with one limit for everything, named `it`.
fn one(limit: &str) -> String {
    format!(
        "domain: d\nhttp: [ {{ descriptors: [ {{ all: yes }} ] }} ]\n\
         descriptors: [ {{ key: all, rate_limit: {{ name: it, {limit} }} }} ]"
    )
}

async fn shown(answer: Answer) -> String {
    let mut out = String::new();
    let mut headers: Vec<_> = answer
        .headers()
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    headers.sort();
    writeln!(out, "{}", answer.status().as_u16()).unwrap();
    headers.iter().for_each(|line| writeln!(out, "{line}").unwrap());
    writeln!(out, "{}", text(answer).await).unwrap();
    out
}

/// The first answer and the first refusal under a limit; and that who waits as long as it says is
/// admitted.
async fn first_and_refused(limit: &str) -> (String, String) {
    let (layer, clock) = rules(&one(limit));
    let service = Counting::new();
    // A quarter past the second, so that windows have begun and times are rounded.
    clock.advance(Duration::from_millis(250));
    let first = shown(ask(&layer, &service, get("/")).await).await;
    loop {
        let answer = ask(&layer, &service, get("/")).await;
        if answer.status() == 429 {
            let wait = header(&answer, "retry-after").map(|wait| wait.parse::<u64>().unwrap());
            let refused = shown(answer).await;
            let calls = service.calls();
            if let Some(wait) = wait {
                clock.advance(Duration::from_secs(wait));
                assert_eq!(ask(&layer, &service, get("/")).await.status(), 200, "{limit}");
                assert_eq!(service.calls(), calls + 1);
            }
            return (first, refused);
        }
        assert!(service.calls() < 100, "{limit}: nobody is refused");
    }
}

fn admitted(limit: &str, remaining: u64, reset: u64, policy: &str) -> String {
    format!(
        "200\nratelimit-policy: \"it\";{policy}\nratelimit: \"it\";r={remaining};t={reset}\n\
         x-ratelimit-limit: {limit}\nx-ratelimit-remaining: {remaining}\nx-ratelimit-reset: {reset}\n\
         hello\n"
    )
}

fn refused(limit: u64, reset: u64, retry: u64, policy: &str) -> String {
    format!(
        "429\ncache-control: no-store\ncontent-type: application/problem+json\n\
         ratelimit-policy: \"it\";{policy}\nratelimit: \"it\";r=0;t={retry}\nretry-after: {retry}\n\
         x-ratelimit-limit: {limit}\nx-ratelimit-remaining: 0\nx-ratelimit-reset: {reset}\n\
         x-ratelimit-retry-after: {retry}\n\
         {{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
         \"status\":429,\"detail\":\"the limit `it` of {limit} is reached; try again in {retry} s\",\
         \"violated-policies\":[\"it\"],\"retry_after_seconds\":{retry}}}\n"
    )
}

#[tokio::test]
async fn buckets_tell_when_the_next_token_comes() {
    for algorithm in ["token_bucket", "gcra", "leaky_bucket"] {
        let limit = format!("requests_per_unit: 4, unit: minute, algorithm: {algorithm}");
        let (first, last) = first_and_refused(&limit).await;
        assert_eq!(first, admitted("4", 3, 15, "q=4;w=60"), "{algorithm}");
        assert_eq!(last, refused(4, 60, 15, "q=4;w=60"), "{algorithm}");
    }
}

#[tokio::test]
async fn buckets_at_intervals_tell_when_the_next_interval_begins() {
    let limit = "requests_per_unit: 4, unit: minute, algorithm: token_bucket, refill: interval";
    let (first, last) = first_and_refused(limit).await;
    assert_eq!(first, admitted("4", 3, 60, "q=4;w=60"));
    assert_eq!(last, refused(4, 60, 60, "q=4;w=60"));
}

#[tokio::test]
async fn fixed_windows_tell_when_they_end() {
    // The clock shows 22:13:20 and a quarter.
    let (first, last) = first_and_refused("requests_per_unit: 4, unit: minute").await;
    assert_eq!(first, admitted("4", 3, 40, "q=4;w=60"));
    assert_eq!(last, refused(4, 40, 40, "q=4;w=60"));
}

#[tokio::test]
async fn logs_tell_when_the_oldest_goes() {
    let limit = "requests_per_unit: 4, unit: minute, algorithm: sliding_window_log";
    let (first, last) = first_and_refused(limit).await;
    assert_eq!(first, admitted("4", 3, 60, "q=4;w=60"));
    assert_eq!(last, refused(4, 60, 60, "q=4;w=60"));
}

#[tokio::test]
async fn sliding_counters_tell_when_enough_has_slid_out() {
    let limit = "requests_per_unit: 4, unit: minute, algorithm: sliding_window_counter";
    let (first, last) = first_and_refused(limit).await;
    // 4 of the window that ends in 39.75 s; after a nanosecond of the next one 3.99 are left.
    assert_eq!(first, admitted("4", 3, 40, "q=4;w=60"));
    assert_eq!(last, refused(4, 85, 40, "q=4;w=60"));
}

#[tokio::test]
async fn permits_have_no_time() {
    let (layer, _clock) = rules(&one("requests_per_unit: 1, algorithm: concurrency, lease: none"));
    let service = Counting::new();
    let first = ask(&layer, &service, get("/")).await;
    let refused = shown(ask(&layer, &service, get("/")).await).await;
    assert_eq!(
        shown(first).await,
        "200\nratelimit-policy: \"it\";q=1;qu=\"concurrent-requests\"\nratelimit: \"it\";r=0\n\
         x-ratelimit-limit: 1\nx-ratelimit-remaining: 0\nhello\n"
    );
    assert_eq!(
        refused,
        "429\ncache-control: no-store\ncontent-type: application/problem+json\n\
         ratelimit-policy: \"it\";q=1;qu=\"concurrent-requests\"\nratelimit: \"it\";r=0\n\
         x-ratelimit-limit: 1\nx-ratelimit-remaining: 0\n\
         {\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
         \"status\":429,\"detail\":\"the limit `it` of 1 is reached; try again when others have \
         ended\",\"violated-policies\":[\"it\"]}\n"
    );
}

#[tokio::test]
async fn what_is_blocked_has_no_time_either() {
    let (layer, _clock) = rules(&one("requests_per_unit: 0, unit: second"));
    let service = Counting::new();
    let answer = ask(&layer, &service, get("/")).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "retry-after")), (429, None));
    assert!(text(answer).await.contains("never admits so much"));
    assert_eq!(service.calls(), 0);
}

#[tokio::test]
async fn soft_limits_say_so() {
    let limit = "requests_per_unit: 2, unit: minute, soft: { over: 50%, for: 1h }";
    let (layer, _clock) = rules(&one(limit));
    let service = Counting::new();
    let mut soft = Vec::new();
    for _ in 0..4 {
        let answer = ask(&layer, &service, get("/")).await;
        let is_soft = header(&answer, "x-ratelimit-soft").map(str::to_owned);
        soft.push((answer.status().as_u16(), is_soft));
    }
    let one = || Some("1".to_owned());
    assert_eq!(soft, [(200, None), (200, None), (200, one()), (429, one())]);
}

#[tokio::test]
async fn limits_of_a_program_are_told_by_their_names() {
    let clock = tidegate::ManualClock::new();
    let limiter = tidegate::Limiter::builder()
        .named("burst", tidegate::Limit::per_second(5))
        .named("hourly", tidegate::Limit::per_hour(1000))
        .clock(clock)
        .build()
        .unwrap();
    let layer = tidegate_tower::TidegateLayer::new(limiter, tidegate_tower::key::everybody());
    let answer = ask(&layer, &Counting::new(), get("/")).await;
    assert_eq!(
        header(&answer, "ratelimit-policy"),
        Some("\"burst\";q=5;w=1, \"hourly\";q=1000;w=3600")
    );
    assert_eq!(header(&answer, "ratelimit"), Some("\"burst\";r=4;t=1"));
}
