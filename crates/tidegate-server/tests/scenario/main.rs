//! One scenario through the library, gRPC, HTTP and RESP: every front end gives every answer of the
//! engine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tidegate::rules::{Descriptor, Entry, File, Options, Rules};
use tidegate::{
    ManualClock, MemoryStore, Modes, Op, Query, Retry, RuleLimiter, Source, Store, Timestamp,
    Verdict,
};
use tidegate_proto::{
    Code, Entry as WireEntry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient,
};
use tidegate_server::{Address, Config, Server, Service, ServiceClock};

const RULES: &str = include_str!("rules.yaml");
const REQUESTS: &str = include_str!("requests.jsonl");

#[derive(Deserialize)]
struct Line {
    t_ns: u64,
    domain: String,
    descriptors: Vec<Vec<(String, String)>>,
    #[serde(default = "one")]
    cost: u32,
}

fn one() -> u32 {
    1
}

/// An engine of its own, by a clock of its own.
fn limits<S: Store + From<MemoryStore>>() -> (RuleLimiter<S, ServiceClock>, ManualClock) {
    let loaded = Rules::load(&[File { name: "rules.yaml", text: RULES }], &Options::default());
    assert!(loaded.report.is_ok() && loaded.report.warnings.is_empty(), "{}", loaded.report);
    let clock = ManualClock::new();
    let service_clock = ServiceClock::Manual(clock.clone());
    let limiter = RuleLimiter::build(
        MemoryStore::new().into(),
        service_clock,
        loaded.rules.unwrap(),
        Modes::default(),
    );
    (limiter.unwrap(), clock)
}

async fn server() -> (Server, ManualClock) {
    let (limits, clock) = limits();
    let any = || Address::Tcp("127.0.0.1:0".into());
    let mut config = Config::default();
    (config.grpc, config.http, config.resp) = (any(), any(), any());
    let server = Server::start(Arc::new(Service::new(limits, 0.8)), config).await.unwrap();
    (server, clock)
}

fn lines() -> Vec<Line> {
    REQUESTS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the library says to each line.
fn verdicts(lines: &[Line]) -> Vec<Verdict> {
    let (limiter, clock) = limits::<MemoryStore>();
    let ask = |line: &Line| {
        let entries: Vec<Vec<Entry<'_>>> = line
            .descriptors
            .iter()
            .map(|pairs| pairs.iter().map(|(key, value)| Entry::new(key, value)).collect())
            .collect();
        let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
        clock.set(Timestamp::from_nanos(line.t_ns));
        limiter.ask(Op::Check, &Query::new(&line.domain, &descriptors).cost(line.cost.into()))
    };
    lines.iter().map(ask).collect()
}

#[test]
fn the_scenario_is_worth_telling() {
    let lines = lines();
    let verdicts = verdicts(&lines);
    let refused = verdicts.iter().filter(|verdict| !verdict.allowed).count();
    assert!((100..300).contains(&refused), "{refused} of {} refused", lines.len());
    let all = || verdicts.iter().flat_map(|verdict| &verdict.limits);
    assert!(all().any(|it| it.decision.soft));
    assert!(all().any(|it| it.decision.source == Source::Shadow && !it.decision.allowed));
    assert!(verdicts.iter().any(|verdict| !verdict.knows_domain));
    assert!(all().any(|it| it.decision.retry == Retry::Never));
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_answers_as_the_library() {
    let (server, clock) = server().await;
    let url = format!("http://{}", server.bound().grpc);
    let mut client = RateLimitServiceClient::connect(url).await.unwrap();
    let lines = lines();
    for ((line, verdict), number) in lines.iter().zip(verdicts(&lines)).zip(1..) {
        clock.set(Timestamp::from_nanos(line.t_ns));
        let descriptor = |pairs: &Vec<(String, String)>| {
            let entries = pairs.iter().cloned().map(|(key, value)| WireEntry { key, value });
            RateLimitDescriptor { entries: entries.collect(), ..Default::default() }
        };
        let request = RateLimitRequest {
            domain: line.domain.clone(),
            descriptors: line.descriptors.iter().map(descriptor).collect(),
            hits_addend: line.cost,
        };
        let answer = client.should_rate_limit(request).await.unwrap().into_inner();
        assert_eq!(answer.overall_code() == Code::Ok, verdict.allowed, "line {number}");
        assert_eq!(answer.statuses.len(), line.descriptors.len(), "line {number}");
        let reported = verdict.reported_each();
        for (descriptor, (status, reported)) in answer.statuses.iter().zip(&reported).enumerate() {
            let Some(reported) = reported else { continue };
            let decision = &reported.decision;
            let is_ok = decision.allowed || decision.source == Source::Shadow;
            assert_eq!(status.code() == Code::Ok, is_ok, "line {number}, {descriptor}");
            let remaining = u64::from(status.limit_remaining);
            assert_eq!(remaining, decision.remaining, "line {number}, {descriptor}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_answers_as_the_library() {
    let (server, clock) = server().await;
    let mut stream = TcpStream::connect(server.bound().http.to_string()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let lines = lines();
    for ((line, verdict), number) in lines.iter().zip(verdicts(&lines)).zip(1..) {
        clock.set(Timestamp::from_nanos(line.t_ns));
        let descriptors =
            line.descriptors.iter().map(|pairs| serde_json::json!({"entries": pairs}));
        let body = serde_json::json!({
            "domain": line.domain,
            "descriptors": descriptors.collect::<Vec<_>>(),
            "cost": line.cost,
        })
        .to_string();
        let length = body.len();
        // Checks of domains that nobody knows are errors over HTTP; elsewhere nothing limits them.
        let request =
            format!("POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let (status, body) = read_http(&mut reader);
        if !verdict.knows_domain {
            assert_eq!(status, 404, "line {number}");
            continue;
        }
        assert_eq!(status, if verdict.allowed { 200 } else { 429 }, "line {number}");
        assert_eq!(body, verdict.to_json(), "line {number}");
    }
}

fn read_http(reader: &mut BufReader<TcpStream>) -> (u16, String) {
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_lowercase();
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().unwrap();
        }
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn resp_answers_as_the_library() {
    let (server, clock) = server().await;
    let mut stream = TcpStream::connect(server.bound().resp.to_string()).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let lines = lines();
    for ((line, verdict), number) in lines.iter().zip(verdicts(&lines)).zip(1..) {
        clock.set(Timestamp::from_nanos(line.t_ns));
        let mut words = vec!["TIDEGATE.CHECK".to_owned(), line.domain.clone()];
        for (index, pairs) in line.descriptors.iter().enumerate() {
            if index > 0 {
                words.push("AND".into());
            }
            words.extend(pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]));
        }
        words.extend(["COST".to_owned(), line.cost.to_string()]);
        let parts = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let command = format!("*{}\r\n{}", words.len(), parts.collect::<String>());
        stream.write_all(command.as_bytes()).unwrap();
        if !verdict.knows_domain {
            let mut error = String::new();
            reader.read_line(&mut error).unwrap();
            assert!(error.starts_with("-NODOMAIN"), "line {number}: {error}");
            continue;
        }
        let answer = read_resp(&mut reader);
        assert_eq!(answer[0] == "1", verdict.allowed, "line {number}: {answer:?}");
        // The numbers are those of the request as a whole, the name that of the limit to report.
        let (Some(reported), Some(decision)) = (verdict.reported(), verdict.decision) else {
            continue;
        };
        let retry = match decision.retry.after() {
            Some(wait) => milliseconds(wait).to_string(),
            None => "-1".to_owned(),
        };
        let wanted = [
            reported.decision.limit.to_string(),
            decision.remaining.to_string(),
            retry,
            milliseconds(decision.reset_after.unwrap()).to_string(),
            verdict.rule_id(reported).into_owned(),
        ];
        assert_eq!(answer[1..], wanted, "line {number}");
    }
}

fn milliseconds(time: Duration) -> u128 {
    time.as_nanos().div_ceil(1_000_000)
}

/// The six parts of an answer.
fn read_resp(reader: &mut BufReader<TcpStream>) -> Vec<String> {
    let mut next = || {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    assert_eq!(next(), "*6");
    let mut parts: Vec<String> =
        (0..5).map(|_| next().trim_start_matches(':').to_owned()).collect();
    let length = next();
    parts.push(if length == "$-1" { String::new() } else { next() });
    parts
}
