//! Waiting for a limit, by a clock that stands still and futures that are polled by hand: so the
//! tests know exactly who is woken when, and nothing sleeps.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

mod blocking;
mod deadlines;
mod errors;
mod interleavings;
mod queueing;
mod shaping;
mod slow_store;
mod waking;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::{
    Decision, Limit, LimitSpec, Limiter, ManualClock, MemoryError, MemoryStore, Permit, WaitError,
};

type Clocked = Limiter<MemoryStore, ManualClock>;
type Waited<T = Decision> = Result<T, WaitError<MemoryError>>;
type Permitted = Waited<Permit<MemoryStore, ManualClock>>;

const NANOSECOND: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);

fn limiter(limit: LimitSpec) -> (ManualClock, Clocked) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().limit(limit).clock(clock.clone()).build().unwrap();
    (clock, limiter)
}

/// A limiter of one per second whose unit is taken: whoever comes has to wait.
fn used_up() -> (ManualClock, Clocked) {
    let (clock, limiter) = limiter(Limit::per_second(1));
    assert!(limiter.check("user:42").allowed);
    (clock, limiter)
}

/// Counts how often it rings.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future with a bell of its own.
struct Waiter<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    bell: Arc<Bell>,
}

impl<'a, T> Waiter<'a, T> {
    fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self { future: Box::pin(future), bell: Arc::default() }
    }

    /// A future that was polled once and waits.
    fn asleep(future: impl Future<Output = T> + Send + 'a) -> Self {
        let mut waiter = Self::new(future);
        assert!(waiter.poll().is_pending(), "there is nothing to wait for");
        assert!(!waiter.is_called(), "it was woken while it fell asleep");
        waiter
    }

    /// Polls it, whether it was woken or not.
    fn poll(&mut self) -> Poll<T> {
        self.bell.0.store(0, Ordering::SeqCst);
        self.future.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&self.bell))))
    }

    /// Whether it was woken since it was last polled.
    fn is_called(&self) -> bool {
        self.bell.0.load(Ordering::SeqCst) > 0
    }

    /// What comes of polling it after it was woken.
    fn answer(&mut self) -> Poll<T> {
        assert!(self.is_called(), "nobody woke it");
        self.poll()
    }

    /// The end of a future that was woken.
    fn end(mut self) -> T {
        match self.answer() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it was woken too early"),
        }
    }
}

/// What comes of a future at its first poll.
fn at_once<T>(future: impl Future<Output = T> + Send) -> T {
    match Waiter::new(future).poll() {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}

/// The decision of a wait that was too long.
fn too_long<T: std::fmt::Debug>(waited: Waited<T>) -> Decision {
    match waited {
        Err(WaitError::TooLong(decision)) => decision,
        other => panic!("not too long: {other:?}"),
    }
}
