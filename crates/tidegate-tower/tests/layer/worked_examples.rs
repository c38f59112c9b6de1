//! The nine limits of `examples/rules.yaml`, over HTTP.

use std::net::IpAddr;
use std::time::Duration;

use http::Request;
use tidegate_tower::{PeerAddr, TidegateLayer};

use crate::{Body, Counting, ManualRules, ask, rules};

const RULES: &str = include_str!("../../../../examples/rules.yaml");
const DAY: Duration = Duration::from_secs(86_400);
/// The clock shows 23:13:20 on a Tuesday in Berlin.
const REST_OF_DAY: Duration = Duration::from_secs(46 * 60 + 40);
/// And 22:13:20 in UTC.
const REST_OF_UTC_DAY: Duration = Duration::from_secs(3600 + 46 * 60 + 40);

struct Traffic {
    layer: ManualRules,
    service: Counting,
}

impl Traffic {
    /// How many of so many requests are admitted.
    async fn admitted(&self, times: usize, request: impl Fn() -> Request<Body>) -> usize {
        let mut admitted = 0;
        for _ in 0..times {
            let answer = ask(&self.layer, &self.service, request()).await;
            assert!(matches!(answer.status().as_u16(), 200 | 429), "{:?}", answer.status());
            admitted += usize::from(answer.status() == 200);
        }
        admitted
    }
}

fn traffic() -> (Traffic, tidegate::ManualClock) {
    let (layer, clock) = rules(RULES);
    (Traffic { layer, service: Counting::new() }, clock)
}

fn post(path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let request = Request::post(path);
    let request =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::default()).unwrap()
}

fn from(address: &str, mut request: Request<Body>) -> Request<Body> {
    request.extensions_mut().insert(PeerAddr(address.parse::<IpAddr>().unwrap()));
    request
}

#[tokio::test]
async fn e1_two_articles_in_any_second_for_each_user() {
    let (traffic, clock) = traffic();
    let ada = || post("/v1/articles", &[("x-user-id", "ada")]);
    assert_eq!(traffic.admitted(5, ada).await, 2);
    assert_eq!(traffic.admitted(5, || post("/v1/articles", &[("x-user-id", "bob")])).await, 2);
    clock.advance(Duration::from_nanos(999_999_999));
    assert_eq!(traffic.admitted(1, ada).await, 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(traffic.admitted(5, ada).await, 2);
    // Nobody publishes without saying who it is.
    assert_eq!(traffic.admitted(1, || post("/v1/articles", &[])).await, 0);
}

#[tokio::test]
async fn e2_ten_accounts_a_day_for_each_address() {
    let (traffic, clock) = traffic();
    let one = || from("198.51.100.7", post("/v1/accounts", &[]));
    assert_eq!(traffic.admitted(15, one).await, 10);
    let other = || from("198.51.100.8", post("/v1/accounts", &[]));
    assert_eq!(traffic.admitted(15, other).await, 10);
    assert_eq!(traffic.admitted(15, || from("192.0.2.9", post("/v1/accounts", &[]))).await, 15);
    let v6 = ["2001:db8::1", "2001:db8::2"];
    let mut admitted = 0;
    for address in v6 {
        admitted += traffic.admitted(8, || from(address, post("/v1/accounts", &[]))).await;
    }
    assert_eq!(admitted, 10, "a network of 64 bits is one customer");
    clock.advance(REST_OF_DAY - Duration::from_nanos(1));
    assert_eq!(traffic.admitted(1, one).await, 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(traffic.admitted(15, one).await, 10);
}

#[tokio::test]
async fn e3_five_rewards_a_week_for_each_device() {
    let (traffic, clock) = traffic();
    let claim = || post("/v1/rewards", &[("x-device-id", "d1")]);
    assert_eq!(traffic.admitted(9, claim).await, 5);
    // Tuesday night; weeks begin on Mondays.
    clock.advance(REST_OF_UTC_DAY + DAY * 5 - Duration::from_nanos(1));
    assert_eq!(traffic.admitted(1, claim).await, 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(traffic.admitted(9, claim).await, 5);
}

#[tokio::test]
async fn e4_three_hundred_tweets_in_three_hours() {
    let (traffic, _clock) = traffic();
    let tweet = || post("/v1/tweets", &[("x-user-id", "ada")]);
    assert_eq!(traffic.admitted(400, tweet).await, 300);
}

#[tokio::test]
async fn e5_three_buckets_for_each_user() {
    let (traffic, clock) = traffic();
    let social =
        |what: &'static str| move || post(&format!("/v1/social/{what}"), &[("x-user-id", "ada")]);
    assert_eq!(traffic.admitted(3, social("posts")).await, 1);
    assert_eq!(traffic.admitted(200, social("friends")).await, 150);
    assert_eq!(traffic.admitted(9, social("likes")).await, 5);
    clock.advance(REST_OF_UTC_DAY);
    assert_eq!(traffic.admitted(3, social("posts")).await, 1);
}

#[tokio::test]
async fn e6_one_bucket_for_the_whole_system() {
    let (traffic, clock) = traffic();
    let anything = || Request::get("/anything").body(Body::default()).unwrap();
    assert_eq!(traffic.admitted(10_500, anything).await, 10_000);
    clock.advance(Duration::from_millis(1));
    assert_eq!(traffic.admitted(20, anything).await, 10);
}

#[tokio::test]
async fn e7_the_third_request_of_a_second_gets_429() {
    let (traffic, clock) = traffic();
    let status = || Request::get("/v1/status").body(Body::default()).unwrap();
    assert_eq!(traffic.admitted(2, status).await, 2);
    let third = ask(&traffic.layer, &traffic.service, status()).await;
    assert_eq!(third.status(), 429);
    assert_eq!(third.headers()["retry-after"], "1");
    clock.advance(Duration::from_secs(1));
    assert_eq!(traffic.admitted(3, status).await, 2);
}

#[tokio::test]
async fn e8_five_per_second_in_bursts_of_ten_for_all_and_for_each() {
    let (traffic, clock) = traffic();
    let search = |address: &'static str| {
        move || from(address, Request::get("/v1/search?q=x").body(Body::default()).unwrap())
    };
    assert_eq!(traffic.admitted(15, search("198.51.100.7")).await, 10);
    assert_eq!(traffic.admitted(5, search("198.51.100.8")).await, 0, "the endpoint is full");
    clock.advance(Duration::from_secs(1));
    assert_eq!(traffic.admitted(9, search("198.51.100.8")).await, 5);
    // A refusal by one of the two limits has taken nothing from the other.
    clock.advance(Duration::from_secs(2));
    assert_eq!(traffic.admitted(20, search("198.51.100.9")).await, 10);
}

#[tokio::test]
async fn e9_five_marketing_messages_a_day_for_each_number() {
    let (traffic, _clock) = traffic();
    let message = |kind: &'static str, number: &'static str| {
        move || post("/v1/messages", &[("x-message-type", kind), ("x-to-number", number)])
    };
    assert_eq!(traffic.admitted(9, message("marketing", "1")).await, 5);
    assert_eq!(traffic.admitted(9, message("marketing", "2")).await, 5);
    assert_eq!(traffic.admitted(9, message("alert", "1")).await, 9);
}

#[test]
fn the_file_makes_a_layer() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rules.yaml");
    assert_eq!(TidegateLayer::from_rules_file(file).unwrap().gate().domain(), "examples");
    assert_eq!(TidegateLayer::from_rules(RULES).unwrap().gate().domain(), "examples");
}
