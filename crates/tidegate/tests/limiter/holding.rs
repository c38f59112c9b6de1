//! What was taken and may come back: permits and reservations.

use std::time::Duration;

use tidegate::{Each, Limit, Rate, Retry};

use crate::{NANOSECOND, SECOND, at_once, limiter, limiter_of};

#[test]
fn a_permit_is_given_back_when_it_is_dropped() {
    let (_, limiter) = limiter(Limit::concurrency(2));
    let first = limiter.on("user:42").acquire().unwrap();
    assert_eq!(first.decision().remaining, 1);
    let second = limiter.on("user:42").acquire().unwrap();
    assert_eq!(second.decision().remaining, 0);
    assert!(limiter.on("user:42").acquire().is_err());
    assert!(limiter.on("user:43").acquire().is_ok());
    drop(first);
    assert_eq!(limiter.peek("user:42").remaining, 1);
    let third = limiter.on("user:42").acquire();
    assert!(third.is_ok());
    drop((second, third));
    // Permits that were all given back leave nothing behind.
    limiter.store().sweep(limiter.now());
    assert!(limiter.store().is_empty());
}

#[test]
fn a_permit_may_take_several_places() {
    let (_, limiter) = limiter(Limit::concurrency(3));
    let two = limiter.on("user:42").cost(2).acquire().unwrap();
    assert_eq!(limiter.on("user:42").cost(2).acquire().unwrap_err().remaining, 1);
    let one = limiter.on("user:42").acquire().unwrap();
    drop(two);
    assert_eq!(limiter.peek("user:42").remaining, 2);
    drop(one);
    assert_eq!(limiter.on("user:42").cost(4).acquire().unwrap_err().retry, Retry::Never);
}

#[test]
fn a_permit_that_nobody_gives_back_ends_with_its_lease() {
    let (clock, limiter) = limiter(Limit::concurrency(1).lease(10 * SECOND));
    let lost = limiter.on("user:42").acquire().unwrap();
    let refused = limiter.on("user:42").acquire().unwrap_err();
    assert_eq!(refused.retry, Retry::After(10 * SECOND));
    clock.advance(10 * SECOND - NANOSECOND);
    let refused = limiter.on("user:42").acquire().unwrap_err();
    assert_eq!(refused.retry, Retry::After(NANOSECOND));
    clock.advance(NANOSECOND);
    let next = limiter.on("user:42").acquire().unwrap();
    // Whoever comes back late gives back its own place, not the one of its successor.
    drop(lost);
    assert!(limiter.on("user:42").acquire().is_err());
    drop(next);
    assert!(limiter.on("user:42").acquire().is_ok());
}

#[test]
fn a_lease_is_a_minute_if_nobody_says() {
    let (clock, limiter) = limiter(Limit::concurrency(1));
    let _held = limiter.on("user:42").acquire().unwrap();
    clock.advance(60 * SECOND - NANOSECOND);
    assert!(!limiter.peek("user:42").allowed);
    clock.advance(NANOSECOND);
    assert!(limiter.peek("user:42").allowed);
}

#[test]
fn without_a_lease_nobody_knows_when() {
    let (clock, limiter) = limiter(Limit::concurrency(1).without_lease());
    let held = limiter.on("user:42").acquire().unwrap();
    clock.advance(1_000_000 * SECOND);
    let refused = limiter.on("user:42").acquire().unwrap_err();
    assert_eq!((refused.retry, refused.reset_after), (Retry::Unknown, None));
    drop(held);
    assert!(limiter.peek("user:42").allowed);
}

#[test]
fn a_permit_is_prolonged_from_the_moment_of_renewal() {
    let (clock, limiter) = limiter(Limit::concurrency(1).lease(10 * SECOND));
    let permit = limiter.on("user:42").acquire().unwrap();
    for _ in 0..5 {
        clock.advance(6 * SECOND);
        assert!(at_once(permit.renew()).unwrap());
    }
    clock.advance(10 * SECOND - NANOSECOND);
    assert!(!limiter.peek("user:42").allowed);
    clock.advance(NANOSECOND);
    assert!(limiter.peek("user:42").allowed);
    drop(permit);
    assert_eq!(limiter.peek("user:42").remaining, 1);
}

#[test]
fn a_lease_that_has_ended_is_renewed_if_nobody_took_the_place() {
    let (clock, limiter) = limiter(Limit::concurrency(1).lease(10 * SECOND));
    let permit = limiter.on("user:42").acquire().unwrap();
    clock.advance(20 * SECOND);
    assert!(at_once(permit.renew()).unwrap());
    assert!(limiter.on("user:42").acquire().is_err());

    clock.advance(20 * SECOND);
    let other = limiter.on("user:42").acquire().unwrap();
    assert!(!at_once(permit.renew()).unwrap());
    drop(permit);
    assert!(limiter.on("user:42").acquire().is_err(), "the other still holds it");
    drop(other);
    assert!(limiter.on("user:42").acquire().is_ok());
}

#[test]
fn a_renewal_asks_no_limit_but_concurrency() {
    let (_, limiter) = limiter_of([Limit::per_hour(5), Limit::concurrency(2)]);
    let permit = limiter.on("user:42").acquire().unwrap();
    for _ in 0..10 {
        assert!(at_once(permit.renew()).unwrap());
    }
    assert_eq!(limiter.on("user:42").cost(0).check_each().each[0].remaining, 4);
}

#[test]
fn what_a_rate_has_counted_stays_counted_when_a_permit_goes() {
    let (_, limiter) = limiter_of([Limit::per_second(2), Limit::concurrency(10)]);
    // Each permit is dropped at once, so only the rate can refuse.
    let admitted = (0..100).filter(|_| limiter.on("user:42").acquire().is_ok()).count();
    assert_eq!(admitted, 2);
    let left = limiter.on("user:42").cost(0).check_each();
    assert_eq!((left.each[0].remaining, left.each[1].remaining), (0, 10));
}

#[test]
fn a_permit_outlives_its_limiter() {
    let (_, limiter) = limiter(Limit::concurrency(1));
    let permit = limiter.on("user:42").acquire().unwrap();
    let store = limiter.clone();
    drop(limiter);
    drop(permit);
    assert_eq!(store.peek("user:42").remaining, 1);
}

#[test]
fn a_reservation_is_settled_at_the_real_cost() {
    for limit in [
        Limit::per_hour(100),
        Limit::fixed_window(Rate::per_hour(100)),
        Limit::sliding_log(Rate::per_hour(100)),
        Limit::sliding_counter(Rate::per_hour(100)),
    ] {
        for (cost, left) in [(0, 100), (15, 85), (40, 60), (70, 30), (100, 0), (250, 0)] {
            let (_, limiter) = limiter(limit);
            let reservation = limiter.on("user:42").cost(40).try_reserve().unwrap();
            assert_eq!(reservation.decision().remaining, 60, "{limit}");
            assert_eq!(limiter.peek("user:42").remaining, 60, "{limit}");
            reservation.settle(cost);
            assert_eq!(limiter.peek("user:42").remaining, left, "{limit} settled at {cost}");
        }
    }
}

#[test]
fn more_than_was_reserved_is_a_debt() {
    let (clock, limiter) = limiter(Limit::per_second(10));
    limiter.on("user:42").cost(10).try_reserve().unwrap().settle(15);
    assert_eq!(limiter.check("user:42").retry, Retry::After(SECOND * 6 / 10));
    clock.advance(SECOND * 6 / 10);
    assert!(limiter.check("user:42").allowed);
}

#[test]
fn cancelling_and_dropping_give_everything_back() {
    let (_, limiter) = limiter(Limit::per_hour(100));
    limiter.on("user:42").cost(40).try_reserve().unwrap().cancel();
    assert_eq!(limiter.peek("user:42").remaining, 100);
    drop(limiter.on("user:42").cost(40).try_reserve().unwrap());
    assert_eq!(limiter.peek("user:42").remaining, 100);
}

#[test]
fn a_reservation_that_is_refused_takes_nothing() {
    let (_, limiter) = limiter(Limit::per_hour(100));
    assert!(limiter.on("user:42").cost(70).check().allowed);
    let refused = limiter.on("user:42").cost(40).try_reserve().unwrap_err();
    assert_eq!((refused.allowed, refused.remaining), (false, 30));
    assert_eq!(refused.retry, Retry::After(Duration::from_secs(10 * 36)));
    assert_eq!(limiter.peek("user:42").remaining, 30);
}

#[test]
fn what_time_has_paid_for_does_not_come_back_twice() {
    let (clock, limiter) = limiter(Limit::per_second(10));
    let reservation = limiter.on("user:42").cost(10).try_reserve().unwrap();
    clock.advance(SECOND / 2);
    // Five have been earned, and are taken by others.
    assert_eq!(limiter.up_to("user:42", 10), 5);
    reservation.cancel();
    assert_eq!(limiter.peek("user:42").remaining, 5);
}

#[test]
fn a_window_that_is_over_gives_nothing_to_the_next() {
    let (clock, limiter) = limiter(Limit::fixed_window(Rate::per_second(10)));
    let reservation = limiter.on("user:42").cost(8).try_reserve().unwrap();
    clock.advance(SECOND);
    assert!(limiter.on("user:42").cost(5).check().allowed);
    reservation.cancel();
    assert_eq!(limiter.peek("user:42").remaining, 5);
}

#[test]
fn all_limits_get_back_what_they_gave() {
    let (_, limiter) = limiter_of([Limit::per_hour(100), Limit::fixed_window(Rate::per_day(500))]);
    let key = Each(("user:42", "everybody"));
    let left = || {
        let peeked = limiter.on(&key).cost(0).check_each();
        (peeked.each[0].remaining, peeked.each[1].remaining)
    };
    let reservation = limiter.on(&key).cost(40).try_reserve().unwrap();
    assert_eq!(left(), (60, 460));
    reservation.settle(10);
    assert_eq!(left(), (90, 490));
    limiter.on(&key).cost(40).try_reserve().unwrap().cancel();
    assert_eq!(left(), (90, 490));
}

#[test]
fn a_reservation_that_need_not_wait_is_there_at_once() {
    let (_, limiter) = limiter(Limit::per_hour(100));
    let reservation = at_once(limiter.on("user:42").cost(40).reserve(SECOND)).unwrap();
    assert_eq!(limiter.peek("user:42").remaining, 60);
    reservation.settle(1);
    assert_eq!(limiter.peek("user:42").remaining, 99);
    let permit = at_once(limiter.on("user:42").acquire_within(SECOND)).unwrap();
    assert_eq!(permit.decision().remaining, 98);
}
