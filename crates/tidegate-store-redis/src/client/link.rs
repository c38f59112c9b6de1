//! One connection, as those see it who send commands by it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::driver;
use super::node::Node;
use super::queue::Queue;
use super::resp::encoded;
use super::{ClientError, Reply};

/// A connection to a node, or one that is being made. A task on the runtime of the thread that uses
/// it writes and reads; all others only leave commands here.
pub(super) struct Link {
    pub(super) node: Arc<Node>,
    /// What the node said of itself when this was last found to be in order.
    marks: AtomicU64,
    inner: Mutex<Inner>,
}

/// What is behind the lock, which nobody holds for long.
#[derive(Default)]
pub(super) struct Inner {
    pub(super) queue: Queue,
    /// Whom to wake when there is something to write, if that one sleeps.
    pub(super) driver: Option<Waker>,
    pub(super) asleep: bool,
    pub(super) state: State,
    /// How often the script was loaded by this connection.
    scripts: u32,
}

/// Whether commands are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Open,
    /// No more than there are.
    Closing,
    /// There is no connection any more.
    Dead,
}

/// Why a link did not take a command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Full,
    Dead,
}

/// What goes before a command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Before {
    /// The script, unless it was loaded since so often.
    pub(super) script: Option<u32>,
    /// The word that a slot is asked for which is about to come.
    pub(super) asking: bool,
}

impl Link {
    /// Begins to connect. `again` says that there was a connection before.
    pub(super) fn start(node: &Arc<Node>, runtime: &Handle, again: bool) -> Arc<Self> {
        let link = Arc::new(Self {
            node: Arc::clone(node),
            marks: AtomicU64::new(node.marks()),
            inner: Mutex::default(),
        });
        node.adopt(&link);
        runtime.spawn(driver::drive(Arc::clone(&link), again));
        link
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Takes a command; `None` before it for one as usual.
    pub(super) fn push(
        self: &Arc<Self>,
        bytes: &[u8],
        deadline: Instant,
        before: Option<Before>,
    ) -> Result<Waiting, Refused> {
        let options = &self.node.common.options;
        let mut inner = self.lock();
        if inner.state != State::Open {
            return Err(Refused::Dead);
        }
        if inner.queue.len() >= options.in_flight_max {
            return Err(Refused::Full);
        }
        if let Some(before) = before {
            if before.script == Some(inner.scripts) {
                inner.scripts += 1;
                let load = encoded(&[b"SCRIPT", b"LOAD", options.script.as_bytes()]);
                inner.queue.push_script(&load, deadline);
            }
            if before.asking {
                inner.queue.push_for_nobody(&encoded(&[b"ASKING"]), deadline);
            }
        }
        let slot = inner.queue.push(bytes, deadline);
        let scripts = inner.scripts;
        inner.rouse();
        drop(inner);
        Ok(Waiting { link: Arc::clone(self), slot: Some(slot), scripts })
    }

    /// Whether it may still be used, by what has happened to its node since it was last asked.
    pub(super) fn is_in_order(&self) -> bool {
        let (then, now) = (self.marks.load(Ordering::Relaxed), self.node.marks());
        if then == now {
            return true;
        }
        // It has been cut off, or it is the reason why the node was taken for dead.
        if then >> 32 != now >> 32 || self.lock().queue.is_behind() {
            return false;
        }
        self.marks.store(now, Ordering::Relaxed);
        true
    }

    /// Takes no more commands, and ends when those that it has are done.
    pub(super) fn close(&self) {
        let mut inner = self.lock();
        if inner.state == State::Open {
            inner.state = State::Closing;
        }
        inner.rouse();
    }
}

impl Inner {
    /// Wakes the one who writes. Cheap if that one is awake.
    fn rouse(&mut self) {
        if std::mem::take(&mut self.asleep)
            && let Some(driver) = &self.driver
        {
            driver.wake_by_ref();
        }
    }
}

/// A reply to come. Whoever drops it does not wait any more; the command is still executed.
pub(super) struct Waiting {
    pub(super) link: Arc<Link>,
    slot: Option<u32>,
    /// How often the script had been loaded when the command was sent.
    pub(super) scripts: u32,
}

impl Future for Waiting {
    type Output = Result<Reply, ClientError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let waiting = self.get_mut();
        let Some(slot) = waiting.slot else { return Poll::Ready(Err(ClientError::Down)) };
        let reply = waiting.link.lock().queue.poll(slot, context.waker());
        match reply {
            None => Poll::Pending,
            Some(reply) => {
                waiting.slot = None;
                Poll::Ready(reply)
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            self.link.lock().queue.leave(slot);
        }
    }
}
