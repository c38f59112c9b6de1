//! First come, first served, for each key.

use std::time::Duration;

use tidegate::{Limit, Limiter, ManualClock, Rate};

use crate::{NANOSECOND, SECOND, Waiter, at_once, limiter, used_up};

#[test]
fn whoever_need_not_wait_is_admitted_at_the_first_poll() {
    let (clock, limiter) = limiter(Limit::per_second(2));
    let first = at_once(limiter.on("user:42").until_ready()).unwrap();
    assert_eq!((first.allowed, first.remaining), (true, 1));
    let second = at_once(limiter.on("user:42").until_ready()).unwrap();
    assert_eq!((second.allowed, second.remaining), (true, 0));
    assert_eq!(limiter.waiters(), 0);
    assert_eq!(clock.sleepers(), (0, None));
}

#[test]
fn ten_are_admitted_in_order_at_the_exact_nanosecond() {
    // One every third of a second; a bucket of one keeps no fraction, so each gap is rounded up.
    let (clock, limiter) = limiter(Limit::per_second(3).burst(1));
    let (start, gap) = (limiter.now(), Duration::from_nanos(333_333_334));
    assert!(limiter.check("user:42").allowed);
    let mut waiters: Vec<_> =
        (0..10).map(|_| Waiter::asleep(limiter.on("user:42").until_ready())).collect();
    assert_eq!(limiter.waiters(), 10);
    for nth in 1..=10 {
        let ready = start + nth * gap;
        assert_eq!(clock.sleepers().1, Some(ready), "number {nth}");
        clock.set(start + (nth * gap - NANOSECOND));
        assert!(waiters.iter().all(|waiter| !waiter.is_called()), "number {nth}");
        // Whoever looks anyway finds nothing.
        assert!(waiters.iter_mut().all(|waiter| waiter.poll().is_pending()), "number {nth}");
        clock.set(ready);
        let head = waiters.remove(0);
        assert!(waiters.iter().all(|waiter| !waiter.is_called()), "number {nth}");
        assert!(head.end().unwrap().allowed, "number {nth}");
        // The next one is called to the head, and only that one.
        assert_eq!(limiter.waiters(), waiters.len());
        let called: Vec<bool> = waiters.iter().map(Waiter::is_called).collect();
        let expected: Vec<bool> = (0..waiters.len()).map(|place| place == 0).collect();
        assert_eq!(called, expected);
        if let Some(next) = waiters.first_mut() {
            assert!(next.answer().is_pending(), "number {nth} took what there was");
        }
    }
    assert_eq!(limiter.waiters(), 0);
    assert_eq!(clock.sleepers(), (0, None));
}

#[test]
fn the_order_is_that_of_the_first_poll() {
    let (clock, limiter) = used_up();
    let mut made_first = Waiter::new(limiter.on("user:42").until_ready());
    let polled_first = Waiter::asleep(limiter.on("user:42").until_ready());
    assert!(made_first.poll().is_pending());
    clock.advance(SECOND);
    assert!(!made_first.is_called());
    assert!(polled_first.end().is_ok());
}

#[test]
fn a_small_request_does_not_overtake_a_large_one() {
    let (clock, limiter) = limiter(Limit::per_second(10));
    assert!(limiter.on("user:42").cost(10).check().allowed);
    let large = Waiter::asleep(limiter.on("user:42").cost(8).until_ready());
    let mut small = Waiter::asleep(limiter.on("user:42").until_ready());
    clock.advance(SECOND * 8 / 10 - NANOSECOND);
    assert!(!large.is_called() && !small.is_called());
    // Somebody polls without being asked to: that changes nothing.
    assert!(small.poll().is_pending());
    clock.advance(NANOSECOND);
    assert!(large.end().unwrap().allowed);
    assert!(small.answer().is_pending());
    clock.advance(SECOND / 10);
    assert!(small.end().unwrap().allowed);
}

#[test]
fn a_waiter_that_leaves_from_the_middle_frees_its_place() {
    let (clock, limiter) = used_up();
    let first = Waiter::asleep(limiter.on("user:42").until_ready());
    let second = Waiter::asleep(limiter.on("user:42").until_ready());
    let mut third = Waiter::asleep(limiter.on("user:42").until_ready());
    drop(second);
    assert_eq!(limiter.waiters(), 2);
    assert!(!first.is_called() && !third.is_called());
    clock.advance(SECOND);
    assert!(first.end().is_ok());
    assert!(third.answer().is_pending());
    clock.advance(SECOND);
    assert!(third.end().is_ok());
}

#[test]
fn a_head_that_leaves_calls_the_next() {
    let (clock, limiter) = used_up();
    let first = Waiter::asleep(limiter.on("user:42").until_ready());
    let mut second = Waiter::asleep(limiter.on("user:42").until_ready());
    clock.advance(SECOND / 2);
    drop(first);
    assert!(second.answer().is_pending());
    // It takes what the first would have taken, when the first would have.
    clock.advance(SECOND / 2 - NANOSECOND);
    assert!(!second.is_called());
    clock.advance(NANOSECOND);
    assert!(second.end().is_ok());
}

#[test]
fn a_head_that_was_woken_and_leaves_passes_it_on() {
    let (clock, limiter) = used_up();
    let first = Waiter::asleep(limiter.on("user:42").until_ready());
    let second = Waiter::asleep(limiter.on("user:42").until_ready());
    clock.advance(SECOND);
    assert!(first.is_called() && !second.is_called());
    drop(first);
    assert!(second.end().unwrap().allowed);
}

#[test]
fn all_who_leave_have_taken_nothing_and_left_nothing() {
    let (clock, limiter) = used_up();
    let waiters: Vec<_> =
        (0..5).map(|_| Waiter::asleep(limiter.on("user:42").until_ready())).collect();
    clock.advance(SECOND);
    drop(waiters);
    assert_eq!(limiter.waiters(), 0);
    assert_eq!(clock.sleepers(), (0, None));
    assert_eq!(limiter.peek("user:42").remaining, 1);
}

#[test]
fn keys_do_not_wait_for_each_other() {
    let (clock, limiter) = limiter(Limit::per_second(1));
    assert!(limiter.check("slow").allowed);
    let slow = Waiter::asleep(limiter.on("slow").until_ready());
    clock.advance(SECOND / 2);
    assert!(at_once(limiter.on("quick").until_ready()).is_ok());
    let quick = Waiter::asleep(limiter.on("quick").until_ready());
    clock.advance(SECOND / 2);
    assert!(!quick.is_called());
    assert!(slow.end().is_ok());
    assert!(!quick.is_called(), "another key's queue is no business of this one");
    clock.advance(SECOND / 2);
    assert!(quick.end().is_ok());
}

#[test]
fn a_check_does_not_queue() {
    let (clock, limiter) = used_up();
    let mut waiter = Waiter::asleep(limiter.on("user:42").until_ready());
    clock.advance(SECOND);
    assert!(limiter.check("user:42").allowed);
    assert!(waiter.answer().is_pending());
    clock.advance(SECOND);
    assert!(waiter.end().is_ok());
}

#[test]
fn several_limits_are_waited_for_together() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(Limit::per_second(1))
        .limit(Limit::fixed_window(Rate::new(2, 10 * SECOND)))
        .clock(clock.clone())
        .build()
        .unwrap();
    let start = limiter.now();
    assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
    let mut second = Waiter::asleep(limiter.on("user:42").until_ready());
    clock.set(clock.sleepers().1.unwrap());
    assert!(second.answer().is_ready());
    assert_eq!(limiter.now().since(start), SECOND);
    let third = Waiter::asleep(limiter.on("user:42").until_ready());
    clock.set(clock.sleepers().1.unwrap());
    // The time at which the clock starts is a whole number of ten seconds.
    assert_eq!(limiter.now().since(start), 10 * SECOND);
    assert!(third.end().is_ok());
}

#[test]
fn jitter_stays_within_its_bounds() {
    let most = Duration::from_millis(100);
    let mut moments = Vec::new();
    for _ in 0..64 {
        let clock = ManualClock::new();
        let builder = Limiter::builder().limit(Limit::per_second(1)).jitter(most);
        let limiter = builder.clock(clock.clone()).build().unwrap();
        assert!(at_once(limiter.on("user:42").until_ready()).is_ok());
        let ready = limiter.now() + SECOND;
        let waiter = Waiter::asleep(limiter.on("user:42").until_ready());
        let moment = clock.sleepers().1.unwrap();
        assert!(ready <= moment && moment < ready + most, "{moment} is not near {ready}");
        clock.set(moment);
        assert!(waiter.end().unwrap().allowed);
        moments.push(moment);
    }
    moments.sort_unstable();
    moments.dedup();
    // The chance of even one repetition among nanoseconds is one in fifty thousand.
    assert!(moments.len() > 32, "{} different moments", moments.len());
}

#[test]
fn jitter_does_not_miss_a_deadline() {
    for _ in 0..64 {
        let clock = ManualClock::new();
        let builder = Limiter::builder().limit(Limit::per_second(1)).jitter(SECOND);
        let limiter = builder.clock(clock.clone()).build().unwrap();
        assert!(limiter.check("user:42").allowed);
        let most = SECOND + Duration::from_millis(10);
        let deadline = limiter.now() + most;
        let waiter = Waiter::asleep(limiter.on("user:42").until_ready_within(most));
        let moment = clock.sleepers().1.unwrap();
        assert!(moment <= deadline);
        clock.set(moment);
        assert!(waiter.end().unwrap().allowed);
    }
}
