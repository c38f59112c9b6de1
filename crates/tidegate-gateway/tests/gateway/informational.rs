//! What is said before the answer: hints, and that a body may come.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tidegate_gateway::{GatewayConfig, RuleGate};

use crate::frames::{self, Client, Outcome};
use crate::limiting::{TWO_AN_HOUR, limiter, with};
use crate::support::*;

/// A server of HTTP/1.1 that has a lot to say before each answer.
fn talkative() -> Server {
    raw_server(|mut stream, _| {
        while read_head(&mut stream).is_some() {
            let early =
                "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-Early: 1\r\n\r\n";
            let text = format!(
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
                early.repeat(20)
            );
            stream.write_all(text.as_bytes()).unwrap();
        }
    })
}

/// The same over HTTP/2.
fn talkative_http2() -> Server {
    raw_server(|mut stream, _| {
        stream.read_exact(&mut [0; 24]).unwrap();
        let mut client = Client { stream };
        client.send(frames::SETTINGS, 0, 0, &[]);
        while let Some(frame) = client.next() {
            if frame.kind != frames::HEADERS {
                continue;
            }
            for (status, link) in [("103", "</a.css>"), ("102", "none"), ("103", "</b.css>")] {
                let block = frames::block(&[(":status", status), ("link", link), ("x-early", "1")]);
                client.send(frames::HEADERS, frames::END_HEADERS, frame.stream, &block);
            }
            let block = frames::block(&[(":status", "200"), ("content-length", "2")]);
            client.send(frames::HEADERS, frames::END_HEADERS, frame.stream, &block);
            client.send(frames::DATA, frames::END_STREAM, frame.stream, b"ok");
        }
    })
}

#[test]
fn hints_are_left_out_and_nothing_else_is() {
    for upstream in [talkative().url(), format!("h2c://{}", talkative_http2().address)] {
        let gateway = start(GatewayConfig::to(upstream.clone()));
        let mut client = connect(&gateway);
        for _ in 0..3 {
            client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let answer = read_answer(&mut client);
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{upstream}: {answer}");
            assert!(answer.ends_with("\r\n\r\nok"), "{upstream}: {answer}");
            for early in ["link", "x-early", "/a.css"] {
                assert!(!answer.contains(early), "{upstream}: {answer}");
            }
        }
        let answer = curl(&["-i", "--http2-prior-knowledge", &url(&gateway, "/")]);
        assert!(answer.starts_with("HTTP/2 200") && answer.ends_with("ok"), "{upstream}: {answer}");
        assert!(!answer.contains("x-early"), "{upstream}: {answer}");
    }
}

#[test]
fn hints_without_an_answer_are_none() {
    // They put nothing off.
    let upstream = raw_server(|mut stream, _| {
        read_head(&mut stream);
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut config = GatewayConfig::to(upstream.url());
    config.routes[0].response = Duration::from_millis(300);
    let gateway = start(config);
    assert_eq!(status(&curl(&["-i", &url(&gateway, "/")])), "504");
    let upstream = raw_server(|mut stream, _| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").unwrap();
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    assert_eq!(status(&curl(&["-i", &url(&gateway, "/")])), "502");
}

#[test]
fn an_upstream_cannot_go_over_to_something_that_nobody_asked_for() {
    let upstream = raw_server(|mut stream, _| {
        read_head(&mut stream);
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello")
            .unwrap();
        let _ = stream.read(&mut [0; 64]);
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let answer = curl(&["-i", version, &url(&gateway, "/")]);
        assert_eq!(status(&answer), "502", "{answer}");
    }
}

fn expecting(length: usize) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    )
}

#[test]
fn a_body_is_asked_for_once_its_request_has_gone_on() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut client = connect(&gateway);
    for body in ["one", "two"] {
        client.write_all(expecting(3).as_bytes()).unwrap();
        assert_eq!(read_head(&mut client).unwrap(), "HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(body.as_bytes()).unwrap();
        let answer = read_answer(&mut client);
        assert!(answer.ends_with(&format!("\n{body}")), "{answer}");
        assert!(!answer.contains("expect:"), "{answer}");
    }
    // Who does not wait is not told.
    client.write_all(format!("{}now", expecting(3)).as_bytes()).unwrap();
    let head = read_head(&mut client).unwrap();
    assert!(head.starts_with("HTTP/1.1 100") || head.starts_with("HTTP/1.1 200"), "{head}");
}

/// What is said to a client that waits to be told to send its body, and whether that is all.
fn last_words(mut client: TcpStream) -> String {
    client.write_all(expecting(3).as_bytes()).unwrap();
    read_all(&mut client)
}

#[test]
fn no_body_is_asked_for_that_nobody_wants() {
    let upstream = echo();
    let (limiter, _) = limiter(
        "
domain: api
http: [ { match: { path: \"/**\" }, descriptors: [ { ip: \"${client_ip}\" } ] } ]
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 0, unit: hour } }
",
    );
    let gateway = with(RuleGate::new(limiter, "api"), GatewayConfig::to(upstream.url()));
    let answer = last_words(connect(&gateway));
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    // Nor where it goes nowhere, or cannot.
    let mut config = GatewayConfig::to(upstream.url());
    config.routes[0].path = "/elsewhere".into();
    let answer = last_words(connect(&start(config)));
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    let mut config = GatewayConfig::to(upstream.url());
    config.body_bytes_max = 2;
    let answer = last_words(connect(&start(config)));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let gone = start(GatewayConfig::to(format!("http://{}", nobody())));
    let answer = last_words(connect(&gone));
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn a_body_that_nobody_wants_does_not_end_the_connection_if_it_is_short() {
    let upstream = echo();
    let (limiter, _) = limiter(TWO_AN_HOUR);
    let gateway = with(RuleGate::new(limiter, "api"), GatewayConfig::to(upstream.url()));
    let mut client = connect(&gateway);
    for _ in 0..2 {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        assert_eq!(status(&read_answer(&mut client)), "200");
    }
    for _ in 0..3 {
        // The body comes after the answer.
        client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n").unwrap();
        let answer = read_answer(&mut client);
        assert_eq!(status(&answer), "429");
        assert!(!answer.contains("connection: close"), "{answer}");
        client.write_all(&[b'a'; 60_000]).unwrap();
    }
    // A long one does, and the client is told; so does one of which nobody knows how long it is.
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
    ] {
        let answer = say(&gateway, request);
        assert_eq!(status(&answer), "429");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    // Over HTTP/2 only the stream ends.
    let mut client = Client::begin(&gateway);
    for stream in [1, 3] {
        client.ask(stream, 0, frames::POST);
        client.send(frames::DATA, 0, stream, &[b'a'; 10_000]);
        let (outcome, data) = client.outcome(stream);
        assert_eq!(outcome, Outcome::Whole);
        assert!(String::from_utf8(data).unwrap().contains("429"));
    }
}
