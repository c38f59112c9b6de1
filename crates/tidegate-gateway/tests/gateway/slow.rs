//! Clients that take their time: to send a head, a body, and to read.

use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use tidegate_gateway::{Gateway, GatewayConfig};

use crate::frames::{self, Client, Outcome};
use crate::support::*;

const SHORT: Duration = Duration::from_millis(200);
/// How much there is to be had, and how much of it may be on its way: kernels hold some megabytes for
/// each of the two connections.
const MUCH: usize = 512 << 20;
const ON_ITS_WAY_MAX: usize = 64 << 20;

fn hurried(url: String) -> Gateway {
    let mut config = GatewayConfig::to(url);
    let patience = &mut config.patience;
    (patience.head, patience.body, patience.write) = (SHORT, SHORT, SHORT);
    start(config)
}

/// A server that answers with as much as it is let, and says how much that was when nothing has gone for
/// half a second.
fn fountain() -> (Server, mpsc::Receiver<usize>) {
    let (tell, told) = mpsc::channel();
    let server = raw_server(move |mut stream, _| {
        read_head(&mut stream).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n").unwrap();
        let (piece, mut sent) = (vec![b'a'; 64 << 10], 0);
        while sent < MUCH {
            match stream.write(&piece) {
                Ok(some) => sent += some,
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                    break;
                }
            }
        }
        tell.send(sent).unwrap();
        // The connection stays until the gateway leaves.
        let _ = stream.read(&mut [0]);
    });
    (server, told)
}

#[test]
fn many_slow_heads_at_once_are_all_answered_in_time() {
    let upstream = echo();
    let gateway = hurried(upstream.url());
    let began = Instant::now();
    let mut streams: Vec<_> = (0..50).map(|_| connect(&gateway)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX: ").unwrap();
    }
    for stream in &mut streams {
        assert_eq!(status(&read_all(stream)), "408");
    }
    assert!(began.elapsed() < GUARD / 2, "{:?}", began.elapsed());
    drop(streams);
    until("all are gone", || gateway.connections() == 0);
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn a_tls_handshake_that_does_not_end_is_not_waited_for() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let mut config = GatewayConfig::to(upstream.url());
    config.patience.head = SHORT;
    config.tls = Some(crate::secure::certify(dir.path(), "localhost"));
    let gateway = start(config);
    let mut stream = connect(&gateway);
    // The beginning of a handshake record, of which the rest does not come.
    stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    assert_eq!(read_all(&mut stream), "");
}

#[test]
fn a_slow_body_over_http1_is_answered_408_and_ends_the_upstreams_request() {
    let (tell, told) = mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        read_head(&mut stream).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap_or_default();
        tell.send(rest).unwrap();
    });
    let gateway = hurried(upstream.url());
    let answer = say(&gateway, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(status(&answer), "408", "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(told.recv_timeout(GUARD).unwrap(), b"abc");
}

#[test]
fn a_slow_body_over_http2_is_answered_408_and_ends_the_upstreams_request() {
    let (tell, told) = mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        read_head(&mut stream).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap_or_default();
        tell.send(String::from_utf8_lossy(&rest).into_owned()).unwrap();
    });
    let gateway = hurried(upstream.url());
    let mut client = Client::begin(&gateway);
    client.ask(1, 0, frames::POST);
    client.send(frames::DATA, 0, 1, b"abc");
    let (outcome, data) = client.outcome(1);
    assert_eq!(outcome, Outcome::Whole);
    let problem: serde_json::Value = serde_json::from_slice(&data).unwrap();
    assert_eq!(problem["status"], 408, "{problem}");
    assert_eq!(told.recv_timeout(GUARD).unwrap(), "3\r\nabc\r\n", "no end was sent");
}

#[test]
fn a_body_that_keeps_coming_is_not_slow() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    config.patience.body = Duration::from_secs(1);
    let gateway = start(config);
    // All of it takes longer than any of its parts may, over both protocols.
    let mut stream = connect(&gateway);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n").unwrap();
    let mut client = Client::begin(&gateway);
    client.ask(1, 0, frames::POST);
    for piece in [b"a", b"b", b"c", b"d", b"e", b"f"] {
        std::thread::sleep(Duration::from_millis(250));
        stream.write_all(piece).unwrap();
        client.send(frames::DATA, if piece == b"f" { frames::END_STREAM } else { 0 }, 1, piece);
    }
    assert!(read_answer(&mut stream).ends_with("\nabcdef"));
    let (outcome, data) = client.outcome(1);
    assert_eq!(outcome, Outcome::Whole);
    assert!(data.ends_with(b"\nabcdef"));
}

#[test]
fn what_a_client_does_not_read_is_not_kept_for_it() {
    let (upstream, told) = fountain();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut first = connect(&gateway);
    first.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let sent = told.recv_timeout(GUARD).unwrap();
    assert!(sent < ON_ITS_WAY_MAX, "{sent} bytes were taken for an HTTP/1 client");
    let mut second = Client::begin(&gateway);
    second.ask(1, frames::END_STREAM, frames::GET);
    let sent = told.recv_timeout(GUARD).unwrap();
    assert!(sent < ON_ITS_WAY_MAX, "{sent} bytes were taken for an HTTP/2 client");
}

#[test]
fn what_an_upstream_does_not_read_is_not_kept_for_it() {
    let is_stuck = Arc::new(Barrier::new(2));
    let end = Arc::clone(&is_stuck);
    let upstream = raw_server(move |mut stream, _| {
        read_head(&mut stream).unwrap();
        // It reads no more until the client has been stuck.
        end.wait();
    });
    let mut config = GatewayConfig::to(upstream.url());
    config.body_bytes_max = MUCH as u64;
    let gateway = start(config);
    let mut stream = connect(&gateway);
    write!(stream, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {MUCH}\r\n\r\n").unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let (piece, mut sent) = (vec![b'a'; 64 << 10], 0);
    while let Ok(some) = stream.write(&piece) {
        sent += some;
        assert!(sent < ON_ITS_WAY_MAX, "{sent} bytes were taken for an upstream");
    }
    is_stuck.wait();
}

#[test]
fn an_http2_client_that_takes_nothing_of_its_answer_is_not_waited_for() {
    let (tell, told) = mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        read_head(&mut stream).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n").unwrap();
        let piece = vec![b'a'; 64 << 10];
        while stream.write_all(&piece).is_ok() {}
        tell.send(()).unwrap();
    });
    let gateway = hurried(upstream.url());
    let mut client = Client::begin(&gateway);
    client.ask(1, frames::END_STREAM, frames::GET);
    // The window is never opened further.
    let (outcome, data) = client.outcome(1);
    assert_eq!((outcome, data.len()), (Outcome::Reset, 65_535));
    told.recv_timeout(GUARD).expect("the upstream's connection was closed");
    // Nor is one that never opens it.
    let mut client = Client::begin(&gateway);
    client.send(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    client.ask(1, frames::END_STREAM, frames::GET);
    assert_eq!(client.outcome(1), (Outcome::Reset, Vec::new()));
    // Whoever takes everything has all the time.
    let echo = echo();
    let gateway = hurried(echo.url());
    let mut client = Client::begin(&gateway);
    client.ask(1, frames::END_STREAM, frames::GET);
    assert_eq!(client.outcome(1).0, Outcome::Whole);
}
