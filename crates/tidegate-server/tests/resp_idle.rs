//! What a RESP connection keeps that nothing happens on. A test of its own, since it looks at the
//! memory of the whole process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

#[path = "resp/support.rs"]
#[allow(dead_code, reason = "this needs only some of it")]
mod support;

use support::{Answer, Client, start};

#[test]
fn an_idle_connection_takes_little_memory() {
    let server = start(|_| {});
    // Each has sent a large command and got a large answer, and then nothing more.
    let large = "x".repeat(16_000);
    let mut idle: Vec<_> = (0..500).map(|_| server.client()).collect();
    let settle = |idle: &mut Vec<Client>| {
        for client in idle.iter_mut() {
            assert_eq!(client.ask(&["ECHO", &large]), Answer::Bulk(large.clone()));
        }
    };
    settle(&mut idle);
    let before = resident();
    settle(&mut idle);
    let grown = resident().saturating_sub(before);
    // Had each kept its buffers, it would be sixteen megabytes.
    assert!(grown < 4 << 20, "{grown} bytes for 500 connections");
}

/// Bytes of memory that this process uses.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}
