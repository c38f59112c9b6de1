//! Asking a store that takes its time. Each of these does what its namesake without `_async` does.
//!
//! Whoever stops waiting is simply not answered: what was asked is decided all the same.

use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_rules::{HttpRequest, Mapped};
use tidegate_store::{Op, Store};

use super::planning::Wanted;
use super::way::{ByWaiting, Way as _, soon};
use super::{Query, RuleLimiter};
use crate::armed::RuleError;
use crate::clock::Clock;
use crate::verdict::Verdict;

/// Ways to ask any store, also one that is waited for.
impl<S: Store, C: Clock> RuleLimiter<S, C> {
    /// Does whatever a store can do with the limits that a request meets.
    ///
    /// # Errors
    /// If the store could not answer, and was built to say so.
    #[inline]
    pub async fn ask_async(&self, op: Op<'_>, query: &Query<'_>) -> Result<Verdict, S::Error> {
        self.ask_at_async(op, query, self.shared.clock.now()).await
    }

    /// [`ask_async`](Self::ask_async) at another time than the clock's. A store that trusts its own
    /// clock decides by that.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub async fn ask_at_async(
        &self,
        op: Op<'_>,
        query: &Query<'_>,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let (shared, way) = (&*self.shared, ByWaiting(&self.shared.store));
        soon(way.waits(), shared.ask(&way, op, query, now, Wanted::All)).await
    }

    /// [`ask_at_async`](Self::ask_at_async) for an HTTP request, which the `http` section of the
    /// rules turns into descriptors. `query` says all but those. `mapped` is room to work in.
    ///
    /// # Errors
    /// As there.
    pub async fn ask_http_at_async<R: HttpRequest + Sync + ?Sized>(
        &self,
        op: Op<'_>,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let (shared, way) = (&*self.shared, ByWaiting(&self.shared.store));
        let asked = shared.ask_http(&way, op, query, request, mapped, now, Wanted::All);
        soon(way.waits(), asked).await
    }

    /// Gives back the permits that a holder has of the concurrency limits that a request meets,
    /// and nothing else.
    ///
    /// # Errors
    /// As [`ask_async`](Self::ask_async).
    pub async fn release_at_async(
        &self,
        query: &Query<'_>,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let (shared, way) = (&*self.shared, ByWaiting(&self.shared.store));
        soon(way.waits(), shared.ask(&way, Op::Refund, query, now, Wanted::Permits)).await
    }

    /// [`release_at_async`](Self::release_at_async) for an HTTP request.
    ///
    /// # Errors
    /// As there.
    pub async fn release_http_at_async<R: HttpRequest + Sync + ?Sized>(
        &self,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let (shared, way) = (&*self.shared, ByWaiting(&self.shared.store));
        let asked = shared.ask_http(&way, Op::Refund, query, request, mapped, now, Wanted::Permits);
        soon(way.waits(), asked).await
    }

    /// Checks a request and remembers under `id` what it took, to be
    /// [settled](Self::settle_at_async) within `ttl`; past that it stays consumed. All or nothing,
    /// also where descriptors are independent. While it is open the same id reserves once.
    ///
    /// Where descriptors have costs of their own, the reservation costs one and they are factors.
    ///
    /// # Errors
    /// If the store could not answer, or has no room for another reservation.
    pub async fn reserve_at_async(
        &self,
        query: &Query<'_>,
        id: u128,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        soon(self.shared.store.waits(), self.shared.reserve(query, id, ttl, now)).await
    }

    /// [`reserve_at_async`](Self::reserve_at_async) for an HTTP request.
    ///
    /// # Errors
    /// As there.
    pub async fn reserve_http_at_async<R: HttpRequest + Sync + ?Sized>(
        &self,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        (id, ttl): (u128, Duration),
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let reserved = self.shared.reserve_http(query, request, mapped, (id, ttl), now);
        soon(self.shared.store.waits(), reserved).await
    }

    /// Ends a reservation at its real cost: the rest is given back, what is missing is taken as a
    /// debt; zero cancels it. Whether there was one.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn settle_at_async(
        &self,
        id: u128,
        cost: u64,
        now: Timestamp,
    ) -> Result<bool, S::Error> {
        self.shared.store.settle(id, cost, now).await
    }

    /// What a request would be told if nobody had used anything yet; exceptions do not count.
    pub(crate) fn ask_fresh(
        &self,
        query: &Query<'_>,
        now: Timestamp,
    ) -> Result<Verdict, RuleError> {
        self.shared.ask_fresh(query, now)
    }
}
