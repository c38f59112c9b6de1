//! How a store is reached: by waiting for it, or at once.
//!
//! The engine is written once, for stores that are waited for. One that is at hand goes through the
//! same code, none of which waits then.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tidegate_core::{Decision, Timestamp};
use tidegate_store::{Answer, Call, Item, LocalStore, Outcome, Store};

/// A way to a store.
pub(crate) trait Way: Send + Sync {
    /// Why there is no answer.
    type Error: Send;

    /// Whether somebody may have to be waited for.
    fn waits(&self) -> bool;

    fn apply(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;

    fn check_one(
        &self,
        item: &Item<'_>,
        cost: u64,
        now: Timestamp,
    ) -> impl Future<Output = Result<Decision, Self::Error>> + Send;
}

/// Waits for any store.
pub(super) struct ByWaiting<'a, S>(pub(super) &'a S);

impl<S: Store> Way for ByWaiting<'_, S> {
    type Error = S::Error;

    #[inline]
    fn waits(&self) -> bool {
        self.0.waits()
    }

    #[inline]
    fn apply(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
    ) -> impl Future<Output = Result<Outcome, S::Error>> + Send {
        self.0.apply(call, answers)
    }

    #[inline]
    fn check_one(
        &self,
        item: &Item<'_>,
        cost: u64,
        now: Timestamp,
    ) -> impl Future<Output = Result<Decision, S::Error>> + Send {
        self.0.check_one(item, cost, now)
    }
}

/// Asks a store in this process, which always has an answer.
pub(super) struct AtOnce<'a, S>(pub(super) &'a S);

impl<S: LocalStore> Way for AtOnce<'_, S> {
    type Error = Infallible;

    #[inline]
    fn waits(&self) -> bool {
        false
    }

    #[inline]
    async fn apply(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, Infallible> {
        Ok(self.0.apply_now(call, answers))
    }

    #[inline]
    async fn check_one(
        &self,
        item: &Item<'_>,
        cost: u64,
        now: Timestamp,
    ) -> Result<Decision, Infallible> {
        Ok(self.0.check_one_now(item, cost, now))
    }
}

/// What a future comes to that waits for nobody: all that it awaits goes to a [`LocalStore`], or to a store
/// that says so of itself ([`Store::waits`]).
///
/// # Panics
/// If it waits all the same, which such a store does not.
#[inline]
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("a store in this process answers when it is asked"),
    }
}

/// An answer that is there, or one that is waited for.
pub(super) enum Soon<'a, T> {
    Now(Option<T>),
    Later(UnderWay<'a, T>),
}

/// Asks at once where the store waits for nobody, and otherwise in a box.
///
/// A future has the size of all that it may ever keep while it waits, some kilobytes here, and is
/// moved into whoever awaits it. So it is asked where it is made if it can be; where somebody is
/// waited for, a box costs nothing to speak of.
#[inline]
pub(super) fn soon<'a, T>(
    waits: bool,
    question: impl Future<Output = T> + Send + 'a,
) -> Soon<'a, T> {
    match waits {
        true => Soon::Later(Box::pin(question)),
        false => Soon::Now(Some(at_once(question))),
    }
}

/// What is waited for is in a box.
impl<T> Unpin for Soon<'_, T> {}

impl<T> Future for Soon<'_, T> {
    type Output = T;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Self::Now(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Later(question) => question.as_mut().poll(context),
        }
    }
}

/// A question that is under way.
pub(super) type UnderWay<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Waits for all of several side by side; what each came to, in their order.
pub(super) async fn side_by_side<T>(mut all: Vec<UnderWay<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = all.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut is_done = true;
        for (future, place) in all.iter_mut().zip(&mut done) {
            if place.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(came_to) => *place = Some(came_to),
                    Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
