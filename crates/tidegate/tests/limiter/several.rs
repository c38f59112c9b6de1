//! Several limits at once: all or nothing, and one answer for all of them.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{Each, Limit, Rate, Retry};

use crate::{NANOSECOND, SECOND, limiter_of};

#[test]
fn nothing_is_taken_from_any_limit_if_one_refuses() {
    let (_, limiter) = limiter_of([
        Limit::per_second(100),
        Limit::fixed_window(Rate::per_hour(3)),
        Limit::sliding_log(Rate::per_day(50)),
    ]);
    for _ in 0..3 {
        assert!(limiter.check("user:42").allowed);
    }
    for _ in 0..10 {
        let refused = limiter.on("user:42").check_each();
        assert!(!refused.overall.allowed);
        assert_eq!(refused.granted, 0);
        let allowed: Vec<bool> = refused.each.iter().map(|decision| decision.allowed).collect();
        assert_eq!(allowed, [true, false, true]);
        let left: Vec<u64> = refused.each.iter().map(|decision| decision.remaining).collect();
        assert_eq!(left, [97, 0, 47]);
    }
}

#[test]
fn the_answer_is_the_strictest_of_all() {
    // A bucket that earns one every 200 ms, a minute's bucket that earns one every 6 s.
    let (_, limiter) = limiter_of([Limit::per_second(5), Limit::per_minute(10)]);
    let first = limiter.on("user:42").cost(5).check();
    assert_eq!((first.allowed, first.remaining, first.retry), (true, 0, Retry::Now));
    assert_eq!(first.reset_after, Some(Duration::from_secs(30)));
    // The first speaks for both: it has nothing left, the second has half.
    assert_eq!((first.rule, first.limit), (0, 5));

    // Only the first refuses, so its wait is what counts.
    let refused = limiter.check("user:42");
    assert_eq!((refused.rule, refused.limit), (0, 5));
    assert_eq!(refused.retry, Retry::After(Duration::from_millis(200)));

    // Both refuse: the longer wait counts, and whose it is speaks.
    let _ = limiter.on("user:42").cost(5).force();
    let refused = limiter.check("user:42");
    assert_eq!((refused.rule, refused.limit), (1, 10));
    assert_eq!(refused.retry, Retry::After(Duration::from_secs(6)));
}

#[test]
fn the_retry_of_several_limits_is_exact() {
    let (clock, limiter) = limiter_of([
        Limit::per_second(2),
        Limit::fixed_window(Rate::per_minute(7)),
        Limit::sliding_log(Rate::new(9, Duration::from_secs(100))),
    ]);
    let mut admitted = 0;
    for _ in 0..40 {
        let decision = limiter.check("user:42");
        if decision.allowed {
            admitted += 1;
            continue;
        }
        let wait = decision.retry.after().unwrap();
        clock.advance(wait - NANOSECOND);
        assert!(!limiter.peek("user:42").allowed);
        clock.advance(NANOSECOND);
        assert!(limiter.peek("user:42").allowed);
    }
    assert!(admitted >= 20, "{admitted} admitted");
}

#[test]
fn never_of_one_is_never_of_all() {
    let (_, limiter) = limiter_of([Limit::per_second(5), Limit::per_minute(2)]);
    let refused = limiter.on("user:42").cost(3).check();
    assert_eq!((refused.allowed, refused.retry, refused.rule), (false, Retry::Never, 1));
}

#[test]
fn not_knowing_outranks_a_wait() {
    let (_, limiter) = limiter_of([Limit::per_second(1), Limit::concurrency(1).without_lease()]);
    let _permit = limiter.on("user:42").acquire().unwrap();
    let refused = limiter.peek("user:42");
    assert_eq!((refused.allowed, refused.retry), (false, Retry::Unknown));
    assert_eq!(refused.reset_after, None);
}

#[test]
fn the_longest_delay_is_the_one_to_hold() {
    let (_, limiter) = limiter_of([
        Limit::leaky_queue(Rate::per_second(10), 5),
        Limit::leaky_queue(Rate::per_second(2), 5),
    ]);
    assert_eq!(limiter.check("user:42").delay, Duration::ZERO);
    assert_eq!(limiter.check("user:42").delay, SECOND / 2);
    assert_eq!(limiter.check("user:42").delay, SECOND);
}

#[test]
fn each_limit_may_count_a_key_of_its_own() {
    let (_, limiter) = limiter_of([Limit::per_second(2), Limit::per_second(3)]);
    assert!(limiter.check(&Each(("a", "all"))).allowed);
    assert!(limiter.check(&Each(("a", "all"))).allowed);
    // The address is used up, the whole is not: nothing is taken from it.
    let refused = limiter.on(&Each(("a", "all"))).check_each();
    assert_eq!((refused.overall.allowed, refused.overall.rule), (false, 0));
    assert_eq!(refused.each[1].remaining, 1);
    assert!(limiter.check(&Each(("b", "all"))).allowed);
    // Now the whole is, and nothing is taken from another address.
    let refused = limiter.on(&Each(("c", "all"))).check_each();
    assert_eq!((refused.overall.allowed, refused.overall.rule), (false, 1));
    assert_eq!(refused.each[0].remaining, 2);
}

#[test]
fn a_pointer_to_a_key_of_parts_has_the_parts() {
    let (_, limiter) = limiter_of([Limit::per_second(1), Limit::per_second(5)]);
    let key = |address| Each((address, "all"));
    assert!(limiter.check(&&key("a")).allowed);
    assert!(limiter.check(&Arc::new(key("b"))).allowed);
    assert!(limiter.check(&Rc::new(key("c"))).allowed);
    assert!(limiter.check(&Box::new(key("d"))).allowed);
    // All of them have taken from the second limit's key.
    let left = limiter.on(&key("e")).check_each();
    assert_eq!((left.each[0].remaining, left.each[1].remaining), (0, 0));
}

#[test]
fn the_last_part_of_a_key_is_for_all_limits_that_are_left() {
    let limit = Limit::per_hour(10);
    let (_, limiter) = limiter_of([limit, limit, limit]);
    assert!(limiter.check(&Each(("a", "rest"))).allowed);
    let left = |key: &Each<(&str, &str, &str)>| -> Vec<u64> {
        let peeked = limiter.on(key).cost(0).check_each();
        peeked.each.iter().map(|decision| decision.remaining).collect()
    };
    assert_eq!(left(&Each(("a", "rest", "rest"))), [9, 9, 9]);
    assert_eq!(left(&Each(("a", "a", "a"))), [9, 10, 10]);
    // A key without parts is the same key for every limit.
    assert!(limiter.check("a").allowed);
    assert_eq!(left(&Each(("a", "a", "a"))), [8, 9, 9]);
}

#[test]
fn parts_beyond_the_limits_are_not_counted() {
    let (_, limiter) = limiter_of([Limit::per_hour(10)]);
    assert_eq!(limiter.check(&Each(("a", "b", "c"))).remaining, 9);
    assert_eq!(limiter.check("a").remaining, 8);
    assert_eq!(limiter.check("b").remaining, 9);
}
