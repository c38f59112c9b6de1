//! What those who cannot wait are told.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{
    Answer, Call, Holding, Inherit, Limit, Limiter, ManualClock, MemoryStore, Outcome,
    RegisterError, Registered, Store, Timestamp, WaitError,
};

use crate::{SECOND, Waiter, at_once, limiter, used_up};

#[test]
fn so_many_wait_and_no_more() {
    let clock = ManualClock::new();
    let builder = Limiter::builder().limit(Limit::per_second(1)).max_waiters(2);
    let limiter = builder.clock(clock.clone()).build().unwrap();
    for key in ["user:42", "user:43"] {
        assert!(limiter.check(key).allowed);
    }
    let first = Waiter::asleep(limiter.on("user:42").until_ready());
    let second = Waiter::asleep(limiter.on("user:42").until_ready());
    let error = at_once(limiter.on("user:42").until_ready()).unwrap_err();
    assert_eq!(error, WaitError::TooManyWaiters { max: 2 });
    assert_eq!(error.to_string(), "2 are waiting already");
    // The bound is on all keys together.
    let error = at_once(limiter.on("user:43").until_ready()).unwrap_err();
    assert_eq!(error, WaitError::TooManyWaiters { max: 2 });
    // But whoever need not wait is not turned away.
    assert!(at_once(limiter.on("user:44").until_ready()).is_ok());
    assert_eq!(limiter.waiters(), 2);

    drop(second);
    let third = Waiter::asleep(limiter.on("user:43").until_ready());
    clock.advance(SECOND);
    assert!(first.end().is_ok());
    assert!(third.end().is_ok());
}

#[test]
fn without_waiters_only_those_pass_who_need_not_wait() {
    let builder = Limiter::builder().limit(Limit::per_second(1)).max_waiters(0);
    let limiter = builder.clock(ManualClock::new()).build().unwrap();
    assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
    let error = at_once(limiter.on("user:42").until_ready()).unwrap_err();
    assert_eq!(error, WaitError::TooManyWaiters { max: 0 });
}

#[test]
fn errors_say_what_happened() {
    let (_, limiter) = limiter(Limit::per_second(2));
    let error = at_once(limiter.on("user:42").cost(3).until_ready()).unwrap_err();
    assert_eq!(error.to_string(), "the cost is more than the limit of 2 can hold");
    let (_, limiter) = used_up();
    let error = at_once(limiter.on("user:42").until_ready_within(SECOND / 2)).unwrap_err();
    assert_eq!(error.to_string(), "not admitted in time");
}

/// A store that cannot be reached.
struct Unreachable(MemoryStore);

#[derive(Debug, PartialEq, Eq)]
struct Timeout;

impl std::fmt::Display for Timeout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no answer within 5ms")
    }
}

impl std::error::Error for Timeout {}

impl Store for Unreachable {
    type Error = Timeout;

    fn register(
        &self,
        id: &str,
        limit: tidegate_core::Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        self.0.register(id, limit, inherit)
    }

    async fn apply(&self, _: &Call<'_>, _: &mut [Answer]) -> Result<Outcome, Timeout> {
        Err(Timeout)
    }

    async fn reserve(
        &self,
        _: &Call<'_>,
        _: &mut [Answer],
        _: u128,
        _: Duration,
    ) -> Result<Outcome, Timeout> {
        Err(Timeout)
    }

    async fn settle(&self, _: u128, _: u64, _: Timestamp) -> Result<bool, Timeout> {
        Err(Timeout)
    }

    fn settle_soon(&self, _: Holding, _: u64, _: Timestamp) {}
}

#[test]
fn a_store_that_cannot_answer_is_no_refusal() {
    let limiter = Limiter::builder()
        .limit(Limit::per_second(1))
        .store(Unreachable(MemoryStore::new()))
        .clock(ManualClock::new())
        .build_on()
        .unwrap();
    let request = || limiter.on("user:42");
    assert_eq!(at_once(request().check_async()).unwrap_err(), Timeout);
    assert_eq!(at_once(request().check_each_async()).unwrap_err(), Timeout);
    assert_eq!(at_once(request().peek_async()).unwrap_err(), Timeout);
    assert_eq!(at_once(request().up_to_async()).unwrap_err(), Timeout);
    assert_eq!(at_once(request().force_async()).unwrap_err(), Timeout);
    assert_eq!(at_once(request().refund_async()).unwrap_err(), Timeout);
    assert_eq!(at_once(request().reset_async()).unwrap_err(), Timeout);

    let error = at_once(request().until_ready()).unwrap_err();
    assert_eq!(error, WaitError::Store(Timeout));
    assert_eq!(error.to_string(), "the store could not answer");
    let source = std::error::Error::source(&error).map(ToString::to_string);
    assert_eq!(source.as_deref(), Some("no answer within 5ms"));
    assert_eq!(at_once(request().reserve(SECOND)).unwrap_err(), WaitError::Store(Timeout));
    assert_eq!(at_once(request().acquire_within(SECOND)).unwrap_err(), WaitError::Store(Timeout));
    assert_eq!(limiter.waiters(), 0);
}
