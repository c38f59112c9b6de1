//! What `INFO` tells of connections and commands.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts of the whole front end.
#[derive(Debug)]
pub(crate) struct Counts {
    started: Instant,
    connections: AtomicU64,
    open: AtomicU64,
    commands: AtomicU64,
}

/// A connection that is open as long as this is there.
pub(crate) struct Open<'a>(&'a AtomicU64);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            commands: AtomicU64::new(0),
        }
    }

    /// The number of a new connection.
    pub(crate) fn connected(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn open_one(&self) -> Open<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(&self.open)
    }

    #[inline]
    pub(crate) fn commands(&self, count: u64) {
        self.commands.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn up(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn connections_so_far(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn commands_so_far(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }
}
