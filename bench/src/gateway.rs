//! The gateway as a reverse proxy beside nginx: CPU per request of each, in one run.
//!
//! wrk with 64 connections asks for answers of 1 KB from an nginx that only answers. Each proxy is
//! a process of its own with as many workers; they take turns within each round. Build with
//! `--profile lto`, as a gateway is to be built.

use std::process::Command;

use tidegate::RuleLimiter;
use tidegate::rules::{File, Options, Rules};
use tidegate_gateway::{Gateway, GatewayConfig, Open, RuleGate};

use crate::service::child::Child;
use crate::service::{Length, Measured, Row, print};

const CONNECTIONS: &str = "64";

/// What is measured: the name, our server, and what nginx does.
const CASES: [(&str, &str, &str); 3] = [
    ("no limit", "gateway-open", ""),
    ("a limit that admits", "gateway-allow", "limit_req zone=allow burst=1000000 nodelay;"),
    ("a limit that refuses", "gateway-refuse", "limit_req zone=refuse;"),
];

/// Measures and prints the tables.
pub(crate) fn run(length: Length, threads: usize) {
    let body = "x".repeat(1024);
    let upstream = Child::nginx(|address| {
        format!("server {{ listen {address}; location / {{ return 200 \"{body}\"; }} }}")
    });
    let upstream = &upstream;
    let ours = |server: &str| {
        let server = format!("{server}:{threads}");
        Child::serve_with(&[&server, &format!("http://{}", upstream.address)])
    };
    let mut servers = Vec::new();
    for (case, server, limit) in CASES {
        servers.push((
            case,
            "nginx",
            Child::nginx(|address| proxy(address, &upstream.address, limit)),
        ));
        servers.push((case, "tidegate", ours(server)));
    }
    let mut rows: Vec<Row> = servers
        .iter()
        .map(|(case, name, _)| Row { name: format!("{name}, {case}"), rounds: Vec::new() })
        .collect();
    for round in 0..length.rounds() {
        // Whoever comes first in one round comes second in the next.
        for pair in 0..servers.len() / 2 {
            for step in 0..2 {
                let at = 2 * pair + (round + step) % 2;
                let measured = load(length, &servers[at].2);
                rows[at].rounds.push(measured);
            }
        }
    }
    for pair in rows.chunks(2) {
        print(
            &format!("{} ({threads} workers)", pair[0].name.replace("nginx, ", "Proxy with ")),
            pair,
        );
    }
    let ours: Vec<Row> = rows.into_iter().filter(|row| row.name.starts_with("tidegate")).collect();
    print("tidegate alone", &ours);
}

fn proxy(address: &str, upstream: &str, limit: &str) -> String {
    format!(
        "limit_req_zone $binary_remote_addr zone=allow:1m rate=1000000r/s;\n\
         limit_req_zone $binary_remote_addr zone=refuse:1m rate=1r/s;\n\
         limit_req_status 429;\n\
         upstream up {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}\n\
         server {{ listen {address}; location / {{ {limit}\n\
         proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         proxy_set_header Host $host; add_header Via \"1.1 nginx\"; }} }}"
    )
}

/// Lets wrk send requests for a while.
fn load(length: Length, child: &Child) -> Measured {
    let seconds = if length == Length::Full { "2" } else { "1" };
    let cpu = child.cpu_seconds();
    let output = Command::new("wrk")
        .args(["-t1", "-c", CONNECTIONS, "-d", seconds, "--latency"])
        .arg(format!("http://{}/", child.address))
        .output()
        .expect("wrk is installed");
    let cpu = child.cpu_seconds() - cpu;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let requests: f64 = number(&text, " requests in").expect("a count of requests");
    let per_second = after(&text, "Requests/sec:").and_then(|it| it.parse().ok());
    Measured {
        cpu_us: cpu * 1e6 / requests,
        per_second: per_second.unwrap_or(0.0),
        p50_us: after(&text, "50%").map_or(0.0, micros),
        p99_us: after(&text, "99%").map_or(0.0, micros),
    }
}

/// The number before a text.
fn number(text: &str, behind: &str) -> Option<f64> {
    let (before, _) = text.split_once(behind)?;
    before.rsplit(char::is_whitespace).next()?.parse().ok()
}

/// The word after a text.
fn after<'t>(text: &'t str, before: &str) -> Option<&'t str> {
    text.split_once(before)?.1.split_whitespace().next()
}

fn micros(text: &str) -> f64 {
    let unit = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let number: f64 = text[..unit].parse().unwrap_or(0.0);
    match &text[unit..] {
        "us" => number,
        "ms" => number * 1e3,
        _ => number * 1e6,
    }
}

/// Serves until the process is killed. The server is a name and a number of threads.
pub(crate) fn serve(server: &str, upstream: &str) {
    let (server, threads) = server.split_once(':').unwrap_or((server, "1"));
    let mut config = GatewayConfig::to(upstream);
    config.threads = threads.parse().expect("a number of threads");
    let gateway = match server {
        "gateway-open" => Gateway::start(config, Open),
        "gateway-allow" => Gateway::start(config, limits(4_000_000_000)),
        "gateway-refuse" => Gateway::start(config, limits(1)),
        _ => panic!("there is no server {server}"),
    };
    let gateway = gateway.expect("a free port");
    println!("{}", gateway.address());
    loop {
        std::thread::park();
    }
}

fn limits(per_hour: u32) -> RuleGate {
    let text = format!(
        "domain: bench\n\
         http: [ {{ match: {{ path: \"/**\" }}, descriptors: [ {{ ip: \"${{client_ip}}\" }} ] }} ]\n\
         descriptors:\n  - {{ key: ip, rate_limit: {{ requests_per_unit: {per_hour}, unit: hour, \
         algorithm: token_bucket }} }}\n"
    );
    let loaded = Rules::load(&[File { name: "bench.yaml", text: &text }], &Options::default());
    let rules = loaded.rules.expect("good rules");
    RuleGate::new(RuleLimiter::new(rules).expect("rules that can be enforced"), "bench")
}
