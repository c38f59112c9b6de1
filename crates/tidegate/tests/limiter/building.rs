//! What can be built, and what is said of the rest.

use std::error::Error;
use std::sync::Arc;

use tidegate::{
    BuildError, Calendar, CalendarUnit, Limit, Limiter, ManualClock, MemoryStore, Rate,
};

use crate::{SECOND, limiter, limiter_of};

/// The messages of an error and its sources, as a program prints them.
fn messages(error: &BuildError) -> Vec<String> {
    let mut messages = vec![error.to_string()];
    let mut source = error.source();
    while let Some(error) = source {
        messages.push(error.to_string());
        source = error.source();
    }
    messages
}

#[test]
fn a_limiter_needs_a_limit() {
    let error = Limiter::builder().build().unwrap_err();
    assert_eq!(error, BuildError::NoLimits);
    assert_eq!(messages(&error), ["a limiter needs at least one limit; add one with `limit`"]);
}

#[test]
fn an_impossible_limit_is_named_with_its_reason() {
    let wrong = Limit::fixed_window(Rate::per_second(5)).burst(10);
    let error = Limiter::new(wrong).unwrap_err();
    assert_eq!(
        messages(&error),
        ["limit `limit-0` cannot be built", "`burst` has no meaning for `fixed_window`"]
    );
    let error =
        Limiter::builder().limit(Limit::per_second(5)).named("api", wrong).build().unwrap_err();
    assert_eq!(messages(&error)[0], "limit `api` cannot be built");
}

#[test]
fn names_are_given_once() {
    let limit = Limit::per_second(5);
    let error = Limiter::builder().named("api", limit).named("api", limit).build().unwrap_err();
    assert_eq!(error, BuildError::Twice { id: "api".to_owned() });
    assert_eq!(messages(&error), ["two limits are named `api`"]);
    // Names by position are names too.
    let error = Limiter::builder().limit(limit).named("limit-0", limit).build().unwrap_err();
    assert_eq!(messages(&error), ["two limits are named `limit-0`"]);
}

#[test]
fn build_on_needs_a_store() {
    let error = Limiter::builder().limit(Limit::per_second(5)).build_on().unwrap_err();
    assert_eq!(error, BuildError::NoStore);
    assert_eq!(
        messages(&error),
        ["no store was given; call `build` for memory, or give one with `store`"]
    );
}

#[test]
fn a_limit_by_the_calendar_needs_one() {
    let month = Calendar::new(CalendarUnit::Month, "Europe/Berlin").unwrap();
    let error = Limiter::new(month.limit(5)).unwrap_err();
    assert_eq!(
        messages(&error),
        ["limit `limit-0` follows a calendar; add it with `calendar` instead of `limit`"]
    );
    assert!(Limiter::builder().calendar("monthly", 5, month).build().is_ok());
}

#[test]
fn a_store_may_know_too_many_limits() {
    let store = MemoryStore::builder().max_limits(1).build();
    let limit = Limit::per_second(5);
    let error = Limiter::builder().limit(limit).limit(limit).store(store).build().unwrap_err();
    assert_eq!(
        messages(&error),
        ["cannot register limit `limit-1`: the store knows 1 limits already, all in use"]
    );
}

#[test]
fn limits_are_named_by_position_or_by_name() {
    let limiter = Limiter::builder()
        .limit(Limit::per_second(5).burst(10))
        .named("hourly", Limit::per_hour(1000))
        .limit(Limit::concurrency(3))
        .build()
        .unwrap();
    let limits = limiter.limits();
    let ids: Vec<&str> = limits.iter().map(|limit| limit.id()).collect();
    assert_eq!(ids, ["limit-0", "hourly", "limit-2"]);
    assert_eq!(limits[0].limit().to_string(), "token_bucket 5/1s burst=10");
    assert_eq!(
        format!("{limiter:?}"),
        "Limiter([limit-0: token_bucket 5/1s burst=10, hourly: token_bucket 1000/1h, \
         limit-2: concurrency 3])"
    );
}

#[test]
fn limiters_of_one_store_share_what_has_the_same_name() {
    let store = Arc::new(MemoryStore::new());
    let clock = ManualClock::new();
    let named = |name: &str| {
        Limiter::builder()
            .named(name, Limit::per_second(2))
            .store(Arc::clone(&store))
            .clock(clock.clone())
            .build_on()
            .unwrap()
    };
    let (posts, again, likes) = (named("posts"), named("posts"), named("likes"));
    assert_eq!(posts.check("user:42").remaining, 1);
    assert_eq!(again.check("user:42").remaining, 0);
    assert!(!posts.check("user:42").allowed);
    assert_eq!(likes.check("user:42").remaining, 1);
}

#[test]
fn a_given_store_is_the_one_that_counts() {
    let store = MemoryStore::builder().max_keys(1000).build();
    let limiter = Limiter::builder().limit(Limit::per_hour(5)).store(store).build().unwrap();
    assert_eq!(limiter.store().stats().keys_max, 1000);
    assert!(limiter.check("user:42").allowed);
    assert_eq!(limiter.store().len(), 1);
}

#[test]
fn a_limit_of_nothing_blocks() {
    let (_, limiter) = limiter(Limit::per_second(0));
    let decision = limiter.check("user:42");
    assert_eq!((decision.allowed, decision.limit, decision.remaining), (false, 0, 0));
    assert_eq!(decision.retry, tidegate::Retry::Never);
}

#[test]
fn the_time_is_the_clocks() {
    let (clock, limiter) = limiter_of([Limit::per_second(1), Limit::per_hour(1)]);
    let start = limiter.now();
    clock.advance(SECOND);
    assert_eq!(limiter.now().since(start), SECOND);
}
