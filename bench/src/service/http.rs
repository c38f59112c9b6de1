//! HTTP beside a bare axum handler.

use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Child, Length, Measured, next, print, take_turns};

pub(super) const CONNECTIONS: usize = 32;

pub(super) fn run(length: Length) {
    for keys in length.keys() {
        let servers = [
            ("bare axum", Child::serve("axum")),
            ("bare axum with the same headers", Child::serve("axum-headers")),
            ("tidegate", Child::serve("tidegate-http")),
        ];
        let rows = take_turns(length, &servers, |_, child| {
            load(&child.address, *keys, length.requests(), || child.cpu_seconds())
        });
        print(&format!("HTTP, {CONNECTIONS} connections, {keys} keys"), &rows);
    }
}

/// Sends requests and waits for all answers.
pub(super) fn load(
    address: &str,
    keys: usize,
    requests: usize,
    cpu_seconds: impl Fn() -> f64,
) -> Measured {
    let each = requests / CONNECTIONS;
    load_by(address, requests, cpu_seconds, |stream, seed| ask(stream, seed, keys, each))
}

/// A load of all connections at once, each with a number of its own; `ask` gives the waits of one.
pub(super) fn load_by<A>(
    address: &str,
    requests: usize,
    cpu_seconds: impl Fn() -> f64,
    ask: impl Fn(TcpStream, u64) -> A,
) -> Measured
where
    A: Future<Output = Vec<u64>> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let stream = TcpStream::connect(address).await.expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            streams.push(stream);
        }
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let tasks = streams.into_iter().zip(1..);
        let tasks = tasks.map(|(stream, seed)| tokio::spawn(ask(stream, seed)));
        let mut latencies = Vec::with_capacity(requests);
        for task in tasks.collect::<Vec<_>>() {
            latencies.extend(task.await.expect("the load does not fail"));
        }
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        Measured::new(latencies.len(), seconds, cpu, &mut latencies)
    })
}

async fn ask(mut stream: TcpStream, mut seed: u64, keys: usize, requests: usize) -> Vec<u64> {
    let mut latencies = Vec::with_capacity(requests);
    let mut answer = Vec::with_capacity(4096);
    for _ in 0..requests {
        let key = next(&mut seed) % keys as u64;
        let body = format!(
            r#"{{"domain":"bench","descriptors":[{{"entries":[["user","user{key:012}"]]}}]}}"#
        );
        let length = body.len();
        let request = format!(
            "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        let began = Instant::now();
        stream.write_all(request.as_bytes()).await.expect("it is written");
        read_answer(&mut stream, &mut answer).await;
        latencies.push(began.elapsed().as_nanos() as u64);
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    }
    latencies
}

/// Reads one answer, which says its length.
pub(super) async fn read_answer(stream: &mut TcpStream, answer: &mut Vec<u8>) {
    answer.clear();
    loop {
        let read = stream.read_buf(answer).await.expect("it is read");
        assert!(read > 0, "the connection was closed");
        let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
        let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
        if answer.len() >= end + 4 + length {
            return;
        }
    }
}
