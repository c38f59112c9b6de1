//! The limiter as its users know it: building it, every way to ask, and what comes of it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

mod building;
mod holding;
mod keys;
mod observing;
mod operations;
mod replacing;
mod several;
mod sharing;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::{Limit, LimitSpec, Limiter, ManualClock, MemoryStore, Rate};

/// A limiter whose time the test moves.
type Clocked = Limiter<MemoryStore, ManualClock>;

const NANOSECOND: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);

fn limiter(limit: LimitSpec) -> (ManualClock, Clocked) {
    limiter_of([limit])
}

fn limiter_of(limits: impl IntoIterator<Item = LimitSpec>) -> (ManualClock, Clocked) {
    let clock = ManualClock::new();
    let builder = Limiter::builder().clock(clock.clone());
    let builder = limits.into_iter().fold(builder, |builder, limit| builder.limit(limit));
    (clock, builder.build().unwrap())
}

/// One limit of each algorithm, 6 units each where that has a meaning.
fn every_algorithm() -> [LimitSpec; 9] {
    let rate = Rate::per_second(6);
    [
        Limit::token_bucket(rate),
        Limit::leaky_bucket(rate),
        Limit::leaky_queue(rate, 5),
        Limit::fixed_window(rate),
        Limit::sliding_log(rate),
        Limit::sliding_counter(rate),
        Limit::gcra(rate),
        Limit::concurrency(6),
        Limit::warm_up(rate, SECOND),
    ]
}

/// What a future gives that has nothing to wait for.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits"),
    }
}
