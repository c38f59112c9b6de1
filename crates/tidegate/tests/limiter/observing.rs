//! Those who are told about decisions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::{Event, Limit, LimitSpec, Limiter, ManualClock, Observer, Op, Rate};

use crate::{Clocked, SECOND, at_once, every_algorithm, limiter};

/// What an observer was told, in order.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    op: &'static str,
    cost: u64,
    allowed: bool,
    key: Vec<u8>,
    limits: Vec<String>,
    each: Vec<bool>,
}

impl Observer for Notes {
    fn decided(&self, event: &Event<'_>) {
        let op = match event.op {
            Op::Check => "check",
            Op::Peek => "peek",
            Op::UpTo => "up_to",
            Op::Force => "force",
            Op::Refund => "refund",
            Op::Reset => "reset",
            Op::GiveBack(_) => "give_back",
        };
        self.0.lock().unwrap().push(Note {
            op,
            cost: event.cost,
            allowed: event.decision.allowed,
            key: event.items[0].key.to_vec(),
            limits: event.items.iter().map(|item| item.limit.id().to_owned()).collect(),
            each: event.answers.iter().map(|answer| answer.decision.allowed).collect(),
        });
    }
}

impl Notes {
    fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn ops(&self) -> Vec<(&'static str, u64, bool)> {
        self.take().iter().map(|note| (note.op, note.cost, note.allowed)).collect()
    }
}

fn watched(limit: LimitSpec) -> (Notes, Clocked) {
    let notes = Notes::default();
    let builder = Limiter::builder().limit(limit).clock(ManualClock::new());
    (notes.clone(), builder.observer(notes).build().unwrap())
}

#[test]
fn every_decision_is_told_once() {
    let (notes, limiter) = watched(Limit::per_hour(10));
    let on = |cost| limiter.on("user:42").cost(cost);
    assert!(limiter.check("user:42").allowed);
    assert!(!on(10).check().allowed);
    assert!(on(2).check_each().overall.allowed);
    assert!(limiter.peek("user:42").allowed);
    assert_eq!(limiter.up_to("user:42", 5), 5);
    assert_eq!(limiter.up_to("user:42", 5), 2);
    assert_eq!(limiter.up_to("user:42", 5), 0);
    assert!(limiter.force("user:42").allowed);
    assert!(limiter.refund("user:42", 4).allowed);
    assert!(limiter.reset("user:42").allowed);
    assert_eq!(
        notes.ops(),
        [
            ("check", 1, true),
            ("check", 10, false),
            ("check", 2, true),
            ("peek", 1, true),
            ("up_to", 5, true),
            ("up_to", 5, true),
            ("up_to", 5, false),
            ("force", 1, true),
            ("refund", 4, true),
            ("reset", 1, true),
        ]
    );
}

#[test]
fn async_decisions_are_told_too() {
    let (notes, limiter) = watched(Limit::per_hour(10));
    let on = |cost| limiter.on("user:42").cost(cost);
    assert!(at_once(on(1).check_async()).unwrap().allowed);
    assert!(!at_once(on(10).check_each_async()).unwrap().overall.allowed);
    assert!(at_once(on(3).peek_async()).unwrap().allowed);
    assert_eq!(at_once(on(20).up_to_async()).unwrap().granted, 9);
    assert!(at_once(on(1).force_async()).unwrap().allowed);
    assert!(at_once(on(5).refund_async()).unwrap().allowed);
    assert!(at_once(on(2).until_ready()).unwrap().allowed);
    assert!(at_once(on(1).reset_async()).unwrap().allowed);
    assert_eq!(
        notes.ops(),
        [
            ("check", 1, true),
            ("check", 10, false),
            ("peek", 3, true),
            ("up_to", 20, true),
            ("force", 1, true),
            ("refund", 5, true),
            ("check", 2, true),
            ("reset", 1, true),
        ]
    );
}

#[test]
fn takings_that_may_come_back_are_checks() {
    let (notes, limiter) = watched(Limit::per_hour(10));
    limiter.on("user:42").cost(6).try_reserve().unwrap().settle(6);
    assert!(limiter.on("user:42").cost(6).try_reserve().is_err());
    assert_eq!(notes.ops(), [("check", 6, true), ("check", 6, false)]);

    let (notes, limiter) = watched(Limit::concurrency(1));
    let _held = limiter.on("user:42").acquire().unwrap();
    assert!(limiter.on("user:42").acquire().is_err());
    assert_eq!(notes.ops(), [("check", 1, true), ("check", 1, false)]);
}

#[test]
fn an_event_names_the_key_the_limits_and_what_each_said() {
    let notes = Notes::default();
    let limiter = Limiter::builder()
        .named("burst", Limit::per_second(5))
        .named("quota", Limit::fixed_window(Rate::per_day(1)))
        .clock(ManualClock::new())
        .observer(notes.clone())
        .build()
        .unwrap();
    assert!(limiter.check("user:42").allowed);
    assert!(!limiter.check("user:42").allowed);
    let admitted = Note {
        op: "check",
        cost: 1,
        allowed: true,
        key: b"user:42".to_vec(),
        limits: vec!["burst".to_owned(), "quota".to_owned()],
        each: vec![true, true],
    };
    let refused = Note { allowed: false, each: vec![true, false], ..admitted.clone() };
    assert_eq!(notes.take(), [admitted, refused]);
}

#[test]
fn being_watched_changes_no_answer() {
    for limit in every_algorithm() {
        let (notes, watched) = watched(limit);
        let (_, alone) = limiter(limit);
        for cost in [1, 2, 3, 4, 5, 1] {
            let answer = watched.on("user:42").cost(cost).check();
            assert_eq!(answer, alone.on("user:42").cost(cost).check(), "{limit}, cost {cost}");
        }
        assert_eq!(notes.take().len(), 6, "{limit}");
    }
}

#[test]
fn counts_add_up_when_many_threads_decide() {
    let (notes, limiter) = watched(Limit::per_hour(100));
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..100).filter(|_| limiter.check("user:42").allowed).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let ops = notes.ops();
    assert_eq!(admitted, 100);
    assert_eq!(ops.len(), 400);
    assert_eq!(ops.iter().filter(|(.., allowed)| *allowed).count(), 100);
}

/// Waits that somebody was told of.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<Vec<Duration>>>);

impl Observer for Waits {
    fn decided(&self, _event: &Event<'_>) {}

    fn waiting(&self, retry: Option<Duration>) {
        self.0.lock().unwrap().extend(retry);
    }
}

#[test]
fn a_wait_is_told_when_it_begins() {
    let waits = Waits::default();
    let limiter = Limiter::builder()
        .limit(Limit::per_second(1))
        .clock(ManualClock::new())
        .observer(waits.clone())
        .build()
        .unwrap();
    assert!(at_once(limiter.on("user:42").until_ready()).unwrap().allowed);
    assert_eq!(*waits.0.lock().unwrap(), [], "nothing to wait for");
    let mut waiter = std::pin::pin!(limiter.on("user:42").until_ready());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiter.as_mut().poll(&mut context).is_pending());
    assert_eq!(*waits.0.lock().unwrap(), [SECOND]);
    // Called, and refused again: that is still the same wait.
    let _ = limiter.refund("user:42", 0);
    assert!(waiter.as_mut().poll(&mut context).is_pending());
    assert_eq!(*waits.0.lock().unwrap(), [SECOND]);
}

#[test]
fn a_wait_that_does_not_begin_is_not_told() {
    let waits = Waits::default();
    let limiter = Limiter::builder()
        .limit(Limit::per_second(1))
        .clock(ManualClock::new())
        .observer(waits.clone())
        .build()
        .unwrap();
    assert!(limiter.check("user:42").allowed);
    assert!(at_once(limiter.on("user:42").until_ready_within(SECOND / 2)).is_err());
    assert_eq!(*waits.0.lock().unwrap(), []);
}
