//! Whatever is given back calls those who wait for it.

use std::time::Duration;

use tidegate::{Each, Inherit, Limit, LimitSpec, Limiter, ManualClock, Rate, Retry};

use crate::{Clocked, NANOSECOND, Permitted, SECOND, Waiter, at_once, limiter, too_long};

/// One permit that only its holder can give back: nobody knows when it comes.
const ONE_AT_ONCE: LimitSpec = Limit::concurrency(1).without_lease();
const LONG: Duration = Duration::from_secs(1000);

fn permit(limiter: &Clocked) -> Waiter<'_, Permitted> {
    Waiter::asleep(limiter.on("user:42").acquire_within(LONG))
}

#[test]
fn a_permit_that_is_dropped_calls_the_next_in_order() {
    let (clock, limiter) = limiter(ONE_AT_ONCE);
    let mut held = limiter.on("user:42").acquire().unwrap();
    let mut waiters = vec![permit(&limiter), permit(&limiter), permit(&limiter)];
    while !waiters.is_empty() {
        clock.advance(SECOND);
        assert!(waiters.iter().all(|waiter| !waiter.is_called()));
        drop(held);
        assert!(waiters[1..].iter().all(|waiter| !waiter.is_called()));
        held = waiters.remove(0).end().unwrap();
        // The next one is at the head now, and finds the permit taken.
        if let Some(next) = waiters.first_mut() {
            assert!(next.answer().is_pending());
        }
    }
    assert_eq!(limiter.waiters(), 0);
    assert_eq!(limiter.peek("user:42").remaining, 0);
    drop(held);
    assert_eq!(limiter.peek("user:42").remaining, 1);
}

#[test]
fn permits_that_come_back_together_are_all_used() {
    let (_, limiter) = limiter(Limit::concurrency(2).without_lease());
    let held = [(); 2].map(|()| limiter.on("user:42").acquire().unwrap());
    let (first, second) = (permit(&limiter), permit(&limiter));
    drop(held);
    let first = first.end().unwrap();
    let second = second.end().unwrap();
    assert!(limiter.on("user:42").acquire().is_err());
    drop((first, second));
}

#[test]
fn a_wait_for_a_permit_ends_at_its_deadline() {
    let (clock, limiter) = limiter(ONE_AT_ONCE);
    let held = limiter.on("user:42").acquire().unwrap();
    let waiter = permit(&limiter);
    clock.advance(LONG - NANOSECOND);
    assert!(!waiter.is_called());
    clock.advance(NANOSECOND);
    let decision = too_long(waiter.end());
    assert_eq!((decision.allowed, decision.retry), (false, Retry::Unknown));
    assert_eq!(limiter.waiters(), 0);
    drop(held);
}

#[test]
fn a_lease_that_ends_is_waited_for_to_the_nanosecond() {
    let (clock, limiter) = limiter(Limit::concurrency(1).lease(10 * SECOND));
    let lost = limiter.on("user:42").acquire().unwrap();
    let waiter = permit(&limiter);
    clock.advance(10 * SECOND - NANOSECOND);
    assert!(!waiter.is_called());
    clock.advance(NANOSECOND);
    assert!(waiter.end().is_ok());
    drop(lost);
}

#[test]
fn a_permit_that_is_renewed_is_waited_for_further() {
    let (clock, limiter) = limiter(Limit::concurrency(1).lease(10 * SECOND));
    let held = limiter.on("user:42").acquire().unwrap();
    let mut waiter = permit(&limiter);
    clock.advance(6 * SECOND);
    assert!(at_once(held.renew()).unwrap());
    clock.advance(4 * SECOND);
    assert!(waiter.answer().is_pending());
    clock.advance(6 * SECOND);
    assert!(waiter.end().is_ok());
}

#[test]
fn a_leased_permit_that_comes_back_early_is_not_waited_out() {
    let (_, limiter) = limiter(Limit::concurrency(1).lease(10 * SECOND));
    let held = limiter.on("user:42").acquire().unwrap();
    let waiter = permit(&limiter);
    drop(held);
    assert!(waiter.end().is_ok());
}

#[test]
fn a_permit_is_waited_for_also_when_its_lease_ends_later() {
    let (clock, limiter) = limiter(Limit::concurrency(1).lease(10 * SECOND));
    let held = limiter.on("user:42").acquire().unwrap();
    let first = Waiter::asleep(limiter.on("user:42").acquire_within(3 * SECOND));
    clock.advance(2 * SECOND);
    drop(held);
    let held = first.end().unwrap();
    let second = Waiter::asleep(limiter.on("user:42").acquire_within(3 * SECOND));
    clock.advance(3 * SECOND - NANOSECOND);
    assert!(!second.is_called());
    clock.advance(NANOSECOND);
    assert_eq!(too_long(second.end()).retry, Retry::After(7 * SECOND));
    drop(held);
}

#[test]
fn a_permit_that_comes_back_at_the_deadline_is_in_time() {
    let (clock, limiter) = limiter(ONE_AT_ONCE);
    let held = limiter.on("user:42").acquire().unwrap();
    let waiter = permit(&limiter);
    clock.advance(LONG);
    drop(held);
    assert!(waiter.end().is_ok());
}

#[test]
fn a_waiter_that_was_called_and_leaves_passes_the_permit_on() {
    let (_, limiter) = limiter(ONE_AT_ONCE);
    let held = limiter.on("user:42").acquire().unwrap();
    let (first, second) = (permit(&limiter), permit(&limiter));
    drop(held);
    assert!(first.is_called());
    drop(first);
    assert!(second.end().is_ok());
}

#[test]
fn a_permit_of_another_key_calls_nobody() {
    let (_, limiter) = limiter(ONE_AT_ONCE);
    let held = limiter.on("user:42").acquire().unwrap();
    let other = limiter.on("user:43").acquire().unwrap();
    let waiter = permit(&limiter);
    drop(other);
    assert!(!waiter.is_called());
    drop(held);
    assert!(waiter.end().is_ok());
}

#[test]
fn a_reservation_that_ends_below_its_cost_calls() {
    let (_, limiter) = limiter(Limit::fixed_window(Rate::per_day(10)));
    for cost in [0, 4] {
        let reservation = limiter.on("user:42").cost(10).try_reserve().unwrap();
        let waiter = Waiter::asleep(limiter.on("user:42").cost(6).until_ready());
        reservation.settle(cost);
        assert!(waiter.end().unwrap().allowed, "settled at {cost}");
        let _ = limiter.reset("user:42");
    }
    let reservation = limiter.on("user:42").cost(10).try_reserve().unwrap();
    let waiter = Waiter::asleep(limiter.on("user:42").until_ready());
    drop(reservation);
    assert!(waiter.end().unwrap().allowed, "dropped");
}

#[test]
fn refund_and_reset_call() {
    let (_, limiter) = limiter(Limit::fixed_window(Rate::per_day(1)));
    assert!(limiter.check("user:42").allowed);
    let waiter = Waiter::asleep(limiter.on("user:42").until_ready());
    let _ = limiter.refund("user:42", 1);
    assert!(waiter.end().unwrap().allowed);
    let waiter = Waiter::asleep(limiter.on("user:42").until_ready());
    let _ = limiter.reset("user:42");
    assert!(waiter.end().unwrap().allowed);
    let waiter = Waiter::asleep(limiter.on("user:42").until_ready());
    let _ = at_once(limiter.on("user:42").refund_async());
    assert!(waiter.end().unwrap().allowed);
    let waiter = Waiter::asleep(limiter.on("user:42").until_ready());
    let _ = at_once(limiter.on("user:42").reset_async());
    assert!(waiter.end().unwrap().allowed);
}

#[test]
fn new_limits_call_everybody() {
    let (_, limiter) = limiter(ONE_AT_ONCE);
    let keys = ["user:42", "user:43"];
    let held = keys.map(|key| limiter.on(key).acquire().unwrap());
    let waiters = keys.map(|key| Waiter::asleep(limiter.on(key).until_ready()));
    let two = [("limit-0", Limit::concurrency(2).without_lease())];
    limiter.replace(two, Inherit::Used).unwrap();
    for waiter in waiters {
        assert!(waiter.end().unwrap().allowed);
    }
    drop(held);
}

#[test]
fn who_shares_a_part_of_the_key_is_called_too() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(Limit::concurrency(5).without_lease())
        .limit(ONE_AT_ONCE)
        .clock(clock)
        .build()
        .unwrap();
    let (one, other) = (Each(("192.0.2.7", "all")), Each(("192.0.2.8", "all")));
    let held = limiter.on(&one).acquire().unwrap();
    let waiter = Waiter::asleep(limiter.on(&other).acquire_within(LONG));
    drop(held);
    let held = waiter.end().unwrap();
    let waiter = Waiter::asleep(limiter.on(&one).until_ready());
    let _ = limiter.reset(&other);
    assert!(waiter.end().is_ok());
    drop(held);
    // A key without parts is a part, too.
    let _ = limiter.reset(&one);
    let held = limiter.on("all").acquire().unwrap();
    let waiter = Waiter::asleep(limiter.on(&other).until_ready());
    drop(held);
    assert!(waiter.end().is_ok());
}
