//! Requests that are held until their turn: in order, never too early, no slot lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{
    Admission, HELD_MAX, Keep, Limit, LimitSpec, Limiter, ManualClock, MemoryStore, Rate, Retry,
};

const SECOND: Duration = Duration::from_secs(1);

type Clocked = Limiter<MemoryStore, ManualClock>;

fn limiter(limit: LimitSpec) -> (ManualClock, Clocked) {
    let clock = ManualClock::new();
    (clock.clone(), Limiter::builder().limit(limit).clock(clock).build().unwrap())
}

fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn admit(limiter: &Clocked, cost: u64) -> Admission {
    let mut asked = Box::pin(limiter.on("key").cost(cost).admit(Keep::Needed));
    let Poll::Ready(admission) = poll(&mut asked) else { panic!("memory answers at once") };
    admission
}

#[derive(Clone, Debug)]
enum Event {
    Comes,
    /// One of those who wait goes away, counted from the front and round.
    Leaves(usize),
    Passes(Duration),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Comes),
        1 => (0usize..20).prop_map(Event::Leaves),
        2 => (1u64..2500).prop_map(|ms| Event::Passes(Duration::from_millis(ms))),
    ]
}

proptest! {
    /// Against a plain queue: the first goes a second after the one before it, whoever left meanwhile.
    #[test]
    fn a_line_is_a_queue(events in proptest::collection::vec(event(), 1..60)) {
        let (clock, limiter) = limiter(Limit::leaky_queue(Rate::per_second(1), 8));
        let mut line: VecDeque<Pin<Box<dyn Future<Output = tidegate::Held>>>> = VecDeque::new();
        // When the next may go, in milliseconds; and now.
        let (mut free_at, mut now) = (0u64, 0u64);
        for event in events {
            match event {
                Event::Comes => {
                    let admission = admit(&limiter, 1);
                    let is_free = line.is_empty() && free_at <= now;
                    prop_assert_eq!(admission.verdict.allowed, is_free || line.len() < 8);
                    prop_assert_eq!(admission.turn.is_some(), admission.verdict.allowed && !is_free);
                    if is_free {
                        free_at = now + 1000;
                    }
                    line.extend(admission.turn.map(|turn| Box::pin(turn) as _));
                }
                Event::Leaves(index) if !line.is_empty() => {
                    line.remove(index % line.len());
                }
                Event::Leaves(_) => {}
                Event::Passes(time) => {
                    let then = now + u64::try_from(time.as_millis()).unwrap();
                    while let Some(next) = (!line.is_empty() && free_at <= then).then_some(free_at.max(now)) {
                        if next > now {
                            clock.advance(Duration::from_millis(next - now) - Duration::from_nanos(1));
                            prop_assert!(line.iter_mut().all(|it| poll(it).is_pending()), "too early");
                            clock.advance(Duration::from_nanos(1));
                            now = next;
                        }
                        prop_assert!(poll(&mut line[0]).is_ready(), "the first is due");
                        line.pop_front();
                        prop_assert!(line.iter_mut().all(|it| poll(it).is_pending()), "only the first");
                        free_at = now + 1000;
                    }
                    clock.advance(Duration::from_millis(then - now));
                    now = then;
                }
            }
            prop_assert_eq!(limiter.held(), line.len());
        }
    }
}

#[test]
fn nobody_is_moved_into_a_slot_of_another_width() {
    let (clock, limiter) = limiter(Limit::leaky_queue(Rate::per_second(1), 20));
    assert!(admit(&limiter, 1).turn.is_none());
    // Due after 1, 2, 5 and 6 seconds.
    let mut line: Vec<_> =
        [1, 3, 1, 1].map(|cost| Box::pin(admit(&limiter, cost).turn.unwrap())).into();
    // The first goes: the second would leave room for the third too early, and so stays.
    drop(line.remove(0));
    let mut gone = Vec::new();
    for second in 1..=6 {
        clock.advance(SECOND);
        let before = line.len();
        line.retain_mut(|it| poll(it).is_pending());
        gone.extend(std::iter::repeat_n(second, before - line.len()));
    }
    assert_eq!(gone, [2, 5, 6]);
}

#[test]
fn a_line_does_not_overtake_when_threads_are_late() {
    let (clock, limiter) = limiter(Limit::leaky_queue(Rate::per_second(1000), 1000));
    let went = Arc::new(Mutex::new(Vec::new()));
    let mut line: Vec<_> = (0..500)
        .map(|number| {
            let admission = admit(&limiter, 1);
            let went = Arc::clone(&went);
            Box::pin(async move {
                let held = admission.when_due().await.1;
                went.lock().unwrap().push(number);
                held
            })
        })
        .collect();
    line.retain_mut(|it| poll(it).is_pending());
    assert_eq!(line.len(), 499, "the first has nobody to wait for");
    // All are due at once, and are polled from the last to the first, by two threads.
    clock.advance(SECOND);
    let (front, back) = line.split_at_mut(250); // 1 to 250, and the others
    std::thread::scope(|scope| {
        for half in [front, back] {
            scope.spawn(|| {
                let mut left: Vec<_> = half.iter_mut().rev().collect();
                while !left.is_empty() {
                    left.retain_mut(|it| poll(it).is_pending());
                }
            });
        }
    });
    // Between the two threads nobody can tell who wrote first; within each the order is the line's.
    let went = std::mem::take(&mut *went.lock().unwrap());
    assert_eq!(went.len(), 500);
    for half in [0..251, 251..500] {
        let mine: Vec<usize> = went.iter().copied().filter(|it| half.contains(it)).collect();
        assert!(mine.is_sorted(), "{mine:?}");
    }
}

#[test]
fn what_a_warm_up_says_is_waited_for() {
    let (clock, limiter) = limiter(Limit::warm_up(Rate::per_second(10), Duration::from_secs(4)));
    let first = admit(&limiter, 1);
    assert!(first.verdict.allowed && first.turn.is_none());
    let second = admit(&limiter, 1);
    let delay = second.verdict.decision.unwrap().delay;
    assert!(delay > Duration::from_millis(100), "{delay:?}: a cold key is slower than its rate");
    let mut turn = Box::pin(second.turn.unwrap());
    clock.advance(delay - Duration::from_nanos(1));
    assert!(poll(&mut turn).is_pending());
    clock.advance(Duration::from_nanos(1));
    assert!(poll(&mut turn).is_ready());
}

#[test]
fn one_more_than_there_is_room_for_is_refused_and_takes_nothing() {
    let (clock, limiter) = limiter(Limit::leaky_queue(Rate::per_second(1000), 200_000));
    let mut line: Vec<_> = (0..=HELD_MAX).filter_map(|_| admit(&limiter, 1).turn).collect();
    assert_eq!((line.len(), limiter.held()), (HELD_MAX, HELD_MAX));
    let before = limiter.peek("key").remaining;
    let refused = admit(&limiter, 1);
    assert!(!refused.verdict.allowed && refused.turn.is_none());
    let wait = Duration::from_millis(HELD_MAX as u64 + 1);
    assert_eq!(refused.verdict.decision.unwrap().retry, Retry::After(wait));
    assert_eq!(limiter.peek("key").remaining, before);
    // Who leaves makes room.
    drop(line.pop());
    assert!(admit(&limiter, 1).turn.is_some());
    clock.advance(Duration::from_secs(200));
    drop(line);
    assert_eq!(limiter.held(), 0);
}
