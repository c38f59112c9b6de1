//! Whoever decides on requests.

use std::future::Future;

use http::{HeaderMap, StatusCode};
use tidegate::Verdict;
use tidegate::rules::HttpRequest;

/// Whoever decides on requests, before they are forwarded.
pub trait Gate: Clone + Send + Sync + 'static {
    /// What an admitted request holds until it is over. Dropping it gives back what has to be
    /// given back at the end, such as a place among those in flight.
    type Pass: Pass;

    /// Decides on a request, and lets `tell` look at what limits said, if any were asked. If the
    /// request has to wait for its slot, so does the answer; dropping the future frees its place.
    ///
    /// A verdict is large: it is looked at where it is, and not carried along.
    fn decide<R: HttpRequest, T>(
        &self,
        request: &R,
        tell: impl FnOnce(&Verdict) -> T,
    ) -> impl Future<Output = Ruling<T, Self::Pass>>;
}

/// What an admitted request holds.
pub trait Pass: 'static {
    /// The upstream has begun to answer. Costs that are known only now are settled.
    fn answered(&mut self, status: StatusCode, headers: &HeaderMap);
}

/// What was decided.
#[derive(Debug)]
pub struct Ruling<T, P> {
    /// What was told of it; `None` if there was nobody to ask, and the request may go on.
    pub told: Option<T>,
    /// What the request holds, if it was admitted and holds anything.
    pub pass: Option<P>,
    /// Whether it was held back for a while.
    pub was_delayed: bool,
}

/// A gate without limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Gate for Open {
    type Pass = NoPass;

    async fn decide<R: HttpRequest, T>(
        &self,
        _: &R,
        _: impl FnOnce(&Verdict) -> T,
    ) -> Ruling<T, NoPass> {
        Ruling { told: None, pass: None, was_delayed: false }
    }
}

/// Nothing is held.
#[derive(Clone, Copy, Debug)]
pub enum NoPass {}

impl Pass for NoPass {
    fn answered(&mut self, _: StatusCode, _: &HeaderMap) {
        match *self {}
    }
}
