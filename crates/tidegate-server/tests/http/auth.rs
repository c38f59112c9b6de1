//! `/v1/auth`, as proxies ask it.

use super::support::{Running, config, request, send_by_unix};
use tidegate_server::{Address, Config, Server, StartError};

fn trusting(networks: &[&str]) -> Config {
    let mut config = config();
    config.trusted_proxies = networks.iter().map(|text| (*text).to_owned()).collect();
    config
}

async fn ask(running: &Running, query: &str, headers: &str) -> super::support::Reply {
    running.send("GET", &format!("/v1/auth{query}"), headers, "").await
}

#[tokio::test]
async fn a_request_is_let_through_or_refused_with_all_headers() {
    let running = Running::new().await;
    let ada = "X-Forwarded-Method: POST\r\nX-Forwarded-Uri: /v1/posts?x=1\r\nX-User-Id: ada\r\n";
    for left in ["1", "0"] {
        let reply = ask(&running, "", ada).await;
        assert_eq!((reply.status, &*reply.body), (200, ""));
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(reply.header("content-type"), None);
    }
    let refused = ask(&running, "", ada).await;
    refused.problem(429);
    assert_eq!(refused.header("retry-after"), Some("30"));
    assert_eq!(refused.json()["violated-policies"][0], "api.user");
    assert_eq!(refused.json()["retry_after_seconds"], 30);
    let refused = ask(&running, "?deny=403&domain=api", ada).await;
    refused.problem(403);
    assert_eq!(refused.header("retry-after"), Some("30"));
    let bob = ada.replace("ada", "bob").replace("X-Forwarded", "X-Original");
    assert_eq!(ask(&running, "", &bob).await.status, 200);
}

#[tokio::test]
async fn the_method_the_host_and_the_path_are_what_the_proxy_says() {
    let running = Running::new().await;
    let cases = [
        ("X-Forwarded-Uri: /by-host\r\nX-Forwarded-Host: a.example\r\n", Some("1")),
        ("X-Forwarded-Uri: /by-host\r\nX-Forwarded-Host: b.example\r\n", None),
        ("X-Forwarded-Uri: /by-host\r\nHost: a.example:80\r\n", Some("1")),
        ("X-Original-URL: http://a.example/by-host\r\n", Some("1")),
        ("X-Original-URI: /by-method\r\nX-Original-Method: DELETE\r\n", Some("1")),
        ("X-Original-URI: /by-method\r\n", None),
    ];
    for (headers, limit) in cases {
        let reply = ask(&running, "", headers).await;
        assert_eq!(reply.header("x-ratelimit-limit"), limit, "{headers}");
    }
    let reply = running.send("DELETE", "/v1/auth", "X-Forwarded-Uri: /by-method\r\n", "").await;
    assert_eq!(reply.header("x-ratelimit-limit"), Some("1"), "its own, if nobody says");
}

#[tokio::test]
async fn addresses_are_taken_from_trusted_proxies_alone() {
    let by_ip = |ip: &str| format!("X-Forwarded-Uri: /by-ip/x\r\nX-Forwarded-For: {ip}\r\n");
    let running = Running::new().await;
    for ip in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(ask(&running, "", &by_ip(ip)).await.status, 200);
    }
    ask(&running, "", &by_ip("192.0.2.3")).await.problem(429);

    let running = Running::with(super::support::RULES, trusting(&["127.0.0.0/8"])).await;
    for ip in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "6.6.6.6, 192.0.2.1"] {
        assert_eq!(ask(&running, "", &by_ip(ip)).await.status, 200, "{ip}");
    }
    ask(&running, "", &by_ip("7.7.7.7, 192.0.2.1, 127.0.0.9")).await.problem(429);
}

#[tokio::test]
async fn whoever_comes_by_a_unix_socket_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let mut config = config();
    config.http = Address::Unix(path.clone());
    let _running = Running::with(super::support::RULES, config).await;
    for (ip, status) in
        [("192.0.2.1", 200), ("192.0.2.1", 200), ("192.0.2.1", 429), ("192.0.2.2", 200)]
    {
        let headers = format!("X-Forwarded-Uri: /by-ip/x\r\nX-Forwarded-For: {ip}\r\n");
        let reply = send_by_unix(&path, &request("GET", "/v1/auth", &headers, "")).await;
        assert_eq!(reply.status, status);
    }
}

#[tokio::test]
async fn clients_cannot_choose_between_two_descriptions() {
    let running = Running::new().await;
    let both = "X-Original-URI: /v1/posts\r\nX-Forwarded-Uri: /free\r\n";
    ask(&running, "", both).await.problem(400);
    let original = ask(&running, "?headers=original", both).await;
    assert_eq!(original.header("x-ratelimit-limit"), Some("2"));
    let forwarded = ask(&running, "?headers=forwarded", both).await;
    assert_eq!(forwarded.header("x-ratelimit-limit"), None);
    // The other kind alone does not do either.
    let other = "X-Forwarded-Uri: /free\r\n";
    ask(&running, "?headers=original", other).await.problem(400);
}

#[tokio::test]
async fn bad_questions_are_told_what_is_wrong() {
    let running = Running::new().await;
    for (query, headers, wanted) in [
        ("", "", "nothing says which request this is about"),
        ("?deny=404", "X-Forwarded-Uri: /\r\n", "`deny=404`"),
        ("?headers=x", "X-Forwarded-Uri: /\r\n", "`headers=x`"),
        ("", "X-Forwarded-Uri: /\u{e9}\r\n", "the header x-forwarded-uri is no text"),
    ] {
        let detail = ask(&running, query, headers).await.problem(400);
        assert!(detail.starts_with(wanted), "{detail}");
    }
    ask(&running, "?domain=other", "X-Forwarded-Uri: /\r\n").await.problem(404);
    let denied = ask(&running, "", "X-Forwarded-Uri: /strict\r\n").await;
    assert_eq!(denied.problem(429), "the request lacks a value that it is counted by");
}

#[tokio::test]
async fn what_cannot_be_trusted_stops_the_start() {
    let clock = tidegate::ManualClock::new();
    let service =
        super::support::service_on(tidegate::MemoryStore::new(), super::support::RULES, &clock);
    let error = Server::start(service, trusting(&["10.0.0.0/8", "proxy.example"])).await;
    let error = error.expect_err("`proxy.example` is no address");
    assert!(matches!(&error, StartError::Proxy(text) if text == "proxy.example"), "{error}");
}
