//! A store whose answers are on their way for a while, as those of another machine are.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate::{
    Answer, Call, Holding, Inherit, Limit, LimitSpec, Limiter, LocalStore, ManualClock,
    MemoryError, MemoryStore, Outcome, RegisterError, Registered, Store, Timestamp, WaitError,
};

use crate::{SECOND, Waiter};

/// Decides at once, but answers only when it is polled again.
struct Slow(MemoryStore);

/// Pending once.
fn on_its_way() -> impl Future<Output = ()> + Send {
    let mut is_there = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut is_there, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

impl Store for Slow {
    type Error = MemoryError;

    fn register(
        &self,
        id: &str,
        limit: tidegate_core::Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        self.0.register(id, limit, inherit)
    }

    async fn apply(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, MemoryError> {
        let outcome = self.0.apply_now(call, answers);
        on_its_way().await;
        Ok(outcome)
    }

    async fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, MemoryError> {
        self.0.reserve(call, answers, id, ttl).await
    }

    async fn settle(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, MemoryError> {
        self.0.settle(id, cost, now).await
    }

    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp) {
        self.0.settle_soon(holding, cost, now);
    }
}

fn limiter(limit: LimitSpec, max_waiters: usize) -> (ManualClock, Limiter<Slow, ManualClock>) {
    let clock = ManualClock::new();
    let builder = Limiter::builder().limit(limit).max_waiters(max_waiters);
    let builder = builder.store(Slow(MemoryStore::new())).clock(clock.clone());
    (clock, builder.build_on().unwrap())
}

/// Polls for as long as answers are on their way.
fn settle_down<T>(waiter: &mut Waiter<'_, T>) -> Poll<T> {
    loop {
        match waiter.poll() {
            Poll::Pending if waiter.is_called() => {}
            answer => return answer,
        }
    }
}

/// A future that has got its answers and waits.
fn asleep<'a, T>(future: impl Future<Output = T> + Send + 'a) -> Waiter<'a, T> {
    let mut waiter = Waiter::new(future);
    assert!(settle_down(&mut waiter).is_pending(), "there is nothing to wait for");
    waiter
}

#[test]
fn the_order_is_kept_while_answers_are_on_their_way() {
    let (clock, limiter) = limiter(Limit::per_second(1), 10);
    let mut first = Waiter::new(limiter.on("user:42").until_ready());
    assert!(first.poll().is_pending());
    // The second comes while the first one's answer, which is yes, is on its way.
    let mut second = Waiter::new(limiter.on("user:42").until_ready());
    assert!(second.poll().is_pending());
    assert!(!second.is_called());
    assert!(matches!(first.answer(), Poll::Ready(Ok(_))));
    assert!(second.is_called());
    assert!(settle_down(&mut second).is_pending());
    clock.advance(SECOND);
    assert!(matches!(settle_down(&mut second), Poll::Ready(Ok(_))));
}

#[test]
fn a_permit_that_comes_back_while_a_refusal_is_on_its_way_is_not_missed() {
    let (_, limiter) = limiter(Limit::concurrency(1).without_lease(), 10);
    let mut holder = Waiter::new(limiter.on("user:42").acquire_within(SECOND));
    let Poll::Ready(Ok(held)) = settle_down(&mut holder) else { panic!("nobody is in flight") };
    let mut waiter = Waiter::new(limiter.on("user:42").acquire_within(SECOND));
    assert!(waiter.poll().is_pending());
    // The store has refused already, but the waiter does not know it yet.
    drop(held);
    assert!(matches!(settle_down(&mut waiter), Poll::Ready(Ok(_))));
}

#[test]
fn who_leaves_while_an_answer_is_on_its_way_frees_its_place() {
    let (clock, limiter) = limiter(Limit::per_second(1), 10);
    assert!(matches!(
        settle_down(&mut Waiter::new(limiter.on("user:42").until_ready())),
        Poll::Ready(Ok(_))
    ));
    let mut first = Waiter::new(limiter.on("user:42").until_ready());
    assert!(first.poll().is_pending());
    let mut second = Waiter::new(limiter.on("user:42").until_ready());
    assert!(second.poll().is_pending());
    drop(first);
    assert!(second.is_called());
    assert!(settle_down(&mut second).is_pending());
    clock.advance(SECOND);
    assert!(matches!(settle_down(&mut second), Poll::Ready(Ok(_))));
    assert_eq!(limiter.waiters(), 0);
}

#[test]
fn a_newcomer_who_may_not_have_to_wait_turns_nobody_out() {
    let (clock, limiter) = limiter(Limit::per_second(1), 1);
    for key in ["user:42", "user:43"] {
        let mut first = Waiter::new(limiter.on(key).until_ready());
        assert!(matches!(settle_down(&mut first), Poll::Ready(Ok(_))));
    }
    let mut waiter = asleep(limiter.on("user:42").until_ready());
    // The newcomer is one too many, unless its answer is yes.
    let mut newcomer = Waiter::new(limiter.on("user:43").until_ready());
    assert!(newcomer.poll().is_pending());
    // Meanwhile, somebody else takes what the first one waits for.
    clock.advance(SECOND);
    let mut other = Waiter::new(limiter.on("user:42").check_async());
    assert!(matches!(settle_down(&mut other), Poll::Ready(Ok(taken)) if taken.allowed));
    assert!(settle_down(&mut waiter).is_pending(), "it was here first");
    let refused = settle_down(&mut newcomer);
    assert!(matches!(refused, Poll::Ready(Err(WaitError::TooManyWaiters { max: 1 }))));
    clock.advance(SECOND);
    assert!(matches!(settle_down(&mut waiter), Poll::Ready(Ok(_))));
}
