//! How many connections upstreams see.

use std::io::Write as _;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use tidegate_gateway::GatewayConfig;

use crate::frames::{self, Client, Outcome};
use crate::support::*;

#[test]
fn one_connection_is_enough_for_one_request_at_a_time_of_whatever_kind() {
    let upstream = raw_server(|mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            if head.starts_with("POST") {
                use std::io::Read as _;
                stream.read_exact(&mut [0; 3]).unwrap();
            }
            let answer = match head.split(' ').nth(1).unwrap() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\n\r\n",
                "/empty" => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                "/said" => {
                    "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=9\r\nContent-Length: 2\r\n\r\nok"
                }
                "/old" => {
                    "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
                }
                "/hint" => {
                    "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
                }
                "/chunks" => {
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\no\r\n1\r\nk\r\n0\r\nx: y\r\n\r\n"
                }
                _ if head.starts_with("HEAD") => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n",
                _ => "HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\nok",
            };
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    for way in ["--http1.1", "--http2-prior-knowledge"] {
        for path in ["/204", "/304", "/empty", "/said", "/old", "/hint", "/chunks", "/other"] {
            let answer = curl(&[way, &url(&gateway, path)]);
            assert!(answer.is_empty() || answer == "ok", "{path}: {answer}");
        }
        curl(&[way, "-I", &url(&gateway, "/")]);
        assert_eq!(curl(&[way, "-d", "abc", &url(&gateway, "/")]), "ok");
    }
    assert_eq!(upstream.accepted(), 1);
}

#[test]
fn an_upstream_that_wants_to_close_may() {
    let upstream = raw_server(|mut stream, _| {
        while read_head(&mut stream).is_some() {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
                .unwrap();
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut client = connect(&gateway);
    for n in 1..4 {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let answer = read_answer(&mut client);
        assert!(!answer.contains("connection"), "that is between those two: {answer}");
        assert_eq!(upstream.accepted(), n);
    }
}

#[test]
fn there_are_as_many_as_there_are_requests_at_once_and_they_are_kept() {
    let all = Arc::new(Barrier::new(4));
    let meet = Arc::clone(&all);
    let upstream = raw_server(move |mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            if head.starts_with("GET /meet") {
                meet.wait();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let meeting = || {
        // Four streams of one connection, all under way at once.
        let mut client = Client::begin(&gateway);
        for stream in [1, 3, 5, 7] {
            let head = [frames::GET[0], frames::GET[1], (":path", "/meet"), frames::GET[3]];
            client.ask(stream, frames::END_STREAM, &head);
        }
        let mut ended = 0;
        while ended < 4 {
            let frame = client.next().unwrap();
            if frame.kind == frames::DATA && frame.flags & frames::END_STREAM != 0 {
                ended += 1;
            }
        }
    };
    meeting();
    assert_eq!(upstream.accepted(), 4);
    meeting();
    for _ in 0..5 {
        assert_eq!(curl(&[&url(&gateway, "/")]), "ok");
    }
    assert_eq!(upstream.accepted(), 4);
}

#[test]
fn no_more_are_kept_than_wanted_and_none_for_longer() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    config.upstreams[0].idle_max = 0;
    let gateway = start(config);
    for n in 1..4 {
        curl(&[&url(&gateway, "/")]);
        assert_eq!(upstream.accepted(), n);
    }
    // One that has been idle for too long is closed, and not only forgotten.
    let (tell, told) = std::sync::mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        while read_head(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
        tell.send(()).unwrap();
    });
    let mut config = GatewayConfig::to(upstream.url());
    config.upstreams[0].idle_for = Duration::from_millis(100);
    let gateway = start(config);
    assert_eq!(curl(&[&url(&gateway, "/")]), "ok");
    told.recv_timeout(GUARD).expect("it was closed");
}

#[test]
fn one_of_http2_carries_many_requests_at_once() {
    let all = Arc::new(tokio::sync::Barrier::new(20));
    let upstream = serve(move |request| {
        let all = Arc::clone(&all);
        async move {
            request.into_body().collect().await.unwrap();
            all.wait().await;
            Response::new(full("met"))
        }
    });
    let gateway = start(GatewayConfig::to(format!("h2c://{}", upstream.address)));
    // The first one makes the connection, which the others have to find.
    let mut client = Client::begin(&gateway);
    for n in 0..20 {
        client.ask(1 + 2 * n, frames::END_STREAM, frames::GET);
    }
    let mut ended = 0;
    while ended < 20 {
        let frame = client.next().unwrap();
        assert_ne!(frame.kind, frames::GOAWAY);
        if frame.kind == frames::DATA && frame.flags & frames::END_STREAM != 0 {
            ended += 1;
        }
    }
    drop(client);
    let accepted = upstream.accepted();
    let mut client = Client::begin(&gateway);
    for n in 0..20 {
        client.ask(1 + 2 * n, frames::END_STREAM, frames::GET);
    }
    assert_eq!(client.outcome(39).0, Outcome::Whole);
    assert_eq!(upstream.accepted(), accepted, "those that are there are used");
    assert!(accepted <= 20, "{accepted}");
}
