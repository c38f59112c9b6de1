//! Bytes per key: the growth of a fresh process.

use std::fs;
use std::process::Command;

use crate::rivals::{Path, build};
use crate::workload::KeyBuffer;

const RIVALS: [&str; 7] = [
    "governor String",
    "governor u64",
    "mutexed sharded map",
    "tidegate token bucket",
    "tidegate fixed window",
    "tidegate sliding counter",
    "tidegate sliding log of 10",
];

pub fn run() {
    println!("\n## Bytes per key (growth of resident memory, 16-character keys)\n");
    println!("| rival | 1M keys | 5M keys |\n| --- | --- | --- |");
    for rival in RIVALS {
        let cells: Vec<String> = ["1000000", "5000000"].map(|keys| measure(rival, keys)).into();
        println!("| {rival} | {} |", cells.join(" | "));
    }
}

fn measure(rival: &str, keys: &str) -> String {
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program).args(["fill", rival, keys]).output().expect("a child");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Asks a rival for so many keys and prints what it took.
pub fn fill(rival: &str, keys: u32) {
    // The limit refuses after the first, so that no state is spent and dropped meanwhile.
    let limiter = build(rival, keys, Path::Deny);
    let mut key = KeyBuffer::new();
    let before = resident_bytes();
    for number in 0..keys {
        limiter.ask(&mut key, number);
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("{:.1}", grown as f64 / f64::from(keys));
    drop(limiter);
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
