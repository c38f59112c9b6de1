//! A daily quota that survives a restart: what was used is kept in a file.
//!
//! `cargo run -p tidegate --example snapshot`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::path::Path;

use tidegate::{
    Align, BuildError, Clock, Limit, Limiter, MemoryStore, Rate, SnapshotError, SystemClock,
};

/// What a program does when it starts.
fn start(file: &Path) -> Result<Limiter, BuildError> {
    let restored = MemoryStore::builder().restore(file, SystemClock::new().now());
    match restored.keys {
        Ok(keys) => println!("started with {keys} keys"),
        Err(reason) => println!("started afresh: {reason}"),
    }
    // Keys are found again by the name of their limit.
    let daily = Limit::fixed_window(Rate::per_day(3)).align(Align::FirstRequest);
    Limiter::builder().named("daily", daily).store(restored.store).build()
}

/// What it does when it ends, and every few minutes in between.
fn stop(limiter: &Limiter, file: &Path) -> Result<usize, SnapshotError> {
    limiter.store().snapshot(file, limiter.now())
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("quota.snapshot");

    let limiter = start(&file)?;
    assert!(limiter.check("user:42").allowed);
    assert!(limiter.check("user:42").allowed);
    assert_eq!(stop(&limiter, &file)?, 1);
    drop(limiter);

    let limiter = start(&file)?;
    let last = limiter.check("user:42");
    assert_eq!((last.allowed, last.remaining), (true, 0));
    let refused = limiter.check("user:42");
    assert!(!refused.allowed);
    println!("still used up, for {:.0?}", refused.retry.after().unwrap_or_default());
    assert_eq!(limiter.check("user:43").remaining, 2);
    Ok(())
}
