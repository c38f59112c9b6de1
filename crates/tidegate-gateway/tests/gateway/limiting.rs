//! Limits in front of an upstream, and what clients are told of them.

use std::io::Write as _;
use std::sync::mpsc;
use std::time::Duration;

use http::Response;
use tidegate::headers::Field;
use tidegate::rules::{File, Options, Rules};
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter};
use tidegate_gateway::{Asked, Gate, Gateway, GatewayConfig, RefusedBody, RuleGate};

use crate::support::*;

pub(crate) type Limiter = RuleLimiter<MemoryStore, ManualClock>;

pub(crate) fn rules(text: &str) -> Rules {
    let loaded = Rules::load(&[File { name: "api.yaml", text }], &Options::default());
    loaded.rules.unwrap_or_else(|| panic!("{}", loaded.report))
}

/// A limiter whose clock tests move.
pub(crate) fn limiter(text: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter =
        RuleLimiter::build(MemoryStore::new(), clock.clone(), rules(text), Modes::default());
    (limiter.unwrap(), clock)
}

pub(crate) fn with(gate: impl Gate<Asked>, config: GatewayConfig) -> Gateway {
    let mut config = config;
    config.threads = 1;
    Gateway::start(config, gate).unwrap()
}

pub(crate) const TWO_AN_HOUR: &str = "
domain: api
http:
  - match: { path: \"/**\" }
    descriptors: [ { ip: \"${client_ip}\" } ]
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 2, unit: hour, algorithm: token_bucket } }
";

#[test]
fn clients_are_told_the_truth() {
    let upstream = echo();
    let (limiter, clock) = limiter(TWO_AN_HOUR);
    let gateway = with(RuleGate::new(limiter, "api"), GatewayConfig::to(upstream.url()));
    let ask = || curl(&["-i", &url(&gateway, "/")]);
    let limits = |answer: &str| -> Vec<String> {
        let head = answer.split_once("\r\n\r\n").unwrap().0;
        let mut lines: Vec<String> = head
            .lines()
            .filter(|line| {
                line.contains("ratelimit") || line.contains("retry") || line.contains("cache")
            })
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    let first = ask();
    assert_eq!(status(&first), "200");
    assert_eq!(
        limits(&first),
        [
            "ratelimit-policy: \"api.ip\";q=2;w=3600",
            "ratelimit: \"api.ip\";r=1;t=1800",
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 1",
            "x-ratelimit-reset: 1800",
        ]
    );
    ask();
    let refused = ask();
    assert_eq!(status(&refused), "429");
    assert_eq!(
        limits(&refused),
        [
            "cache-control: no-store",
            "ratelimit-policy: \"api.ip\";q=2;w=3600",
            "ratelimit: \"api.ip\";r=0;t=1800",
            "retry-after: 1800",
            "x-ratelimit-limit: 2",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 3600",
            "x-ratelimit-retry-after: 1800",
        ]
    );
    assert!(refused.contains("content-type: application/problem+json"), "{refused}");
    let body: serde_json::Value =
        serde_json::from_str(refused.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(body["violated-policies"], serde_json::json!(["api.ip"]));
    assert_eq!(body["retry_after_seconds"], 1800);
    // Whoever waits exactly so long is admitted.
    clock.advance(Duration::from_secs(1800));
    assert_eq!(status(&ask()), "200");
    // HEAD has the headers and no body.
    let refused = curl(&["-I", &url(&gateway, "/")]);
    assert_eq!(status(&refused), "429");
    assert!(refused.contains("retry-after: 1800"), "{refused}");
    assert_eq!(upstream.accepted(), 1);
}

#[test]
fn a_refused_connection_goes_on() {
    let upstream = echo();
    let (limiter, _) = limiter(TWO_AN_HOUR);
    let gateway = with(RuleGate::new(limiter, "api"), GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    for wanted in ["200", "200", "429", "429"] {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(status(&read_answer(&mut stream)), wanted);
    }
    // A body that nobody wants does not disturb what follows, or ends it.
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").unwrap();
    assert_eq!(status(&read_answer(&mut stream)), "429");
}

#[test]
fn what_the_upstream_says_itself_is_merged() {
    let upstream = serve(|request| async move {
        let mut response = Response::new(full(""));
        let headers = response.headers_mut();
        let is_strict = request.uri().path() == "/strict";
        let remaining = if is_strict { "0" } else { "50" };
        headers.insert("x-ratelimit-limit", "100".parse().unwrap());
        headers.insert("x-ratelimit-remaining", remaining.parse().unwrap());
        headers.insert("x-ratelimit-reset", "7".parse().unwrap());
        headers.insert("ratelimit-policy", "\"up\";q=100;w=60".parse().unwrap());
        headers.insert("ratelimit", format!("\"up\";r={remaining};t=7").parse().unwrap());
        headers.insert("access-control-expose-headers", "x-own".parse().unwrap());
        response
    });
    let (limiter, _) = limiter(TWO_AN_HOUR);
    let gateway = with(RuleGate::new(limiter, "api"), GatewayConfig::to(upstream.url()));
    let answer = curl(&["-i", "-H", "Origin: http://a", &url(&gateway, "/strict")]);
    for wanted in [
        "x-ratelimit-limit: 100",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-reset: 7",
        "ratelimit-policy: \"up\";q=100;w=60, \"api.ip\";q=2;w=3600",
        "ratelimit: \"up\";r=0;t=7, \"api.ip\";r=1;t=1800",
        "access-control-expose-headers: x-own, retry-after, ratelimit, ",
    ] {
        assert!(answer.contains(wanted), "{wanted}: {answer}");
    }
    let answer = curl(&["-i", &url(&gateway, "/")]);
    for wanted in [
        "x-ratelimit-limit: 2\r\n",
        "x-ratelimit-remaining: 0\r\n",
        "x-ratelimit-reset: 3600\r\n",
        "ratelimit: \"api.ip\";r=0;t=3600, \"up\";r=50;t=7\r\n",
        "access-control-expose-headers: x-own\r\n",
    ] {
        assert!(answer.contains(wanted), "{wanted}: {answer}");
    }
    let refused = curl(&["-i", "-H", "Origin: http://a", &url(&gateway, "/")]);
    assert_eq!(status(&refused), "429");
    assert!(
        refused.contains("access-control-expose-headers: retry-after, ratelimit, "),
        "{refused}"
    );
}

#[test]
fn some_requests_are_not_asked_about() {
    let upstream = echo();
    let (limiter, _) = limiter(TWO_AN_HOUR);
    let mut config = GatewayConfig::to(upstream.url());
    config.answers.exempt_paths = vec!["/healthz".into()];
    config.answers.jitter_seconds = 5;
    config.answers.refused_status = http::StatusCode::SERVICE_UNAVAILABLE;
    let gateway = with(RuleGate::new(limiter, "api"), config);
    for _ in 0..5 {
        assert_eq!(status(&curl(&["-i", &url(&gateway, "/healthz")])), "200");
        let preflight = curl(&[
            "-i",
            "-X",
            "OPTIONS",
            "-H",
            "Origin: http://a",
            "-H",
            "Access-Control-Request-Method: PUT",
            &url(&gateway, "/"),
        ]);
        assert_eq!(status(&preflight), "200");
        assert!(!preflight.contains("ratelimit"), "{preflight}");
    }
    let statuses: Vec<String> =
        (0..3).map(|_| status(&curl(&["-i", &url(&gateway, "/")])).to_owned()).collect();
    assert_eq!(statuses, ["200", "200", "503"]);
    let retry: u64 = curl(&["-o", "/dev/null", "-w", "%header{retry-after}", &url(&gateway, "/")])
        .parse()
        .unwrap();
    assert!((1800..=1805).contains(&retry), "{retry}");
}

#[tokio::test]
async fn grpc_is_refused_in_its_own_words() {
    let upstream = crate::secure::grpc_server();
    let (limiter, _) = limiter(TWO_AN_HOUR);
    let config = GatewayConfig::to(format!("h2c://{upstream}"));
    let gateway = with(RuleGate::new(limiter, "api"), config);
    for _ in 0..2 {
        crate::secure::grpc_ask(at(&gateway), "fine").await.unwrap();
    }
    let refused = crate::secure::grpc_ask(at(&gateway), "fine").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused:?}");
    assert_eq!(refused.message(), "the limit `api.ip` of 2 is reached; try again in 1800 s");
    assert_eq!(refused.metadata().get("retry-after").unwrap(), "1800");
    assert_eq!(refused.metadata().get("ratelimit").unwrap(), "\"api.ip\";r=0;t=1800");
}

#[test]
fn costs_are_settled_by_the_answer() {
    let upstream = serve(|request| async move {
        let path = request.uri().path().to_owned();
        let mut response = Response::new(full(""));
        match path.as_str() {
            "/free" => *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR,
            "/plain" => {}
            cost => {
                let cost = cost.trim_start_matches('/').parse().unwrap();
                response.headers_mut().insert("x-cost", cost);
            }
        }
        response
    });
    let (limiter, _) = limiter(
        "
domain: api
http: [ { match: { path: \"/**\" }, descriptors: [ { ip: \"${client_ip}\" } ] } ]
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 100, unit: hour, algorithm: fixed_window } }
",
    );
    let mut config = GatewayConfig::to(upstream.url());
    config.answers.cost = 10;
    config.answers.cost_header = Some(http::HeaderName::from_static("x-cost"));
    config.answers.free_statuses = vec![500..=599];
    let gateway = with(RuleGate::new(limiter, "api"), config);
    // Told before the cost is known: what was reserved has been taken.
    let ask = |path: &str| {
        curl(&["-o", "/dev/null", "-w", "%header{x-ratelimit-remaining}", &url(&gateway, path)])
    };
    assert_eq!(ask("/3"), "90");
    assert_eq!(ask("/free"), "87");
    assert_eq!(ask("/plain"), "87");
    assert_eq!(ask("/25"), "77");
    assert_eq!(ask("/plain"), "52");
}

#[test]
fn places_in_flight_come_back_when_an_answer_is_over() {
    let (tell, told) = mpsc::channel();
    let (let_go, go) = tokio::sync::watch::channel(false);
    let upstream = serve(move |_| {
        tell.send(()).unwrap();
        let mut go = go.clone();
        async move {
            go.wait_for(|go| *go).await.unwrap();
            Response::new(full("done"))
        }
    });
    let (limiter, _) = limiter(
        "
domain: api
http: [ { match: { path: \"/**\" }, descriptors: [ { ip: \"${client_ip}\" } ] } ]
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 1, algorithm: concurrency } }
",
    );
    let gateway = with(RuleGate::new(limiter.clone(), "api"), GatewayConfig::to(upstream.url()));
    let first = url(&gateway, "/");
    // One that leaves before its answer gives its place back as well.
    let mut leaving = connect(&gateway);
    leaving.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    told.recv_timeout(GUARD).unwrap();
    assert_eq!(status(&curl(&["-i", &first])), "429");
    drop(leaving);
    until("its place is free", || gateway.connections() == 0);
    let staying = std::thread::spawn(move || curl(&[&first]));
    told.recv_timeout(GUARD).unwrap();
    let refused = curl(&["-i", &url(&gateway, "/")]);
    assert_eq!(status(&refused), "429");
    assert!(refused.contains("qu=\"concurrent-requests\""), "{refused}");
    let_go.send(true).unwrap();
    assert_eq!(staying.join().unwrap(), "done");
    assert_eq!(curl(&[&url(&gateway, "/")]), "done");
}

#[test]
fn requests_that_may_wait_do_and_leave_in_order() {
    let (tell, told) = mpsc::channel();
    let upstream = serve(move |request| {
        tell.send(request.uri().path().to_owned()).unwrap();
        async { Response::new(full("")) }
    });
    let (limiter, clock) = limiter(
        "
domain: api
http: [ { match: { path: \"/**\" }, descriptors: [ { ip: \"${client_ip}\" } ] } ]
descriptors:
  - key: ip
    rate_limit: { requests_per_unit: 1, unit: second, algorithm: leaky_bucket, queue: { size: 5, max_delay: 9s }, excess: delay }
",
    );
    let gateway = with(RuleGate::new(limiter.clone(), "api"), GatewayConfig::to(upstream.url()));
    let mut streams = Vec::new();
    for n in 0..6 {
        let mut stream = connect(&gateway);
        write!(stream, "GET /{n} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        if n > 0 {
            until("it waits", || limiter.held() == n);
        } else {
            assert_eq!(told.recv_timeout(GUARD).unwrap(), "/0");
        }
        streams.push(stream);
    }
    // The queue is full.
    let refused = curl(&["-i", &url(&gateway, "/full")]);
    assert_eq!(status(&refused), "429");
    // Who leaves frees a place, and the others move up: four slots are enough for them.
    drop(streams.remove(2));
    until("one has left", || limiter.held() == 4);
    for (left, name) in [(3, "/1"), (2, "/3"), (1, "/4"), (0, "/5")] {
        clock.advance(Duration::from_millis(999));
        assert_eq!(limiter.held(), left + 1);
        clock.advance(Duration::from_millis(1));
        assert_eq!(told.recv_timeout(GUARD).unwrap(), name);
        until("it has gone on", || limiter.held() == left);
    }
    for stream in &mut streams {
        assert_eq!(status(&read_all(stream)), "200");
    }
    assert!(told.try_recv().is_err(), "somebody was sent on twice");
}

#[test]
fn clients_can_be_told_otherwise() {
    let upstream = echo();
    let (limiter, _) = limiter(TWO_AN_HOUR);
    let mut config = GatewayConfig::to(upstream.url());
    let answers = &mut config.answers;
    answers.refused_status = http::StatusCode::IM_A_TEAPOT;
    answers.refused_body = Some(RefusedBody {
        content_type: http::HeaderValue::from_static("text/plain"),
        text: "slow down".into(),
    });
    answers.rename(Field::Remaining, http::HeaderName::from_static("x-left"));
    answers.leave_out(Field::Limit).leave_out(Field::Policy).leave_out(Field::RateLimit);
    let gateway = with(RuleGate::new(limiter, "api"), config);
    let answer = curl(&["-i", "-H", "Origin: http://a", &url(&gateway, "/")]);
    assert_eq!(status(&answer), "200");
    assert!(answer.contains("x-left: 1\r\n"), "{answer}");
    let names = "x-left, x-ratelimit-reset, retry-after, x-ratelimit-retry-after, x-ratelimit-soft";
    let exposed = format!("access-control-expose-headers: {names}\r\n");
    assert!(answer.contains(&exposed), "{answer}");
    for other in ["x-ratelimit-limit:", "x-ratelimit-remaining:", "\r\nratelimit"] {
        assert!(!answer.contains(other), "{other}: {answer}");
    }
    curl(&[&url(&gateway, "/")]);
    let refused = curl(&["-i", &url(&gateway, "/")]);
    assert_eq!(status(&refused), "418");
    assert!(refused.contains("content-type: text/plain\r\n"), "{refused}");
    assert!(refused.ends_with("\r\n\r\nslow down"), "{refused}");
}

#[test]
fn what_never_reached_an_upstream_is_given_back_where_its_status_is_free() {
    for (is_free, wanted) in [(true, ["502", "502", "502"]), (false, ["502", "502", "429"])] {
        let (limiter, _) = limiter(TWO_AN_HOUR);
        let mut config = GatewayConfig::to(format!("http://{}", nobody()));
        if is_free {
            config.answers.free_statuses = vec![502..=504];
        }
        let gateway = with(RuleGate::new(limiter, "api"), config);
        let statuses: Vec<String> =
            (0..3).map(|_| status(&curl(&["-i", &url(&gateway, "/")])).to_owned()).collect();
        assert_eq!(statuses, wanted);
    }
}
