//! Who is connected, what is written down, and how it ends.

use std::io::{Read as _, Write as _};
use std::sync::mpsc;
use std::time::Duration;

use http::Response;
use tidegate_gateway::{GatewayConfig, LogTo};

use crate::support::*;

#[test]
fn the_proxy_protocol_tells_the_client_where_the_peer_is_trusted() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    config.proxy_protocol = true;
    config.trusted_proxies = vec!["127.0.0.0/8".into()];
    let gateway = start(config);
    let request =
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.1\r\nConnection: close\r\n\r\n";
    let answer = say(&gateway, format!("PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n{request}"));
    assert!(answer.contains("x-forwarded-for: 198.51.100.7\n"), "{answer}");
    let mut block = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    block.extend([198, 51, 100, 8, 192, 0, 2, 1, 0x12, 0x34, 0, 80]);
    block.extend(request.as_bytes());
    let answer = say(&gateway, block);
    assert!(answer.contains("x-forwarded-for: 198.51.100.8\n"), "{answer}");
    assert_eq!(say(&gateway, request), "", "without the header there is no answer");
    assert!(
        curl(&["--haproxy-protocol", &url(&gateway, "/")]).contains("x-forwarded-for: 127.0.0.1")
    );
    // From others it is no header, but a request that makes no sense.
    let mut config = GatewayConfig::to(upstream.url());
    config.proxy_protocol = true;
    let gateway = start(config);
    let answer = say(&gateway, format!("PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\n{request}"));
    assert_eq!(status(&answer), "400");
    assert!(curl(&[&url(&gateway, "/")]).contains("x-forwarded-for: 127.0.0.1"));
}

#[test]
fn the_proxy_protocol_comes_before_tls() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let mut config = GatewayConfig::to(upstream.url());
    config.proxy_protocol = true;
    config.trusted_proxies = vec!["127.0.0.1".into()];
    config.tls = Some(crate::secure::certify(dir.path(), "localhost"));
    let gateway = start(config);
    let target = format!("https://localhost:{}/", at(&gateway).port());
    let answer = curl(&["-k", "-4", "--haproxy-protocol", &target]);
    assert!(answer.contains("x-forwarded-for: 127.0.0.1\n"), "{answer}");
}

#[test]
fn the_access_log_has_a_line_for_each_request() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let path = dir.path().join("access.log");
    let mut config = GatewayConfig::to(upstream.url());
    config.access_log.to = Some(LogTo::File(path.clone()));
    config.body_bytes_max = 3;
    let gateway = start(config);
    let answer = curl(&[&url(&gateway, "/\"a?b=c")]);
    curl(&["-d", "body", &url(&gateway, "/too-large")]);
    say(&gateway, "GET / HTTP/1.1\nHost: a\n\n");
    until("three lines", || std::fs::read_to_string(&path).unwrap().lines().count() == 3);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["method"], "GET");
    assert_eq!(lines[0]["target"], "/\"a?b=c");
    assert_eq!(lines[0]["client"], "127.0.0.1");
    assert_eq!(lines[0]["host"], at(&gateway).to_string());
    assert_eq!(lines[0]["upstream"], upstream.address.to_string());
    assert_eq!((&lines[0]["status"], &lines[0]["outcome"]), (&200.into(), &"forwarded".into()));
    assert_eq!((&lines[0]["bytes"], &lines[0]["whole"]), (&answer.len().into(), &true.into()));
    assert_eq!((&lines[1]["status"], &lines[1]["target"]), (&413.into(), &"/too-large".into()));
    assert_eq!((&lines[2]["status"], &lines[2]["target"]), (&400.into(), &"".into()));
    assert_eq!(gateway.stats().log_lines_lost, 0);
}

#[tokio::test]
async fn draining_lets_requests_finish_and_closes_the_idle() {
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
    let gateway = start(GatewayConfig::to(upstream.url()));
    let address = at(&gateway);
    let mut idle = connect(&gateway);
    let mut busy = connect(&gateway);
    busy.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let second = url(&gateway, "/");
    let curling = std::thread::spawn(move || curl(&["--http2-prior-knowledge", &second]));
    for _ in 0..2 {
        told.recv_timeout(GUARD).unwrap();
    }
    let draining = tokio::spawn(gateway.drain());
    let idle = tokio::task::spawn_blocking(move || idle.read(&mut [0]).unwrap());
    assert_eq!(idle.await.unwrap(), 0, "an idle connection is closed");
    until("nobody new is accepted", || std::net::TcpStream::connect(address).is_err());
    assert!(!draining.is_finished());
    let_go.send(true).unwrap();
    let answer = tokio::task::spawn_blocking(move || read_all(&mut busy)).await.unwrap();
    assert!(answer.contains("connection: close") && answer.ends_with("done"), "{answer}");
    assert_eq!(curling.join().unwrap(), "done");
    assert!(draining.await.unwrap());
}

#[tokio::test]
async fn draining_has_an_end() {
    let (tell, told) = mpsc::channel();
    let upstream = serve(move |_| {
        tell.send(()).unwrap();
        std::future::pending()
    });
    let mut config = GatewayConfig::to(upstream.url());
    config.drain = Duration::from_millis(50);
    let gateway = start(config);
    let mut busy = connect(&gateway);
    busy.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    told.recv_timeout(GUARD).unwrap();
    assert!(!gateway.drain().await);
    assert_eq!(read_all(&mut busy), "");
}

#[test]
fn connections_have_a_bound() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    config.connections_max = 2;
    let gateway = start(config);
    let kept = [connect(&gateway), connect(&gateway)];
    until("both are there", || gateway.connections() == 2);
    assert_eq!(say(&gateway, ""), "", "the third is closed");
    drop(kept);
    until("there is room again", || gateway.connections() == 0);
    assert!(curl(&[&url(&gateway, "/")]).starts_with("GET /"));
}

#[test]
fn several_threads_serve_at_one_address() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    config.threads = 3;
    let gateway = tidegate_gateway::Gateway::start(config, tidegate_gateway::Open).unwrap();
    for _ in 0..30 {
        assert!(curl(&[&url(&gateway, "/")]).starts_with("GET /"));
    }
    // Each thread has connections of its own.
    assert!((1..=3).contains(&upstream.accepted()), "{}", upstream.accepted());
}
