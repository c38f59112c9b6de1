//! Connections that become something else.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidegate::{Limit, Limiter};
use tidegate_gateway::{Gateway, GatewayConfig, KeyGate, key};

use crate::support::*;

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                       Sec-WebSocket-Version: 13\r\n\r\n";

/// A server that agrees and then sends everything back.
fn tunnel_echo() -> Server {
    raw_server(|mut stream, _| {
        let head = read_head(&mut stream).unwrap();
        assert!(head.contains("upgrade: websocket\r\n"), "{head}");
        assert!(head.contains("connection: upgrade\r\n"), "{head}");
        assert!(head.contains("sec-websocket-key: dGhl"), "{head}");
        stream
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhello",
            )
            .unwrap();
        let mut bytes = [0; 1024];
        while let Ok(some @ 1..) = stream.read(&mut bytes) {
            stream.write_all(&bytes[..some]).unwrap();
        }
    })
}

#[test]
fn a_websocket_goes_through() {
    let upstream = tunnel_echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    let head = read_head(&mut stream).unwrap();
    assert_eq!(status(&head), "101", "{head}");
    assert!(
        head.contains("upgrade: websocket") && head.contains("sec-websocket-accept: s3pP"),
        "{head}"
    );
    let mut bytes = [0; 5];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
    // What is no HTTP at all goes both ways.
    for piece in [&b"\n\r\n\0GET / HTTP/1.1\nHost: a\n\n"[..], &[0xff; 3000]] {
        stream.write_all(piece).unwrap();
        let mut back = vec![0; piece.len()];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(back, piece);
    }
    drop(stream);
    until("the connection is over", || gateway.connections() == 0);
}

#[test]
fn a_tunnel_holds_its_permit_until_it_is_over() {
    let upstream = tunnel_echo();
    let limiter = Limiter::new(Limit::concurrency(1)).unwrap();
    let gate = KeyGate::new(limiter.clone(), key::everybody());
    let gateway = Gateway::start(GatewayConfig::to(upstream.url()), gate).unwrap();
    let mut stream = connect(&gateway);
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    assert_eq!(status(&read_head(&mut stream).unwrap()), "101");
    stream.read_exact(&mut [0; 5]).unwrap();
    assert_eq!(status(&curl(&["-i", &url(&gateway, "/")])), "429");
    drop(stream);
    until("the permit is back", || limiter.peek(&()).remaining == 1);
}

#[test]
fn what_comes_before_the_upgrade_is_not_lost() {
    let upstream = tunnel_echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    stream.write_all(format!("{UPGRADE}\x01\nearly").as_bytes()).unwrap();
    assert_eq!(status(&read_head(&mut stream).unwrap()), "101");
    let mut bytes = [0; 12];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello\x01\nearly");
}

#[test]
fn an_upstream_may_stay_with_http() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    for _ in 0..2 {
        stream
            .write_all(format!("{UPGRADE}GET /next HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            .unwrap();
        let answer = read_answer(&mut stream);
        assert!(answer.contains("GET /chat HTTP/1.1\n"), "{answer}");
        assert!(read_answer(&mut stream).contains("GET /next HTTP/1.1\n"));
    }
    // What follows is scanned as ever.
    stream.write_all(format!("{UPGRADE}GET / HTTP/1.1\nHost: a\n\n").as_bytes()).unwrap();
    read_answer(&mut stream);
    assert_eq!(status(&read_all(&mut stream)), "400");
}

#[test]
fn what_comes_before_a_second_try_is_not_lost() {
    let tried = AtomicUsize::new(0);
    let upstream = raw_server(move |mut stream, _| {
        while read_head(&mut stream).is_some() {
            if tried.fetch_add(1, Relaxed) == 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
                continue;
            }
            let agreed = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
            stream.write_all(agreed).unwrap();
            let mut bytes = [0; 7];
            stream.read_exact(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut stream = connect(&gateway);
    stream.write_all(format!("{UPGRADE}{UPGRADE}\x01\nearly").as_bytes()).unwrap();
    assert_eq!(status(&read_answer(&mut stream)), "200");
    assert_eq!(status(&read_head(&mut stream).unwrap()), "101");
    let mut bytes = [0; 7];
    stream.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"\x01\nearly");
}

#[test]
fn a_silent_tunnel_ends() {
    let upstream = tunnel_echo();
    let mut config = GatewayConfig::to(upstream.url());
    config.routes[0].idle = Duration::from_millis(200);
    let gateway = start(config);
    let mut stream = connect(&gateway);
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    assert!(read_all(&mut stream).ends_with("hello"));
}
