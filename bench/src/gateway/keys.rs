//! A million clients: what it takes to remember them, and what a request costs then.

use std::time::Duration;

use super::Plan;
use super::client::{Conn, ask_all, on_runtime};
use super::servers::{NGINX_PASS, Setting, haproxy, nginx, nginx_upstream, tidegate, upstream};
use super::usage::Family;
use super::wrk::CONNECTIONS;
use crate::service::child::Child;

/// How long they may take to come. Ours are to come all; of others some say the same.
const OURS_FOR: Duration = Duration::from_secs(55);
const OTHERS_FOR: Duration = Duration::from_secs(15);

/// Each client may do a hundred a day, so that nobody who was seen once is forgotten meanwhile.
const RULES: &str = "domain: bench\n\
    http: [ { descriptors: [ { user: \"${header.x-user}\" } ] } ]\n\
    descriptors:\n  - { key: user, rate_limit: { requests_per_unit: 100, unit: day, \
    algorithm: token_bucket } }\n";

/// Measures and prints the table.
pub(super) fn run(plan: &Plan) {
    let (setting, keys) = (Setting::ONE_THREAD, plan.keys);
    println!("\n### Distinct clients, each of which asks once\n");
    println!(
        "| server | clients | memory before | after | more | bytes per key | CPU per request of 2000 clients \
         | of so many |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let upstream = upstream(setting);
    let ours = tidegate(setting, RULES, &upstream.address);
    measure("tidegate", &ours, keys, OURS_FOR);
    assert_remembered(&ours);
    drop(ours);
    let nginx = nginx_with_keys(setting, &upstream.address);
    measure("nginx", &nginx, keys, OTHERS_FOR);
    drop(nginx);
    let table = "stick-table type string len 20 size 2m expire 1d store gpc0,gpc0_rate(1d)";
    let rules = "    http-request track-sc0 req.hdr(x-user) table clients\n    \
                 http-request deny deny_status 429 if { sc0_gpc0_rate ge 100 }\n    \
                 http-request sc-inc-gpc0(0)\n";
    if let Some(haproxy) = haproxy(setting, table, rules, &upstream.address) {
        measure("haproxy", &haproxy, keys, OTHERS_FOR);
    }
}

fn nginx_with_keys(setting: Setting, upstream: &str) -> Child {
    nginx(setting, |address| {
        format!(
            "limit_req_zone $http_x_user zone=keys:300m rate=1r/m; limit_req_status 429; {}\n\
             server {{ listen {address}; location / {{ limit_req zone=keys burst=99 nodelay; \
             {NGINX_PASS} }} }}",
            nginx_upstream(upstream),
        )
    })
}

fn measure(name: &str, child: &Child, keys: u64, lasting: Duration) {
    let family = Family::of(child.id());
    let ask = |requests: u64, request: fn(u64) -> Vec<u8>| {
        let cpu = family.cpu();
        let tally = ask_all(&child.address, CONNECTIONS, requests, lasting, request);
        assert_eq!(tally.refused, 0, "{name} refuses somebody who asks for the first time");
        let cpu = family.cpu().since(cpu).all;
        (tally.admitted, cpu * 1e6 / tally.admitted as f64)
    };
    let warm = (keys / 20).min(50_000);
    // So that buffers and connections are there.
    ask(warm, one_of_few);
    let memory = family.memory_mb();
    let (_, few) = ask(warm, one_of_few);
    let (asked, many) = ask(keys, |number| request(&user(number)));
    let more = family.memory_mb() - memory;
    println!(
        "| {name} | {asked} | {memory:.1} MB | {:.1} MB | **{more:.1} MB** | {:.1} | {few:.2} us \
         | {many:.2} us |",
        memory + more,
        more * 1e6 / asked as f64,
    );
}

/// Few enough to be nothing beside the many, and too many to reach their limits.
fn one_of_few(number: u64) -> Vec<u8> {
    request(&format!("warm{:012}", number % 2000))
}

fn user(number: u64) -> String {
    format!("user{number:012}")
}

fn request(user: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: bench\r\nX-User: {user}\r\n\r\n").into_bytes()
}

/// Nobody was forgotten: those who came first have one request less.
fn assert_remembered(child: &Child) {
    on_runtime(async {
        let mut conn = Conn::open(&child.address).await;
        for number in 0..100 {
            conn.ask(&request(&user(number))).await;
            let remaining = conn.header("x-ratelimit-remaining");
            assert_eq!(remaining, Some("98"), "user {number} is not remembered");
        }
    });
}
