//! Who may use what is for administrators.

use super::support::{Running, config, request, send_by_unix};
use tidegate_server::Address;

const KEY: &str = "/v1/keys?domain=api&descriptor=user=ada";
const REFUND: &str = r#"{"domain":"api","descriptors":[[["user","ada"]]]}"#;

#[tokio::test]
async fn on_this_machine_it_takes_no_token() {
    let running = Running::new().await;
    assert_eq!(running.get(KEY).await.status, 200);
    for headers in [
        "X-Forwarded-For: 192.0.2.7\r\n",
        "Forwarded: for=192.0.2.7\r\n",
        "Host: evil.example\r\n",
        "Host: localhost\r\nOrigin: https://evil.example\r\n",
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
    ] {
        let reply = running.send("GET", KEY, headers, "").await;
        assert!(reply.problem(403).contains("no admin token"), "{headers}");
        let reply = running.send("POST", "/v1/refund", headers, REFUND).await;
        reply.problem(403);
    }
}

#[tokio::test]
async fn with_the_token_it_may_come_from_anywhere() {
    let mut config = config();
    config.admin_token = Some("secret".into());
    let running = Running::with(super::support::RULES, config).await;
    let proxied = "X-Forwarded-For: 192.0.2.7\r\n";
    let reply = running.send("GET", KEY, proxied, "").await;
    reply.problem(401);
    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    let right = format!("{proxied}Authorization: Bearer secret\r\n");
    assert_eq!(running.send("GET", KEY, &right, "").await.status, 200);
    // A wrong one is wrong also on this machine.
    for wrong in ["Bearer secre", "Bearer secrets", "Basic secret", "Bearer", "secret"] {
        let headers = format!("Authorization: {wrong}\r\n");
        running.send("GET", KEY, &headers, "").await.problem(401);
    }
    assert_eq!(running.get(KEY).await.status, 200);
}

#[tokio::test]
async fn without_a_token_on_the_server_none_is_right() {
    let running = Running::new().await;
    running.send("GET", KEY, "Authorization: Bearer \r\n", "").await.problem(401);
    running.send("GET", KEY, "Authorization: Bearer x\r\n", "").await.problem(401);
}

#[tokio::test]
async fn a_unix_socket_is_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let mut config = config();
    config.http = Address::Unix(path.clone());
    let _running = Running::with(super::support::RULES, config).await;
    let reply = send_by_unix(&path, &request("GET", KEY, "Host: anything\r\n", "")).await;
    assert_eq!(reply.status, 200);
    let proxied = request("GET", KEY, "X-Real-IP: 192.0.2.7\r\n", "");
    send_by_unix(&path, &proxied).await.problem(403);
}

#[tokio::test]
async fn what_only_asks_is_for_everybody() {
    let running = Running::new().await;
    let proxied = "X-Forwarded-For: 192.0.2.7\r\nHost: api.example\r\n";
    for (method, target, body) in [
        ("POST", "/v1/check", REFUND),
        ("POST", "/v1/peek", REFUND),
        ("POST", "/v1/explain", REFUND),
        ("GET", "/v1/rules", ""),
        ("GET", "/metrics", ""),
        ("GET", "/healthcheck", ""),
    ] {
        assert_eq!(running.send(method, target, proxied, body).await.status, 200, "{target}");
    }
}
