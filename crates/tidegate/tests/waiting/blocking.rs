//! Threads that wait.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::{Limit, Limiter, Retry, WaitError};

use crate::{SECOND, limiter, too_long, used_up};

#[test]
fn a_thread_waits_by_the_machines_clock() {
    let limiter = Limiter::new(Limit::per_second(500).burst(1)).unwrap();
    let start = limiter.now();
    for _ in 0..4 {
        assert!(limiter.on("user:42").wait_blocking(60 * SECOND).unwrap().allowed);
    }
    // The first at once, then one every two milliseconds: never early.
    assert!(limiter.now().since(start) >= Duration::from_millis(6));
}

#[test]
fn threads_share_a_queue() {
    let limiter = Limiter::new(Limit::per_second(1000).burst(1)).unwrap();
    let start = limiter.now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| limiter.on("user:42").wait_blocking(60 * SECOND).is_ok()))
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    });
    assert!(limiter.now().since(start) >= Duration::from_millis(7));
    assert_eq!(limiter.waiters(), 0);
}

#[test]
fn a_thread_is_held_by_a_shaper() {
    let queue = Limit::leaky_queue(tidegate::Rate::per_second(500), 10);
    let limiter = Limiter::new(queue).unwrap();
    let start = limiter.now();
    for _ in 0..3 {
        assert!(limiter.on("user:42").wait_blocking(60 * SECOND).unwrap().allowed);
    }
    assert!(limiter.now().since(start) >= Duration::from_millis(4));
}

#[test]
fn a_thread_does_not_begin_a_wait_that_is_too_long() {
    let limiter = Limiter::new(Limit::per_hour(1)).unwrap();
    assert!(limiter.check("user:42").allowed);
    let decision = too_long(limiter.on("user:42").wait_blocking(60 * SECOND));
    assert!(matches!(decision.retry, Retry::After(wait) if wait > 60 * SECOND));
    let refused = limiter.on("user:42").cost(2).wait_blocking(60 * SECOND);
    assert!(matches!(refused, Err(WaitError::Never(_))));
}

#[test]
fn a_thread_waits_by_a_clock_that_another_moves() {
    let (clock, limiter) = used_up();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let waited = limiter.on("user:42").wait_blocking(60 * SECOND);
            (waited, limiter.now())
        });
        // Until it has fallen asleep, there is nobody to wake.
        while clock.sleepers().0 == 0 {
            std::thread::yield_now();
        }
        let moment = clock.sleepers().1.unwrap();
        assert_eq!(moment.since(limiter.now()), SECOND);
        clock.set(moment);
        let (waited, woken_at) = thread.join().unwrap();
        assert!(waited.unwrap().allowed);
        assert_eq!(woken_at, moment);
    });
}

#[test]
fn a_thread_is_called_by_a_permit_that_comes_back() {
    let (clock, limiter) = limiter(Limit::concurrency(1).without_lease());
    let held = limiter.on("user:42").acquire().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| limiter.on("user:42").wait_blocking(60 * SECOND).is_ok());
        while clock.sleepers().0 == 0 {
            std::thread::yield_now();
        }
        drop(held);
        assert!(thread.join().unwrap());
    });
}

#[test]
fn a_thread_may_keep_what_it_waited_for() {
    let limiter = Limiter::new(Limit::per_second(500).burst(1)).unwrap();
    let start = limiter.now();
    limiter.on("user:42").reserve_blocking(60 * SECOND).unwrap().settle(1);
    limiter.on("user:42").reserve_blocking(60 * SECOND).unwrap().settle(1);
    assert!(limiter.now().since(start) >= Duration::from_millis(2));

    let limiter = Limiter::new(Limit::concurrency(1)).unwrap();
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..50 {
                        // Longer than the lease of a minute, so that everybody waits.
                        let permit = limiter.on("user:42").acquire_blocking(600 * SECOND).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    }
                })
            })
            .collect();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    });
    assert_eq!(limiter.peek("user:42").remaining, 1);
}
