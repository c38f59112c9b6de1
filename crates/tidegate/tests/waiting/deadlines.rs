//! How long somebody is willing to wait.

use std::time::Duration;

use tidegate::{Limit, Rate, Retry, WaitError};

use crate::{NANOSECOND, SECOND, Waiter, at_once, limiter, too_long, used_up};

#[test]
fn a_wait_that_is_known_to_be_too_long_is_not_begun() {
    let (clock, limiter) = used_up();
    let most = SECOND - NANOSECOND;
    let decision = too_long(at_once(limiter.on("user:42").until_ready_within(most)));
    assert_eq!((decision.allowed, decision.retry), (false, Retry::After(SECOND)));
    assert_eq!(limiter.waiters(), 0);
    assert_eq!(clock.sleepers(), (0, None));
    let decision = too_long(at_once(limiter.on("user:42").until_ready_within(Duration::ZERO)));
    assert_eq!(decision.retry, Retry::After(SECOND));
}

#[test]
fn a_wait_may_end_at_the_deadline_itself() {
    let (clock, limiter) = used_up();
    let waiter = Waiter::asleep(limiter.on("user:42").until_ready_within(SECOND));
    clock.advance(SECOND);
    assert!(waiter.end().unwrap().allowed);
}

#[test]
fn who_is_admitted_at_once_needs_no_time() {
    let (_, limiter) = limiter(Limit::per_second(1));
    assert!(at_once(limiter.on("user:42").until_ready_within(Duration::ZERO)).is_ok());
}

#[test]
fn a_deadline_may_pass_in_the_queue() {
    let (clock, limiter) = limiter(Limit::fixed_window(Rate::new(1, 10 * SECOND)));
    assert!(limiter.check("user:42").allowed);
    let head = Waiter::asleep(limiter.on("user:42").until_ready());
    let impatient = Waiter::asleep(limiter.on("user:42").until_ready_within(3 * SECOND));
    let last = Waiter::asleep(limiter.on("user:42").until_ready());
    clock.advance(3 * SECOND - NANOSECOND);
    assert!(!impatient.is_called());
    clock.advance(NANOSECOND);
    // The clock began at a whole number of ten seconds.
    let decision = too_long(impatient.end());
    assert_eq!((decision.allowed, decision.retry), (false, Retry::After(7 * SECOND)));
    assert_eq!(limiter.waiters(), 2);
    assert!(!head.is_called() && !last.is_called());
    clock.advance(7 * SECOND);
    assert!(head.end().is_ok());
    assert!(last.is_called());
}

#[test]
fn a_head_whose_unit_was_taken_by_another_is_too_late() {
    let (clock, limiter) = used_up();
    let waiter = Waiter::asleep(limiter.on("user:42").until_ready_within(SECOND * 3 / 2));
    clock.advance(SECOND);
    assert!(limiter.check("user:42").allowed);
    let decision = too_long(waiter.end());
    assert_eq!(decision.retry, Retry::After(SECOND));
    assert_eq!(limiter.waiters(), 0);
}

#[test]
fn a_head_that_gives_up_lets_the_next_one_try() {
    let (clock, limiter) = used_up();
    let head = Waiter::asleep(limiter.on("user:42").until_ready_within(SECOND));
    let mut next = Waiter::asleep(limiter.on("user:42").until_ready());
    clock.advance(SECOND);
    assert!(limiter.check("user:42").allowed);
    let _ = too_long(head.end());
    assert!(next.answer().is_pending());
    clock.advance(SECOND);
    assert!(next.end().is_ok());
}

#[test]
fn what_can_never_be_is_not_waited_for() {
    let (_, limiter) = used_up();
    let Err(WaitError::Never(decision)) = at_once(limiter.on("user:42").cost(2).until_ready())
    else {
        panic!("two of one")
    };
    assert_eq!((decision.allowed, decision.retry, decision.limit), (false, Retry::Never, 1));
    // Not behind others either.
    let _head = Waiter::asleep(limiter.on("user:42").until_ready());
    let refused = at_once(limiter.on("user:42").cost(2).until_ready_within(SECOND));
    assert!(matches!(refused, Err(WaitError::Never(_))));
    assert_eq!(limiter.waiters(), 1);
}

#[test]
fn what_can_be_no_more_is_told_when_it_is_known() {
    let (clock, limiter) = limiter(Limit::per_second(2));
    assert!(limiter.on("user:42").cost(2).check().allowed);
    let waiter = Waiter::asleep(limiter.on("user:42").cost(2).until_ready());
    let smaller = [("limit-0", Limit::per_second(1))];
    limiter.replace(smaller, tidegate::Inherit::Used).unwrap();
    clock.advance(SECOND);
    assert!(matches!(waiter.end(), Err(WaitError::Never(_))));
}

#[test]
fn a_reservation_is_waited_for_like_anything_else() {
    let (clock, limiter) = limiter(Limit::per_second(10));
    assert!(limiter.on("user:42").cost(10).check().allowed);
    let refused = at_once(limiter.on("user:42").cost(5).reserve(SECOND / 2 - NANOSECOND));
    assert!(matches!(refused, Err(WaitError::TooLong(_))));
    let waiter = Waiter::asleep(limiter.on("user:42").cost(5).reserve(SECOND / 2));
    clock.advance(SECOND / 2);
    let reservation = waiter.end().unwrap();
    assert_eq!(limiter.peek("user:42").remaining, 0);
    reservation.settle(2);
    assert_eq!(limiter.peek("user:42").remaining, 3);
}
