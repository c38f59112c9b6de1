//! Answers that are there at once where the store waits for nobody.
//!
//! A future has the size of all that it may ever keep while it waits, and every connection has room
//! for one. With the memory store nothing waits, so questions are asked where they are made, and are
//! put away in a box only if there is something to wait for: connections then stay small, and nothing
//! large is moved about for each request.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// An answer that is there, or one that is waited for.
pub(crate) enum Soon<'a, T> {
    Now(Option<T>),
    Later(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

/// Asks; `waits` is whether the store may have to be waited for.
#[inline]
pub(crate) fn soon<'a, T>(
    waits: bool,
    question: impl Future<Output = T> + Send + 'a,
) -> Soon<'a, T> {
    if waits {
        return Soon::Later(Box::pin(question));
    }
    Soon::Now(Some(at_once(question)))
}

/// What a question comes to that waits for nobody.
///
/// # Panics
/// If it waits all the same: all that such questions await is a store in this process.
#[inline]
pub(crate) fn at_once<T>(question: impl Future<Output = T>) -> T {
    match pin!(question).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("a store in this process answers when it is asked"),
    }
}

/// What is waited for is in a box, and an answer stays nowhere.
impl<T> Unpin for Soon<'_, T> {}

impl<T> Future for Soon<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match self.get_mut() {
            Self::Now(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            Self::Later(question) => question.as_mut().poll(context),
        }
    }
}
