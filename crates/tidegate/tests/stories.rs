//! Bugs that were found by reading, and their stories.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::{Inherit, Limit, Limiter, ManualClock, MemoryStore, OnFull, Source};

const SECOND: Duration = Duration::from_secs(1);

/// Blocking everybody for a while and unblocking them again is an operator's reflex. The limit in
/// between remembered nothing, and whoever was seen meanwhile started afresh.
#[test]
fn blocking_and_unblocking_forgets_nothing() {
    let limiter =
        Limiter::builder().limit(Limit::per_minute(100)).clock(ManualClock::new()).build().unwrap();
    assert!(limiter.on("key").cost(60).check().allowed);
    limiter.replace([("limit-0", Limit::per_minute(0))], Inherit::Used).unwrap();
    assert!(!limiter.check("key").allowed);
    limiter.replace([("limit-0", Limit::per_minute(100))], Inherit::Used).unwrap();
    assert_eq!(limiter.peek("key").remaining, 40);
}

/// The same for permits: those who hold one still hold it.
#[test]
fn blocking_and_unblocking_keeps_permits_in_flight() {
    let limiter =
        Limiter::builder().limit(Limit::concurrency(2)).clock(ManualClock::new()).build().unwrap();
    let _permit = limiter.on("key").acquire().unwrap();
    limiter.replace([("limit-0", Limit::concurrency(0))], Inherit::Used).unwrap();
    assert!(limiter.on("key").acquire().is_err());
    limiter.replace([("limit-0", Limit::concurrency(2))], Inherit::Used).unwrap();
    assert_eq!(limiter.peek("key").remaining, 1);
}

/// A permit without a lease made every later one endless, also after leases were introduced: a
/// holder that crashed then blocked for good.
#[test]
fn leases_that_are_introduced_hold_for_those_in_flight() {
    let clock = ManualClock::new();
    let endless = Limit::concurrency(2).without_lease();
    let limiter = Limiter::builder().limit(endless).clock(clock.clone()).build().unwrap();
    let _crashed = limiter.on("key").acquire().unwrap();
    limiter.replace([("limit-0", Limit::concurrency(2).lease(SECOND))], Inherit::Used).unwrap();
    let _also_crashed = limiter.on("key").acquire().unwrap();
    assert_eq!(limiter.peek("key").remaining, 0);
    clock.advance(SECOND);
    assert_eq!(limiter.peek("key").remaining, 2);
}

/// Renewing asked the limits in force, not those the permit was of: a permit of a limit that had
/// gone claimed to be held, and one of a limit that had come was never given back.
#[test]
fn a_permit_renews_what_it_holds_and_nothing_else() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .named("old", Limit::concurrency(1).lease(SECOND))
        .clock(clock.clone())
        .build()
        .unwrap();
    let permit = limiter.on("key").acquire().unwrap();
    limiter.replace([("new", Limit::concurrency(1).without_lease())], Inherit::Used).unwrap();
    let renewed = pin!(permit.renew()).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(renewed, Poll::Ready(Ok(true)));
    drop(permit);
    assert!(limiter.on("key").acquire().is_ok(), "the new limit's only permit was never taken");
}

/// A store that is full refuses without knowing until when, and nobody announces that there is
/// room again: those who waited for it slept for ever.
#[test]
fn who_waits_for_a_full_store_asks_again() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().max_keys(1).on_full(OnFull::Deny).build();
    let limiter = Limiter::builder()
        .limit(Limit::per_second(1))
        .store(store)
        .clock(clock.clone())
        .build()
        .unwrap();
    assert!(limiter.check("first").allowed);
    let refused = limiter.check("second");
    assert_eq!((refused.allowed, refused.source), (false, Source::Fallback));

    let mut waiter = pin!(limiter.on("second").until_ready());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(waiter.as_mut().poll(&mut cx).is_pending());
    clock.advance(SECOND);
    assert!(matches!(waiter.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
}

/// What is forced has to be counted, also when the store is full: it was admitted and forgotten.
#[test]
fn what_is_forced_is_remembered_by_a_full_store() {
    let store = MemoryStore::builder().max_keys(1).on_full(OnFull::Deny).build();
    let limiter = Limiter::builder()
        .limit(Limit::per_minute(10))
        .store(store)
        .clock(ManualClock::new())
        .build()
        .unwrap();
    assert!(limiter.check("first").allowed);
    limiter.on("second").cost(10).force();
    assert_eq!(limiter.peek("second").remaining, 0);
}

/// A permit may come back at any moment, so waiting for one is worth while; but not if something
/// else refuses for longer than one is willing to wait.
#[test]
fn a_wait_that_no_permit_can_shorten_is_not_begun() {
    let limiter = Limiter::builder()
        .limit(Limit::per_hour(1))
        .limit(Limit::concurrency(1))
        .clock(ManualClock::new())
        .build()
        .unwrap();
    let _permit = limiter.on("key").acquire().unwrap();
    let mut waiter = pin!(limiter.on("key").acquire_within(SECOND));
    let polled = waiter.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(tidegate::WaitError::TooLong(_)))));
}
