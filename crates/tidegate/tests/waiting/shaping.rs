//! Limits that admit first and say how long to hold.

use std::time::Duration;

use tidegate::{Limit, Limiter, ManualClock, Rate, Retry};

use crate::{Clocked, NANOSECOND, SECOND, Waited, Waiter, at_once, limiter, too_long};

/// One goes at once and one every second after that; three may be on their way.
const QUEUE: tidegate::LimitSpec = Limit::leaky_queue(Rate::per_second(1), 3);

fn held(limiter: &Clocked) -> Waiter<'_, Waited> {
    Waiter::asleep(limiter.on("user:42").until_ready())
}

#[test]
fn everybody_is_held_until_their_slot() {
    let (clock, limiter) = limiter(QUEUE);
    assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
    let waiters = [(); 3].map(|()| held(&limiter));
    // They have their slots: nobody waits for a place.
    assert_eq!(limiter.waiters(), 0);
    for (nth, waiter) in waiters.into_iter().enumerate() {
        clock.advance(SECOND - NANOSECOND);
        assert!(!waiter.is_called(), "number {nth}");
        clock.advance(NANOSECOND);
        let decision = waiter.end().unwrap();
        assert!(decision.allowed);
        assert_eq!(decision.delay.as_secs(), nth as u64 + 1);
    }
}

#[test]
fn what_finds_the_queue_full_waits_for_room_and_then_for_its_slot() {
    let (clock, limiter) = limiter(QUEUE);
    let start = limiter.now();
    assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
    let slots = [(); 3].map(|()| held(&limiter));
    let mut late = held(&limiter);
    assert_eq!(limiter.waiters(), 1);
    clock.advance(SECOND);
    assert!(late.answer().is_pending());
    assert_eq!(limiter.waiters(), 0, "it has a slot now");
    clock.set(start + (4 * SECOND - NANOSECOND));
    assert!(!late.is_called());
    clock.advance(NANOSECOND);
    assert!(late.end().is_ok());
    drop(slots);
}

#[test]
fn the_last_slot_is_given_back_when_its_waiter_leaves() {
    let (clock, limiter) = limiter(QUEUE);
    assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
    let first = held(&limiter);
    let second = held(&limiter);
    drop(second);
    let third = held(&limiter);
    clock.advance(2 * SECOND);
    assert!(first.end().is_ok());
    assert!(third.end().is_ok(), "it has the second slot");
}

#[test]
fn who_leaves_before_its_slot_calls_those_behind() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(QUEUE)
        .limit(Limit::concurrency(1).without_lease())
        .clock(clock)
        .build()
        .unwrap();
    drop(limiter.on("user:42").acquire().unwrap());
    // It has the permit while it is held for its slot; the other waits for the permit.
    let held = Waiter::asleep(limiter.on("user:42").acquire_within(100 * SECOND));
    let mut behind = Waiter::asleep(limiter.on("user:42").acquire_within(100 * SECOND));
    assert_eq!(limiter.waiters(), 1);
    drop(held);
    assert!(behind.answer().is_pending());
    assert_eq!(limiter.waiters(), 0, "it is held for the slot now");
}

#[test]
fn a_slot_before_others_is_lost() {
    let (clock, limiter) = limiter(QUEUE);
    assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
    let first = held(&limiter);
    let second = held(&limiter);
    drop(first);
    // The second has been told when to go, so its slot stays, and the third comes after it.
    let third = held(&limiter);
    clock.advance(2 * SECOND);
    assert!(second.end().is_ok());
    assert!(!third.is_called());
    clock.advance(SECOND);
    assert!(third.end().is_ok());
}

#[test]
fn a_slot_that_is_too_late_is_not_taken() {
    let (_, limiter) = limiter(QUEUE);
    assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
    let before = limiter.peek("user:42");
    let most = SECOND - Duration::from_millis(300);
    let decision = too_long(at_once(limiter.on("user:42").until_ready_within(most)));
    // Three tenths of a second more, and it would have been in time.
    assert!(!decision.allowed);
    assert_eq!(decision.retry, Retry::After(Duration::from_millis(300)));
    assert_eq!(limiter.peek("user:42"), before);
    let waiter = Waiter::asleep(limiter.on("user:42").until_ready_within(SECOND));
    assert_eq!(limiter.waiters(), 0);
    drop(waiter);
}

#[test]
fn a_reservation_of_a_slot_is_there_when_the_slot_is() {
    let (clock, limiter) = limiter(QUEUE);
    assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
    let waiter = Waiter::asleep(limiter.on("user:42").reserve(SECOND));
    clock.advance(SECOND);
    let reservation = waiter.end().unwrap();
    assert_eq!(reservation.decision().delay, SECOND);
    reservation.settle(1);
}

#[test]
fn a_cold_key_is_held_for_longer_than_a_warm_one() {
    let (clock, limiter) = limiter(Limit::warm_up(Rate::per_second(10), SECOND));
    let mut left_at = Vec::new();
    for _ in 0..30 {
        let mut waiter = Waiter::new(limiter.on("user:42").until_ready());
        while waiter.poll().is_pending() {
            clock.set(clock.sleepers().1.unwrap());
        }
        left_at.push(limiter.now());
    }
    let gaps: Vec<Duration> = left_at.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    // Each is held no longer than the one before, and in the end a tenth of a second.
    assert!(gaps.is_sorted_by(|before, after| before >= after), "{gaps:?}");
    assert!(gaps[0] > 2 * gaps[28], "{gaps:?}");
    assert_eq!(gaps[28], SECOND / 10);
}
