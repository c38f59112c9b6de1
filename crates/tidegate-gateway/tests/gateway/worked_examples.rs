//! The nine limits of `examples/rules.yaml` through a gateway, by a clock that is moved by hand.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use tidegate::rules::{File, Options, Rules};
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter};
use tidegate_gateway::{Gateway, GatewayConfig};
use tidegate_http::RuleGate;

use crate::support::{Server, connect, read_answer, serve, status};

const RULES: &str = include_str!("../../../../examples/rules.yaml");
const DAY: Duration = Duration::from_secs(86_400);
/// The clock shows 23:13:20 on a Tuesday in Berlin.
const REST_OF_DAY: Duration = Duration::from_secs(46 * 60 + 40);
/// And 22:13:20 in UTC.
const REST_OF_UTC_DAY: Duration = Duration::from_secs(3600 + 46 * 60 + 40);

struct Traffic {
    gateway: Gateway,
    connection: TcpStream,
    clock: ManualClock,
    _upstream: Server,
}

impl Traffic {
    fn start() -> Self {
        let upstream = serve(|_| async { http::Response::new(crate::support::full("hello")) });
        let loaded = Rules::load(&[File { name: "rules.yaml", text: RULES }], &Options::default());
        let rules = loaded.rules.unwrap_or_else(|| panic!("{}", loaded.report));
        let clock = ManualClock::new();
        let limiter =
            RuleLimiter::build(MemoryStore::new(), clock.clone(), rules, Modes::default()).unwrap();
        let mut config = GatewayConfig::to(upstream.url());
        config.threads = 1;
        // Who a request is from is said by the test.
        config.trusted_proxies = vec!["127.0.0.1".into()];
        let gateway = Gateway::start(config, RuleGate::new(limiter, "examples")).unwrap();
        let connection = connect(&gateway);
        Self { gateway, connection, clock, _upstream: upstream }
    }

    fn ask(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> String {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: api.example\r\n");
        headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
        if method == "POST" {
            head.push_str("content-length: 0\r\n");
        }
        head.push_str("\r\n");
        self.connection.write_all(head.as_bytes()).unwrap();
        read_answer(&mut self.connection)
    }

    /// How many of so many requests are admitted.
    fn admitted(&mut self, times: usize, request: (&str, &str, &[(&str, &str)])) -> usize {
        let (method, path, headers) = request;
        let mut admitted = 0;
        for _ in 0..times {
            let answer = self.ask(method, path, headers);
            assert!(matches!(status(&answer), "200" | "429"), "{answer}");
            admitted += usize::from(status(&answer) == "200");
        }
        admitted
    }
}

#[test]
fn e1_two_articles_in_any_second_for_each_user() {
    let mut traffic = Traffic::start();
    let ada = ("POST", "/v1/articles", &[("x-user-id", "ada")][..]);
    assert_eq!(traffic.admitted(5, ada), 2);
    assert_eq!(traffic.admitted(5, ("POST", "/v1/articles", &[("x-user-id", "bob")])), 2);
    traffic.clock.advance(Duration::from_nanos(999_999_999));
    assert_eq!(traffic.admitted(1, ada), 0);
    traffic.clock.advance(Duration::from_nanos(1));
    assert_eq!(traffic.admitted(5, ada), 2);
    // Nobody publishes without saying who it is.
    assert_eq!(traffic.admitted(1, ("POST", "/v1/articles", &[])), 0);
}

#[test]
fn e2_ten_accounts_a_day_for_each_address() {
    let mut traffic = Traffic::start();
    let one = ("POST", "/v1/accounts", &[("x-forwarded-for", "198.51.100.7")][..]);
    assert_eq!(traffic.admitted(15, one), 10);
    let other = ("POST", "/v1/accounts", &[("x-forwarded-for", "198.51.100.8")][..]);
    assert_eq!(traffic.admitted(15, other), 10);
    let office = ("POST", "/v1/accounts", &[("x-forwarded-for", "192.0.2.9")][..]);
    assert_eq!(traffic.admitted(15, office), 15);
    traffic.clock.advance(REST_OF_DAY - Duration::from_nanos(1));
    assert_eq!(traffic.admitted(1, one), 0);
    traffic.clock.advance(Duration::from_nanos(1));
    assert_eq!(traffic.admitted(15, one), 10);
}

#[test]
fn e3_five_rewards_a_week_for_each_device() {
    let mut traffic = Traffic::start();
    let claim = ("POST", "/v1/rewards", &[("x-device-id", "d1")][..]);
    assert_eq!(traffic.admitted(9, claim), 5);
    // Tuesday night; weeks begin on Mondays.
    traffic.clock.advance(REST_OF_UTC_DAY + DAY * 5 - Duration::from_nanos(1));
    assert_eq!(traffic.admitted(1, claim), 0);
    traffic.clock.advance(Duration::from_nanos(1));
    assert_eq!(traffic.admitted(9, claim), 5);
}

#[test]
fn e4_three_hundred_tweets_in_three_hours() {
    let mut traffic = Traffic::start();
    assert_eq!(traffic.admitted(400, ("POST", "/v1/tweets", &[("x-user-id", "ada")])), 300);
}

#[test]
fn e5_three_buckets_for_each_user() {
    let mut traffic = Traffic::start();
    let ada = &[("x-user-id", "ada")][..];
    assert_eq!(traffic.admitted(3, ("POST", "/v1/social/posts", ada)), 1);
    assert_eq!(traffic.admitted(200, ("POST", "/v1/social/friends", ada)), 150);
    assert_eq!(traffic.admitted(9, ("POST", "/v1/social/likes", ada)), 5);
    traffic.clock.advance(REST_OF_UTC_DAY);
    assert_eq!(traffic.admitted(3, ("POST", "/v1/social/posts", ada)), 1);
}

#[test]
fn e6_one_bucket_for_the_whole_system() {
    let mut traffic = Traffic::start();
    assert_eq!(traffic.admitted(10_500, ("GET", "/anything", &[])), 10_000);
    traffic.clock.advance(Duration::from_millis(1));
    assert_eq!(traffic.admitted(20, ("GET", "/anything", &[])), 10);
}

#[test]
fn e7_the_third_request_of_a_second_gets_429() {
    let mut traffic = Traffic::start();
    assert_eq!(traffic.admitted(2, ("GET", "/v1/status", &[])), 2);
    let third = traffic.ask("GET", "/v1/status", &[]);
    assert!(third.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{third}");
    assert!(third.contains("\r\nretry-after: 1\r\n"), "{third}");
    traffic.clock.advance(Duration::from_secs(1));
    assert_eq!(traffic.admitted(3, ("GET", "/v1/status", &[])), 2);
    assert_eq!(traffic.gateway.connections(), 1, "all by one connection");
}

#[test]
fn e8_five_per_second_in_bursts_of_ten_for_all_and_for_each() {
    let mut traffic = Traffic::start();
    let search = |traffic: &mut Traffic, times: usize, address: &str| {
        traffic.admitted(times, ("GET", "/v1/search?q=x", &[("x-forwarded-for", address)]))
    };
    assert_eq!(search(&mut traffic, 15, "198.51.100.7"), 10);
    assert_eq!(search(&mut traffic, 5, "198.51.100.8"), 0, "the endpoint is full");
    traffic.clock.advance(Duration::from_secs(1));
    assert_eq!(search(&mut traffic, 9, "198.51.100.8"), 5);
    // A refusal by one of the two limits has taken nothing from the other.
    traffic.clock.advance(Duration::from_secs(2));
    assert_eq!(search(&mut traffic, 20, "198.51.100.9"), 10);
}

#[test]
fn e9_five_marketing_messages_a_day_for_each_number() {
    let mut traffic = Traffic::start();
    let send = |traffic: &mut Traffic, kind: &str, number: &str| {
        let headers = [("x-message-type", kind), ("x-to-number", number)];
        traffic.admitted(9, ("POST", "/v1/messages", &headers))
    };
    assert_eq!(send(&mut traffic, "marketing", "1"), 5);
    assert_eq!(send(&mut traffic, "marketing", "2"), 5);
    assert_eq!(send(&mut traffic, "alert", "1"), 9);
}
