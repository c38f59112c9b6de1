//! HTTP/2 as nghttp2 speaks it, which is not the library that the gateway is built on.

use std::process::Command;

use http::Response;
use http_body_util::BodyExt as _;
use tidegate_gateway::{Gateway, GatewayConfig, RuleGate};

use crate::limiting::{limiter, with};
use crate::support::*;

fn run(program: &str, arguments: &[&str]) -> String {
    let output =
        Command::new(program).args(arguments).output().expect("nghttp2-client is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    text
}

/// A gateway that speaks TLS, and its URL.
fn secure(config: GatewayConfig, dir: &tempfile::TempDir) -> (Gateway, String) {
    let mut config = config;
    config.tls = Some(crate::secure::certify(dir.path(), "localhost"));
    let gateway = start(config);
    let url = format!("https://{}/", at(&gateway));
    (gateway, url)
}

#[test]
fn nghttp_agrees_on_http2_and_gets_its_answer() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let (gateway, url) = secure(GatewayConfig::to(upstream.url()), &dir);
    let said = run("nghttp", &["-v", "-y", "--no-dep", &url]);
    for wanted in
        ["The negotiated protocol: h2", ":status: 200", "x-upstream: echo", "GET / HTTP/1.1"]
    {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // What is not HTTP is bounded, and the client is told.
    assert!(said.contains("SETTINGS_MAX_CONCURRENT_STREAMS(0x03):200"), "{said}");
    assert!(said.contains("SETTINGS_MAX_HEADER_LIST_SIZE(0x06):16384"), "{said}");
    let (target, answer) = (format!("http://{}/plain", at(&gateway)), "GET /plain HTTP/1.1");
    let plain = start(GatewayConfig::to(upstream.url()));
    let target = target.replace(&at(&gateway).to_string(), &at(&plain).to_string());
    assert!(run("nghttp", &[&target]).starts_with(answer));
}

#[test]
fn bodies_and_trailers_of_nghttp_arrive() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let body = dir.path().join("body");
    std::fs::write(&body, "a body").unwrap();
    let (_gateway, url) = secure(GatewayConfig::to(upstream.url()), &dir);
    let body = body.display().to_string();
    // The echo is asked over HTTP/1.1, where trailers have to be announced.
    let arguments =
        ["-y", "-d", &body, "-H", "trailer: x-end", "--trailer", "x-end: 1", "-H", "te: trailers"];
    let said = run("nghttp", &[&arguments[..], &[&url]].concat());
    assert!(said.starts_with("POST / HTTP/1.1\n"), "{said}");
    assert!(said.ends_with("\na body\ntrailer x-end: 1"), "{said}");
}

#[test]
fn padding_and_priorities_make_no_difference() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let (_gateway, url) = secure(GatewayConfig::to(upstream.url()), &dir);
    let said = run("nghttp", &["-y", "-b", "200", "-p", "7", "-m", "5", &url]);
    assert_eq!(said.matches("GET / HTTP/1.1\n").count(), 5, "{said}");
}

/// What h2load counted, by the words of its report.
fn counted(report: &str, what: &str) -> usize {
    let words: Vec<&str> = report.split([' ', ',', '\n']).filter(|word| !word.is_empty()).collect();
    let at = words.iter().position(|word| *word == what).unwrap_or_else(|| panic!("{report}"));
    words[at - 1].parse().unwrap()
}

#[test]
fn under_load_all_are_answered_and_connections_used_again() {
    let upstream = serve(|request| async move {
        let length = request.into_body().collect().await.unwrap().to_bytes().len();
        Response::new(full(format!("{length}")))
    });
    let dir = tempfile::tempdir().unwrap();
    let (_gateway, url) = secure(GatewayConfig::to(upstream.url()), &dir);
    let report = run("h2load", &["-n", "2000", "-c", "4", "-m", "10", &url]);
    assert!(report.contains("Application protocol: h2\n"), "{report}");
    assert_eq!(counted(&report, "succeeded"), 2000, "{report}");
    assert_eq!(counted(&report, "2xx"), 2000, "{report}");
    let accepted = upstream.accepted();
    assert!(accepted <= 40, "{accepted} connections for 40 requests at once");
    let body = dir.path().join("body");
    std::fs::write(&body, vec![b'a'; 70_000]).unwrap();
    let body = body.display().to_string();
    for protocol in [&["--h1"][..], &[]] {
        let arguments = ["-n", "100", "-c", "4", "-d", &body];
        let report = run("h2load", &[protocol, &arguments, &[&url]].concat());
        assert_eq!(counted(&report, "2xx"), 100, "{report}");
    }
    assert!(upstream.accepted() <= 48, "{} connections", upstream.accepted());
}

#[test]
fn a_limit_is_kept_to_the_letter_by_many_streams_at_once() {
    let upstream = echo();
    let (limiter, _) = limiter(
        "
domain: api
http: [ { match: { path: \"/**\" }, descriptors: [ { ip: \"${client_ip}\" } ] } ]
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 137, unit: hour, algorithm: token_bucket } }
",
    );
    let gateway = with(RuleGate::new(limiter, "api"), GatewayConfig::to(upstream.url()));
    let report = run("h2load", &["-n", "1000", "-c", "5", "-m", "20", &url(&gateway, "/")]);
    assert_eq!(counted(&report, "2xx"), 137, "{report}");
    assert_eq!(counted(&report, "4xx"), 863, "{report}");
}
