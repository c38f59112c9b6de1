//! Thousands of connections that do nothing, read nothing or send nonsense: memory stays bounded,
//! and others do not notice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use support::serving::{PATIENCE, Serving};

/// Connections at once.
const CROWD: usize = 10_000;
/// Kilobytes that the service may grow by for a connection: what is stated in docs/operations.md.
const IDLE_KB_MAX: usize = 20;

const CHECK: &str = r#"{"domain":"examples","descriptors":[{"entries":[["system","all"]]}]}"#;

/// Kilobytes of memory that the service has.
fn memory_kb(serving: &Serving) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", serving.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// As many connections, fewer than asked for if this process may not have so many open files.
fn crowd(address: &str, greeting: &[u8]) -> Vec<TcpStream> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: limit.maximum, ..limit },
    )
    .unwrap();
    let room = limit.maximum.map_or(CROWD, |most| most as usize).saturating_sub(200);
    let connect = |_| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(greeting).unwrap();
        stream
    };
    (0..CROWD.min(room)).map(connect).collect()
}

/// Waits until the service counts so many connections.
fn wait_for_connections(serving: &Serving, front_end: &str, wanted: impl Fn(usize) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let label = format!("tidegate_connections{{front_end=\"{front_end}\"}} ");
    loop {
        let (_, metrics) = serving.http("GET", "/metrics", "");
        let count = metrics.lines().find_map(|line| line.strip_prefix(&label)).unwrap();
        if wanted(count.trim().parse().unwrap()) {
            return;
        }
        assert!(Instant::now() < deadline, "{front_end} has {count} connections");
    }
}

/// What HTTP/2 begins with, and settings, after which a client of gRPC waits.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";

#[test]
fn ten_thousand_idle_connections_cost_little_and_bother_nobody() {
    let serving = Serving::start(&[]);
    // Half of a request, and the beginning of a connection: nobody can be answered yet.
    let greetings: [(&str, &[u8]); 3] = [
        ("http", b"POST /v1/check HTTP/1.1\r\nhost: a\r\n"),
        ("grpc", HTTP2),
        ("resp", b"*2\r\n$4\r\nPING\r\n$100\r\nhalf"),
    ];
    for (front_end, greeting) in greetings {
        let before = memory_kb(&serving);
        let connections = crowd(&serving.address(front_end), greeting);
        wait_for_connections(&serving, front_end, |count| count >= connections.len());
        let grown = memory_kb(&serving).saturating_sub(before);
        let each = grown as f64 / connections.len() as f64;
        println!("{front_end}: {} connections, {grown} kB, {each:.1} kB each", connections.len());
        assert!(grown < connections.len() * IDLE_KB_MAX, "{front_end}: {each:.1} kB each");
        assert_eq!(serving.http("POST", "/v1/check", CHECK).0, 200);
        drop(connections);
        wait_for_connections(&serving, front_end, |count| count <= 1);
    }
}

#[test]
fn beyond_the_bound_connections_are_closed_and_counted() {
    let serving = Serving::start(&["--max-connections", "5"]);
    let mut connections: Vec<_> =
        (0..5).map(|_| TcpStream::connect(serving.address("resp")).unwrap()).collect();
    wait_for_connections(&serving, "resp", |count| count == 5);
    let mut sixth = TcpStream::connect(serving.address("resp")).unwrap();
    sixth.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = Vec::new();
    // It may be told why; it is closed in any case.
    let _ = sixth.read_to_end(&mut answer);
    let (_, metrics) = serving.http("GET", "/metrics", "");
    let refused = "tidegate_connections_refused_total{front_end=\"resp\"} 1";
    assert!(metrics.contains(refused), "{metrics}");
    // The others go on, and when one leaves there is room again.
    for stream in &mut connections {
        ping(stream);
    }
    drop(connections.pop());
    wait_for_connections(&serving, "resp", |count| count == 4);
    ping(&mut TcpStream::connect(serving.address("resp")).unwrap());
}

fn ping(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn garbage_on_every_port_ends_only_the_connection_it_came_on() {
    let serving = Serving::start(&[]);
    let mut seed = 7_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    let huge_line = [b'a'; 1 << 20];
    for front_end in ["http", "grpc", "resp"] {
        let oversized: Vec<Vec<u8>> = vec![
            huge_line.to_vec(),
            b"*1000000000\r\n".to_vec(),
            b"*1\r\n$4000000000\r\n".to_vec(),
            b"*-5\r\n$-7\r\n\r\n\r\n".to_vec(),
            b"POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999999\r\n\r\n{".to_vec(),
            b"POST /json HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nffffffffff\r\n"
                .to_vec(),
            [HTTP2, &[0xff; 4096]].concat(),
            // Headers that never end, and a frame that says it is large.
            [HTTP2, b"\x00\x40\x00\x01\x00\x00\x00\x00\x01", &[0x40; 16_384]].concat(),
            [HTTP2, b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"].concat(),
        ];
        let random = (0..50).map(|round| noise(1 + round * 37));
        for bytes in oversized.into_iter().chain(random) {
            let mut stream = TcpStream::connect(serving.address(front_end)).unwrap();
            // The other side may have closed before it has read all.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
        }
        assert_eq!(serving.http("POST", "/v1/check", CHECK).0, 200, "after noise on {front_end}");
        ping(&mut TcpStream::connect(serving.address("resp")).unwrap());
    }
    let mut serving = serving;
    assert_eq!(serving.terminate().code(), Some(0));
    assert!(!serving.logged.iter().any(|line| line.contains("panicked")), "{:?}", serving.logged);
}

#[test]
fn those_who_do_not_read_cost_no_more_than_their_bound() {
    let serving = Serving::start(&[]);
    let before = memory_kb(&serving);
    // Everybody asks for much more than fits into the buffers of the system, and reads nothing.
    let pipeline = b"INFO\r\n".repeat(20_000);
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(serving.address("resp")).unwrap();
            stream.set_nonblocking(true).unwrap();
            let mut sent = 0;
            // Until the service does not take any more.
            while let Ok(more) = stream.write(&pipeline[sent..]) {
                sent += more;
                if sent == pipeline.len() {
                    break;
                }
            }
            stream
        })
        .collect();
    for _ in 0..100 {
        assert_eq!(serving.http("POST", "/v1/check", CHECK).0, 200);
    }
    let grown = memory_kb(&serving).saturating_sub(before);
    println!("20 clients that do not read: {grown} kB");
    assert!(grown < 20 * 1024, "{grown} kB");
    drop(readers);
    wait_for_connections(&serving, "resp", |count| count == 0);
}
