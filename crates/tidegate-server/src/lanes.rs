//! Threads that each serve connections of their own.
//!
//! A request is so little work that handing it to another thread, and waking that one up, would be
//! a large part of it. So a connection stays with the thread that it was given to.

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Threads that run as long as this is there.
#[derive(Debug)]
pub(crate) struct Lanes {
    handles: Vec<Handle>,
    turn: AtomicUsize,
    _end: DropGuard,
}

impl Lanes {
    /// Starts so many.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let end = CancellationToken::new();
        let start = |_| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, end) = (runtime.handle().clone(), end.clone());
            let run = move || runtime.block_on(end.cancelled());
            thread::Builder::new().name("lane".into()).spawn(run)?;
            Ok(handle)
        };
        let handles = (0..count.max(1)).map(start).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { handles, turn: AtomicUsize::new(0), _end: end.drop_guard() })
    }

    /// Gives a task to the thread whose turn it is.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        if let Some(handle) = self.handles.get(turn % self.handles.len()) {
            handle.spawn(task);
        }
    }
}
