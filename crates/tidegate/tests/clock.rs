//! The machine's clock, and the one that tests move.

#![allow(clippy::unwrap_used, reason = "tests say what they expect")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate::{Clock, Limit, Limiter, ManualClock, ManualSleep, Retry, SystemClock, Timestamp};

const NANOSECOND: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
/// Three times as long as the clock goes on without looking at the system's.
const SEVERAL_ANCHORS: Duration = Duration::from_millis(350);

/// Wall time as the system tells it.
fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap())
}

/// Compares a clock with the system's; a machine that is busy may stop between two lines.
fn assert_near_wall(clock: &SystemClock) {
    let (before, now, after) = (wall(), clock.now(), wall());
    assert!(now + SECOND >= before, "{now} is long before {before}");
    assert!(now <= after + SECOND, "{now} is long after {after}");
}

#[test]
fn the_machines_clock_shows_wall_time() {
    assert_near_wall(&SystemClock::new());
    assert_near_wall(&SystemClock::default());
}

#[test]
fn it_never_goes_back_and_never_stands_still() {
    let clock = SystemClock::new();
    let (start, began) = (clock.now(), Instant::now());
    let read = || {
        let (mut last, mut reads, mut moves) = (clock.now(), 0_u32, 0_u32);
        while reads < 1_000_000 || last.since(start) < SEVERAL_ANCHORS {
            let now = clock.now();
            assert!(now >= last, "{now} after {last}");
            moves += u32::from(now > last);
            (last, reads) = (now, reads + 1);
        }
        moves
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        for thread in threads {
            assert!(thread.join().unwrap() > 1000);
        }
    });
    // It has looked at the system's clock several times by now, and is neither slow nor off.
    let (shown, passed) = (clock.now().since(start), began.elapsed());
    assert!(5 * shown >= 4 * passed, "{shown:?} shown while {passed:?} passed");
    assert_near_wall(&clock);
}

#[test]
fn its_clones_show_the_same_time() {
    let clock = SystemClock::new();
    let clone = clock.clone();
    for _ in 0..1000 {
        let (first, between, last) = (clock.now(), clone.now(), clock.now());
        assert!(first <= between && between <= last);
    }
}

#[test]
fn a_moment_that_has_come_is_not_slept_for_long() {
    let clock = SystemClock::new();
    let limiter = Limiter::new(Limit::per_second(1)).unwrap();
    // Nothing to wait for: neither the limiter nor a sleep into the past takes a second.
    assert!(limiter.on("user:42").wait_blocking(Duration::ZERO).is_ok());
    let mut past = Box::pin(clock.sleep_until(Timestamp::ZERO));
    let mut context = Context::from_waker(Waker::noop());
    let start = clock.now();
    while past.as_mut().poll(&mut context).is_pending() {
        assert!(clock.now().since(start) < 60 * SECOND);
        std::thread::yield_now();
    }
}

#[test]
fn it_can_be_printed() {
    let printed = format!("{:?}", SystemClock::new());
    assert!(printed.starts_with("SystemClock(") && printed.ends_with("s)"), "{printed}");
}

#[test]
fn a_manual_clock_stands_still_until_it_is_moved() {
    let clock = ManualClock::new();
    assert_eq!(clock.now(), Timestamp::from_secs(1_700_000_000));
    assert_eq!(clock.now(), clock.now());
    clock.advance(NANOSECOND);
    assert_eq!(clock.now().as_nanos(), 1_700_000_000_000_000_001);
    clock.set(Timestamp::from_secs(5));
    assert_eq!(clock.now(), Timestamp::from_secs(5));
    assert_eq!(ManualClock::at(Timestamp::from_secs(7)).now(), Timestamp::from_secs(7));
    assert_eq!(ManualClock::default().now(), Timestamp::ZERO);
}

#[test]
fn a_manual_clock_stops_at_the_end_of_time() {
    let clock = ManualClock::at(Timestamp::MAX);
    clock.advance(Duration::MAX);
    assert_eq!(clock.now(), Timestamp::MAX);
}

#[test]
fn clones_of_a_manual_clock_move_together() {
    let clock = ManualClock::new();
    let clone = clock.clone();
    clone.advance(SECOND);
    assert_eq!(clock.now(), clone.now());
    let limiter =
        Limiter::builder().limit(Limit::per_second(1)).clock(clock.clone()).build().unwrap();
    assert_eq!(limiter.now(), clone.now());
}

/// Counts how often it rings.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn poll(sleep: &mut ManualSleep, bell: &Arc<Bell>) -> Poll<()> {
    Pin::new(sleep).poll(&mut Context::from_waker(&Waker::from(Arc::clone(bell))))
}

#[test]
fn sleepers_wake_at_their_moment_and_not_before() {
    let clock = ManualClock::new();
    let bells: [Arc<Bell>; 3] = Default::default();
    let start = clock.now();
    let mut sleeps = [3, 1, 2].map(|secs| clock.sleep_until(start + secs * SECOND));
    for (sleep, bell) in sleeps.iter_mut().zip(&bells) {
        assert!(poll(sleep, bell).is_pending());
    }
    let rings = || bells.each_ref().map(|bell| bell.rings());
    assert_eq!(clock.sleepers(), (3, Some(start + SECOND)));
    clock.advance(SECOND - NANOSECOND);
    assert_eq!(rings(), [0, 0, 0]);
    clock.advance(NANOSECOND);
    assert_eq!(rings(), [0, 1, 0]);
    assert!(poll(&mut sleeps[1], &bells[1]).is_ready());
    assert_eq!(clock.sleepers(), (2, Some(start + 2 * SECOND)));
    // One move may wake several.
    clock.advance(10 * SECOND);
    assert_eq!(rings(), [1, 1, 1]);
    assert_eq!(clock.sleepers(), (0, None));
}

#[test]
fn a_moment_that_has_come_is_not_slept_for() {
    let clock = ManualClock::new();
    let bell = Arc::default();
    assert!(poll(&mut clock.sleep_until(clock.now()), &bell).is_ready());
    assert!(poll(&mut clock.sleep_until(Timestamp::ZERO), &bell).is_ready());
    assert_eq!((clock.sleepers(), bell.rings()), ((0, None), 0));
}

#[test]
fn a_sleep_that_is_dropped_wakes_nobody() {
    let clock = ManualClock::new();
    let bell = Arc::default();
    let mut sleep = clock.sleep_until(clock.now() + SECOND);
    assert!(poll(&mut sleep, &bell).is_pending());
    drop(sleep);
    assert_eq!(clock.sleepers(), (0, None));
    clock.advance(SECOND);
    assert_eq!(bell.rings(), 0);
}

#[test]
fn the_last_to_poll_is_the_one_to_wake() {
    let clock = ManualClock::new();
    let bells: [Arc<Bell>; 2] = Default::default();
    let mut sleep = clock.sleep_until(clock.now() + SECOND);
    assert!(poll(&mut sleep, &bells[0]).is_pending());
    assert!(poll(&mut sleep, &bells[1]).is_pending());
    assert_eq!(clock.sleepers().0, 1);
    clock.advance(SECOND);
    assert_eq!(bells.map(|bell| bell.rings()), [0, 1]);
}

#[test]
fn a_clock_that_goes_back_wakes_nobody() {
    let clock = ManualClock::new();
    let bell = Arc::default();
    let moment = clock.now() + SECOND;
    let mut sleep = clock.sleep_until(moment);
    assert!(poll(&mut sleep, &bell).is_pending());
    clock.set(Timestamp::ZERO);
    assert_eq!((bell.rings(), clock.sleepers()), (0, (1, Some(moment))));
    // Woken, but the clock went back before it looked: it sleeps on.
    clock.set(moment);
    clock.set(Timestamp::ZERO);
    assert_eq!(bell.rings(), 1);
    assert!(poll(&mut sleep, &bell).is_pending());
    clock.set(moment);
    assert_eq!(bell.rings(), 2);
    assert!(poll(&mut sleep, &bell).is_ready());
}

#[test]
fn a_clock_that_goes_back_mints_nothing() {
    let clock = ManualClock::new();
    let limiter =
        Limiter::builder().limit(Limit::per_second(2)).clock(clock.clone()).build().unwrap();
    let start = clock.now();
    assert!(limiter.on("user:42").cost(2).check().allowed);
    clock.set(Timestamp::from_nanos(start.as_nanos() - 10_000_000_000));
    // What was taken is paid for when it would have been: ten seconds and a half from here.
    assert_eq!(limiter.check("user:42").retry, Retry::After(SECOND * 21 / 2));
    clock.set(start + (SECOND / 2 - NANOSECOND));
    assert!(!limiter.check("user:42").allowed);
    clock.advance(NANOSECOND);
    assert!(limiter.check("user:42").allowed);
}
