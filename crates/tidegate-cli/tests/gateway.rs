//! `tidegate serve --upstream`: the gateway as it is started, with real clients and upstreams.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use support::serving::{PATIENCE, Serving};
use support::{Folder, tidegate};

const RULES: &str = "
domain: api
http:
  - match: { path: /login }
    descriptors: [ { login: \"${client_ip}\" } ]
  - match: { path: /ask }
    descriptors: [ { ask: \"${header.x-user:-anon}\" } ]
descriptors:
  - { key: login, rate_limit: { requests_per_unit: 2, unit: day } }
  - { key: ask, rate_limit: { requests_per_unit: 10, unit: day } }
";

/// A server that names itself and answers as the request wants: `x-want: 404` is answered by 404,
/// and so is `x-cost` by `x-cost`.
struct Upstream {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Upstream {
    fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, count) = (stream.unwrap(), Arc::clone(&count));
                std::thread::spawn(move || answer_all(name, stream, &count));
            }
        });
        Self { address, asked }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer_all(name: &str, stream: TcpStream, count: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut status, mut cost) = ("200".to_owned(), String::new());
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end().split_once(": ") {
                Some(("x-want", wanted)) => status = wanted.to_owned(),
                Some(("x-cost", told)) => cost = format!("x-cost: {told}\r\n"),
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        count.fetch_add(1, Ordering::SeqCst);
        let length = name.len();
        let answer = format!("HTTP/1.1 {status} x\r\n{cost}content-length: {length}\r\n\r\n{name}");
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A gateway with rules and flags.
fn gateway(upstream: &str, rules: &str, flags: &[&str]) -> (Serving, Folder) {
    let folder = Folder::new(&[("rules.yaml", rules)]);
    let path = folder.path().join("rules.yaml");
    let mut arguments = vec!["--gateway", "127.0.0.1:0", "--upstream", upstream];
    arguments.extend(["--rules", path.to_str().unwrap()]);
    arguments.extend(flags);
    (Serving::start(&arguments), folder)
}

/// Asks a gateway by a connection of its own: the head and the body of the answer.
fn get(serving: &Serving, path: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(serving.address("gateway")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{headers}\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn status(serving: &Serving, path: &str, headers: &str) -> u16 {
    get(serving, path, headers).0.split(' ').nth(1).unwrap().parse().unwrap()
}

fn remaining(head: &str) -> u64 {
    let value = head.lines().find_map(|line| line.strip_prefix("x-ratelimit-remaining: "));
    value.unwrap_or_else(|| panic!("{head}")).parse().unwrap()
}

#[test]
fn a_proxy_with_limits_by_one_command() {
    let upstream = Upstream::start("behind");
    let (mut serving, _folder) = gateway(&upstream.url(), RULES, &[]);
    assert!(serving.ready.contains(" gateway=127.0.0.1:"), "{}", serving.ready);
    let (head, body) = get(&serving, "/login", "");
    assert!(head.starts_with("HTTP/1.1 200 ") && body == "behind", "{head}");
    assert_eq!(remaining(&head), 1);
    assert_eq!(status(&serving, "/login", ""), 200);
    let (head, body) = get(&serving, "/login", "");
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert!(head.contains("\r\nretry-after: ") && body.contains("\"status\":429"), "{head} {body}");
    assert_eq!(status(&serving, "/elsewhere", ""), 200, "no rule speaks of it");
    assert_eq!(upstream.asked(), 3, "who is refused does not get there");

    // The other front ends know of the same limits, and metrics of the gateway.
    let check = r#"{"domain":"api","descriptors":[{"entries":[["login","127.0.0.1"]]}]}"#;
    assert_eq!(serving.http("POST", "/v1/check", check).0, 429);
    let (_, metrics) = serving.http("GET", "/metrics", "");
    for line in [
        "tidegate_decisions_total{domain=\"api\",rule=\"api.login\",outcome=\"allowed\",source=\"store\",front_end=\"gateway\"} 2",
        "tidegate_decisions_total{domain=\"api\",rule=\"api.login\",outcome=\"refused\",source=\"store\",front_end=\"gateway\"} 1",
        &format!("tidegate_gateway_upstream_up{{upstream=\"default {}\"}} 1", upstream.address),
        "tidegate_held 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert_eq!(serving.terminate().code(), Some(0));
}

#[test]
fn routes_go_where_they_say() {
    let (web, api) = (Upstream::start("web"), Upstream::start("api"));
    let named = [format!("web={}", web.url()), format!("api={}", api.url())];
    let flags = ["--upstream", &named[1], "--route", "/** web", "--route", "/api/** api"];
    let flags: Vec<&str> =
        flags.into_iter().chain(["--route", "other.example/** api response=5s"]).collect();
    let (serving, _folder) = gateway(&named[0], RULES, &flags);
    assert_eq!(get(&serving, "/", "").1, "web");
    assert_eq!(get(&serving, "/api/x", "").1, "api");
    let mut stream = TcpStream::connect(serving.address("gateway")).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: other.example\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\napi"), "{answer}");
}

#[test]
fn addresses_of_one_upstream_share_and_one_that_is_gone_is_left_out() {
    let (first, second) = (Upstream::start("first"), Upstream::start("second"));
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = format!("http://{gone}");
    let (mut serving, _folder) =
        gateway(&first.url(), RULES, &["--upstream", &second.url(), "--upstream", &gone]);
    for _ in 0..20 {
        assert_eq!(status(&serving, "/", ""), 200);
    }
    assert!(first.asked() >= 5 && second.asked() >= 5, "{} {}", first.asked(), second.asked());
    serving.wait_for_log("an upstream does not answer");
    let (_, metrics) = serving.http("GET", "/metrics", "");
    let gone = gone.trim_start_matches("http://");
    let up = format!("tidegate_gateway_upstream_up{{upstream=\"default {gone}\"}} 0");
    assert!(metrics.contains(&up), "{metrics}");
}

#[test]
fn answers_say_what_a_request_has_cost() {
    let upstream = Upstream::start("behind");
    let flags = ["--cost-header", "x-cost", "--free-statuses", "404,500-599"];
    let (serving, _folder) = gateway(&upstream.url(), RULES, &flags);
    let left = |headers: &str| remaining(&get(&serving, "/ask", headers).0);
    assert_eq!(left(""), 9);
    assert_eq!(left("x-cost: 5\r\n"), 8, "what it costs is known when it has been answered");
    // 1 + 5 are taken; those that follow are told what is left before they are answered.
    assert_eq!(left("x-want: 404\r\n"), 3);
    assert_eq!(left("x-want: 503\r\n"), 3, "the one before has been given back");
    assert_eq!(left("x-want: 403\r\n"), 3);
    assert_eq!(left("x-cost: 0\r\n"), 2);
    assert_eq!(left(""), 2);
}

#[test]
fn rules_say_which_outcomes_count() {
    let upstream = Upstream::start("behind");
    let rules = RULES
        .replace(
            "    descriptors: [ { login",
            "    counted_statuses: [401]\n    descriptors: [ { login",
        )
        .replace(
            "    descriptors: [ { ask",
            "    cost_header: X-Cost\n    free_statuses: [5xx]\n    descriptors: [ { ask",
        );
    let (serving, _folder) = gateway(&upstream.url(), &rules, &["--free-statuses", "401"]);
    for _ in 0..5 {
        assert_eq!(status(&serving, "/login", ""), 200, "who gets in has not failed");
    }
    assert_eq!(status(&serving, "/login", "x-want: 401\r\n"), 401);
    assert_eq!(status(&serving, "/login", ""), 200);
    assert_eq!(status(&serving, "/login", "x-want: 401\r\n"), 401);
    assert_eq!(status(&serving, "/login", ""), 429, "two have failed today");

    let left = |headers: &str| remaining(&get(&serving, "/ask", headers).0);
    assert_eq!(left("x-cost: 4\r\n"), 9);
    assert_eq!(left("x-want: 500\r\n"), 5);
    assert_eq!(left("x-want: 401\r\n"), 5, "what the settings say is for others");
    assert_eq!(left(""), 4);
}

#[test]
fn clients_are_told_as_the_settings_say() {
    let upstream = Upstream::start("behind");
    let body = Folder::new(&[("slow.txt", "slow down\n")]);
    let path = body.path().join("slow.txt");
    let flags = [
        "--refused-status",
        "503",
        "--refused-body",
        path.to_str().unwrap(),
        "--header-names",
        "x-ratelimit-limit=x-own-limit,x-ratelimit-reset=off",
        "--exempt-paths",
        "/free",
    ];
    let (serving, _folder) = gateway(&upstream.url(), &RULES.replace("/login", "/**"), &flags);
    let (head, _) = get(&serving, "/login", "");
    assert!(
        head.contains("\r\nx-own-limit: 2\r\n") && !head.contains("x-ratelimit-limit"),
        "{head}"
    );
    assert!(!head.contains("x-ratelimit-reset"), "{head}");
    assert_eq!(status(&serving, "/login", ""), 200);
    let (head, body) = get(&serving, "/login", "");
    assert!(head.starts_with("HTTP/1.1 503 ") && body == "slow down\n", "{head} {body}");
    assert!(head.contains("\r\ncontent-type: text/plain; charset=utf-8"), "{head}");
    assert_eq!(status(&serving, "/free", ""), 200);
}

#[test]
fn rules_change_under_a_gateway() {
    let upstream = Upstream::start("behind");
    let (mut serving, folder) = gateway(&upstream.url(), RULES, &[]);
    assert_eq!(status(&serving, "/login", ""), 200);
    assert_eq!(status(&serving, "/login", ""), 200);
    assert_eq!(status(&serving, "/login", ""), 429);
    folder.write("rules.yaml", RULES.replace("requests_per_unit: 2", "requests_per_unit: 3"));
    serving.wait_for_log("rules loaded");
    assert_eq!(status(&serving, "/login", ""), 200);
    assert_eq!(status(&serving, "/login", ""), 429);
    // Rules that no longer speak of the gateway's domain are loaded, since somebody wrote them, and it is said.
    folder.write("rules.yaml", RULES.replace("domain: api", "domain: other"));
    serving.wait_for_log("the gateway limits nothing");
    serving.wait_for_log("rules loaded");
}

#[test]
fn requests_under_way_are_answered_before_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (mut serving, _folder) = gateway(&url, RULES, &[]);
    let mut client = TcpStream::connect(serving.address("gateway")).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let (mut behind, _) = listener.accept().unwrap();
    let mut one = [0];
    behind.read_exact(&mut one).unwrap();
    serving.signal(Signal::TERM);
    serving.wait_for_log("draining");
    behind.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlast").unwrap();
    let mut answer = String::new();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("\r\n\r\nlast"), "{answer}");
    assert_eq!(serving.wait().code(), Some(0));
}

#[test]
fn access_logs_are_lines_of_json() {
    let upstream = Upstream::start("behind");
    let folder = Folder::new(&[]);
    let log = folder.path().join("access.log");
    let (mut serving, _rules) =
        gateway(&upstream.url(), RULES, &["--access-log", log.to_str().unwrap()]);
    for _ in 0..3 {
        get(&serving, "/login?a=1", "");
    }
    assert_eq!(serving.terminate().code(), Some(0));
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let statuses: Vec<_> = lines.iter().map(|line| line["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 200, 429], "{text}");
    assert!(lines.iter().all(|line| line["target"] == "/login?a=1"), "{text}");
}

#[test]
fn what_cannot_be_is_told_before_anything_is_served() {
    let folder = Folder::new(&[
        ("two.yaml", &RULES.replace("domain: api", "domain: other")),
        ("rules.yaml", RULES),
    ]);
    let rules = folder.path().to_str().unwrap().to_owned();
    for (flags, wanted) in [
        (&["--gateway", "127.0.0.1:0"][..], "has nowhere to send requests"),
        (&["--upstream", "nonsense"], "`nonsense` of the upstream `default` cannot be used"),
        (&["--upstream", "ftp://a"], "the scheme is none of"),
        (&["--upstream", "http://a", "--upstream", "http://a"], "`http://a` is there twice"),
        (&["--upstream", "http://a", "--upstream", "b=http://b"], "which requests go where"),
        (&["--upstream", "http://a check"], "`check` is not `name=value`"),
        (&["--upstream", "http://a every=soon"], "`every=soon` is not a duration"),
        (&["--upstream", "http://a", "--route", "/x"], "`/x` names no upstream"),
        (&["--upstream", "http://a", "--route", "/x y"], "`y` is no upstream"),
        (&["--upstream", "http://a", "--route", "/x default body=big"], "is not a size"),
        (&["--upstream", "http://a", "--free-statuses", "6xx"], "is not a list of statuses"),
        (
            &["--upstream", "http://a", "--header-names", "limit=x"],
            "names a header that is not sent",
        ),
        (&["--upstream", "http://a", "--refused-status", "200"], "is not the status of a refusal"),
        (&["--upstream", "http://a", "--gateway-max-body", "1 cup"], "is not a size"),
        (&["--upstream", "http://a", "--rules", &rules], "several domains for a gateway"),
        (
            &["--upstream", "http://a", "--rules", &rules, "--gateway-domain", "no"],
            "the rules have no domain `no`",
        ),
    ] {
        let off = ["serve", "--http", "off", "--grpc", "off", "--resp", "off"];
        let flags: Vec<&str> = off.iter().chain(flags).copied().collect();
        let output = tidegate(&flags);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(wanted), "{flags:?}: {said}");
    }
}

#[test]
fn curl_sees_a_gateway_over_tls_and_http2() {
    let upstream = Upstream::start("behind");
    let folder = Folder::new(&[]);
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext"])
        .args(["subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{made:?}");
    let flags =
        ["--gateway-tls-cert", cert.to_str().unwrap(), "--gateway-tls-key", key.to_str().unwrap()];
    let (serving, _rules) = gateway(&upstream.url(), RULES, &flags);
    let url = format!("https://{}/login", serving.address("gateway"));
    let timeout = Duration::from_secs(20).as_secs().to_string();
    let output = Command::new("curl")
        .args(["-sS", "--http2", "--max-time", &timeout, "--cacert", cert.to_str().unwrap()])
        .args(["-w", " %{http_version} %{http_code}", &url, &url, &url])
        .output()
        .expect("curl is installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("behind 2 200behind 2 200{"), "{said} {output:?}");
    assert!(said.ends_with("} 2 429"), "{said}");
}
