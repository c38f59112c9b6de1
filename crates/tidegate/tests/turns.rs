//! Requests that are held until their turn: in order, never too early, no slot lost.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{
    Admission, Each, Going, HELD_MAX, Held, Keep, Limit, LimitSpec, Limiter, ManualClock,
    MemoryStore, Rate, Retry,
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

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Lets a request go that is due.
fn let_go(admission: Admission) -> (Held, Going) {
    let Some(turn) = admission.turn else {
        let held = admission.held.unwrap();
        let going = held.going().unwrap();
        return (held, going);
    };
    let Poll::Ready(gone) = poll(&mut Box::pin(turn.in_order())) else { panic!("not due") };
    gone
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

/// Polls a line until all are done: the first 250 and the others each on a thread of its own, from the last to the first.
fn poll_from_behind<F: Future + Send>(line: &mut [Pin<Box<F>>]) {
    let (front, back) = line.split_at_mut(250);
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
    poll_from_behind(&mut line); // 1 to 250, and the others
    // Between the two threads nobody can tell who wrote first; within each the order is the line's.
    let went = std::mem::take(&mut *went.lock().unwrap());
    assert_eq!(went.len(), 500);
    for half in [0..251, 251..500] {
        let mine: Vec<usize> = went.iter().copied().filter(|it| half.contains(it)).collect();
        assert!(mine.is_sorted(), "{mine:?}");
    }
}

#[test]
fn all_who_are_late_go_on_in_order_whatever_thread_they_are_on() {
    let (clock, limiter) = limiter(Limit::leaky_queue(Rate::per_second(1000), 1000));
    let went = Arc::new(Mutex::new(Vec::new()));
    let mut line: Vec<_> = (0..500)
        .map(|number| {
            let admission = admit(&limiter, 1);
            let went = Arc::clone(&went);
            let gone = match admission.turn {
                Some(turn) => Err(turn.in_order()),
                None => Ok(let_go(admission)),
            };
            Box::pin(async move {
                let (held, mut going) = match gone {
                    Ok(gone) => gone,
                    Err(turn) => turn.await,
                };
                going.first().await;
                went.lock().unwrap().push(number);
                held
            })
        })
        .collect();
    clock.advance(SECOND);
    poll_from_behind(&mut line);
    assert!((0..500).eq(went.lock().unwrap().iter().copied()), "{went:?}");
}

#[test]
fn those_who_are_let_go_at_once_go_on_one_after_another() {
    let (clock, limiter) = limiter(Limit::leaky_queue(Rate::per_second(1), 9));
    // The first has nobody to wait for, and is overtaken by nobody either.
    let mut line: Vec<_> = (0..6).map(|_| admit(&limiter, 1)).collect();
    assert!(line[0].turn.is_none() && line[1].turn.is_some());
    clock.advance(SECOND * 60);
    let mut line: VecDeque<_> = line.drain(..).map(let_go).collect();
    assert_eq!(limiter.held(), 0, "nobody waits for a slot");
    let wokens: [Arc<Woken>; 6] = Default::default();
    let wakers: Vec<Waker> = wokens.iter().map(|it| Waker::from(Arc::clone(it))).collect();
    let woken = || wokens.each_ref().map(|it| it.0.load(Ordering::SeqCst));
    for (at, (_, going)) in line.iter_mut().enumerate() {
        let polled = going.poll_first(&mut Context::from_waker(&wakers[at]));
        assert_eq!(polled.is_ready(), at == 0, "{at}");
    }
    assert_eq!(woken(), [0; 6]);
    // Who never goes on, as its client has left, is not waited for.
    drop(line.remove(2));
    assert_eq!(woken(), [0; 6], "the one behind it is not first");
    // Its work may take as long as it likes.
    let (held, going) = line.pop_front().unwrap();
    drop(going);
    assert_eq!(woken(), [0, 1, 0, 0, 0, 0]);
    assert!(line[0].1.is_first() && !line[1].1.is_first());
    for woken_by_now in [[0, 1, 0, 1, 0, 0], [0, 1, 0, 1, 1, 0], [0, 1, 0, 1, 1, 1]] {
        drop(line.pop_front());
        assert_eq!(woken(), woken_by_now);
        assert!(line[0].1.is_first());
    }
    drop((held, line));
}

#[test]
fn nobody_overtakes_those_who_are_late() {
    let (clock, limiter) = limiter(Limit::leaky_queue(Rate::per_second(1), 9));
    let (_held, first) = let_go(admit(&limiter, 1));
    let mut late = Box::pin(admit(&limiter, 1).turn.unwrap().in_order());
    assert!(poll(&mut late).is_pending());
    // Nobody was there to let it go, and the next one comes when slots are free again.
    clock.advance(SECOND * 60);
    let next = admit(&limiter, 1);
    assert_eq!(next.verdict.decision.unwrap().delay, Duration::ZERO);
    let mut next = Box::pin(next.turn.expect("it stands behind the one who is late").in_order());
    assert!(poll(&mut next).is_pending());
    let Poll::Ready((_held, late)) = poll(&mut late) else { panic!("it is due") };
    let Poll::Ready((_held, next)) = poll(&mut next) else { panic!("it is next") };
    assert!(first.is_first() && !late.is_first() && !next.is_first());
    drop(first);
    assert!(late.is_first() && !next.is_first());
    drop(late);
    assert!(next.is_first());
    // Who comes when all wait only to be sent needs no turn, and is sent behind them.
    clock.advance(SECOND * 60);
    let (_held, last) = let_go(admit(&limiter, 1));
    assert!(!last.is_first());
    drop(next);
    assert!(last.is_first());
}

#[test]
fn who_cannot_tell_when_it_has_gone_on_keeps_nobody_waiting() {
    let (clock, limiter) = limiter(Limit::leaky_queue(Rate::per_second(1), 9));
    let at_once = admit(&limiter, 1);
    let mut by_turn = Box::pin(admit(&limiter, 1).turn.unwrap());
    let mut when_due = Box::pin(admit(&limiter, 1).when_due());
    let ordered = admit(&limiter, 1);
    clock.advance(SECOND * 60);
    let held = [poll(&mut by_turn).is_ready(), poll(&mut when_due).is_ready()];
    assert_eq!(held, [true, true]);
    assert!(let_go(ordered).1.is_first());
    drop(at_once);
}

#[test]
fn keys_do_not_wait_for_each_other_and_requests_of_several_do() {
    let clock = ManualClock::new();
    let queue = || Limit::leaky_queue(Rate::per_second(1), 9);
    let limiter = Limiter::builder().limit(queue()).limit(queue()).clock(clock.clone());
    let limiter = limiter.build().unwrap();
    let ask = |person, thing| {
        let key = Each((person, thing));
        let mut asked = Box::pin(limiter.on(&key).admit(Keep::Needed));
        let Poll::Ready(admission) = poll(&mut asked) else { panic!("memory answers at once") };
        let_go(admission).1
    };
    let (ada, bob) = (ask("ada", "x"), ask("bob", "y"));
    assert!(ada.is_first() && bob.is_first());
    clock.advance(SECOND);
    let (both, other) = (ask("ada", "y"), ask("cid", "z"));
    assert!(!both.is_first() && other.is_first());
    clock.advance(SECOND);
    let last = ask("bob", "y");
    drop(ada);
    assert!(!both.is_first(), "one of its keys is bob's");
    drop(bob);
    assert!(both.is_first() && !last.is_first());
    drop(both);
    assert!(last.is_first());
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
