//! Ending under load: what was decided was also answered.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use rustix::process::Signal;
use support::Folder;
use support::serving::{PATIENCE, Serving};
use tidegate_proto::{Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};

const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 4000000000, unit: day }
";

/// Clients of each kind.
const CLIENTS: usize = 8;
/// Answers that there have to be before the end, so that it comes under load.
const ANSWERS_BEFORE: u64 = 2_000;

/// Sends requests one after the other until the connection is gone; each answer counts.
fn http(address: &str, answers: &AtomicU64) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let body = r#"{"domain":"api","descriptors":[{"entries":[["user","ada"]]}]}"#;
    let length = body.len();
    let request =
        format!("POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}");
    loop {
        if stream.write_all(request.as_bytes()).is_err() {
            return;
        }
        let (mut length, mut is_last) = (None, false);
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line == "\r\n" => break,
                Ok(_) => {}
            }
            let line = line.to_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().ok();
            }
            is_last |= line.starts_with("connection: close");
        }
        let mut body = vec![0; length.expect("a length")];
        reader.read_exact(&mut body).expect("an answer that was begun comes whole");
        answers.fetch_add(1, SeqCst);
        if is_last {
            return;
        }
    }
}

/// Sends pipelines of four until the connection is gone.
fn resp(address: &str, answers: &AtomicU64) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let pipeline = "TIDEGATE.CHECK api user ada\r\n".repeat(4);
    loop {
        if stream.write_all(pipeline.as_bytes()).is_err() {
            return;
        }
        for _ in 0..4 {
            // Six parts, of which the last is a text with its length before it.
            for part in 0..8 {
                let mut line = String::new();
                match reader.read_line(&mut line) {
                    Ok(0) | Err(_) if part == 0 => return,
                    Ok(0) | Err(_) => panic!("half an answer"),
                    Ok(_) => {}
                }
            }
            answers.fetch_add(1, SeqCst);
        }
    }
}

/// Sends requests one after the other until the connection is gone.
fn grpc(address: &str, answers: &AtomicU64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut client =
            RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap();
        loop {
            let entry = Entry { key: "user".into(), value: "ada".into() };
            let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
            let request = RateLimitRequest {
                domain: "api".into(),
                descriptors: vec![descriptor],
                hits_addend: 1,
            };
            match client.should_rate_limit(request).await {
                Ok(_) => answers.fetch_add(1, SeqCst),
                Err(_) => return,
            };
        }
    });
}

#[test]
fn every_request_that_was_decided_got_its_answer() {
    let folder = Folder::new(&[("rules.yaml", RULES)]);
    let rules = folder.path().join("rules.yaml");
    let mut serving = Serving::start(&["--rules", rules.to_str().unwrap(), "--drain", "20s"]);
    type Client = fn(&str, &AtomicU64);
    let kinds: [(&str, Client); 3] = [("grpc", grpc), ("http", http), ("resp", resp)];
    let answers: Vec<Arc<AtomicU64>> = kinds.iter().map(|_| Arc::default()).collect();
    let mut clients = Vec::new();
    for ((kind, client), answers) in kinds.iter().zip(&answers) {
        for _ in 0..CLIENTS {
            let (address, answers, client) = (serving.address(kind), Arc::clone(answers), *client);
            clients.push(thread::spawn(move || client(&address, &answers)));
        }
    }
    let deadline = Instant::now() + PATIENCE;
    while answers.iter().any(|answers| answers.load(SeqCst) < ANSWERS_BEFORE) {
        assert!(Instant::now() < deadline, "the load does not get going: {answers:?}");
        thread::yield_now();
    }
    serving.signal(Signal::TERM);
    for client in clients {
        client.join().unwrap();
    }
    assert_eq!(serving.wait().code(), Some(0), "{:?}", serving.logged);
    let ended = serving.logged.iter().find(|line| line.contains("ended")).unwrap();
    for ((kind, _), answers) in kinds.iter().zip(&answers) {
        let told = ended.split(&format!("{kind}=")).nth(1).and_then(|rest| rest.split(' ').next());
        let decided: u64 = told.unwrap().parse().unwrap();
        assert_eq!(decided, answers.load(SeqCst), "{kind}: decided, and answered");
    }
}
