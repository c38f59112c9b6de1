//! Reservations: what is taken now and settled once the real cost is known.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_rules::{Found, HttpRequest, Mapped};
use tidegate_store::{LocalStore, Op};

use super::{Query, RuleLimiter, Wanted};
use crate::armed::Armed;
use crate::clock::Clock;
use crate::plan::Outcomes;
use crate::verdict::Verdict;

impl<S: LocalStore, C: Clock> RuleLimiter<S, C> {
    /// Checks a request and remembers under `id` what it took, to be [settled](Self::settle_at)
    /// within `ttl`; past that it stays consumed. All or nothing, also where descriptors are
    /// independent. While it is open the same id reserves once.
    ///
    /// Where descriptors have costs of their own, the reservation costs one and they are factors.
    ///
    /// # Errors
    /// If the store could not answer, or has no room for another reservation.
    pub fn reserve_at(
        &self,
        query: &Query<'_>,
        id: u128,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        self.reserve_armed(&self.shared.armed.load_full(), query, id, ttl, now)
    }

    /// [`reserve_at`](Self::reserve_at) for an HTTP request.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_http_at<R: HttpRequest + ?Sized>(
        &self,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        (id, ttl): (u128, Duration),
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let armed = self.shared.armed.load_full();
        armed.rules.map_http(query.domain, request, mapped);
        if let Some(origin) = mapped.denied_by() {
            return Ok(Verdict::denied(origin, now, armed));
        }
        mapped.with(|descriptors| {
            self.reserve_armed(&armed, &Query { descriptors, ..*query }, id, ttl, now)
        })
    }

    fn reserve_armed(
        &self,
        armed: &Arc<Armed>,
        query: &Query<'_>,
        id: u128,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let shared = &*self.shared;
        let excepting = shared.exceptions.apply(query, now);
        let query = &Query { descriptors: &excepting.descriptors, ..*query };
        if !excepting.blocked.is_empty() {
            let verdict = self.ask_rules(armed, Op::Peek, query, now, Wanted::All);
            return Ok(verdict.blocked(&excepting.blocked));
        }
        let mut found = Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        let overrides = shared.overridden(&found);
        let plan = shared.plan(armed, &found, &overrides, query, now, Wanted::All);
        if !found.knows_domain {
            // Nobody will be told its name, and so nobody would settle it.
            return Ok(plan.conclude(&Outcomes::default(), &[], &found, armed, query, now));
        }
        let mut answers = plan.places();
        let call = plan.call(Op::Check, 0..plan.items.len(), now);
        let outcome = shared.store.reserve_now(&call, &mut answers, id, ttl)?;
        let mut outcomes = Outcomes::default();
        outcomes.add(outcome, 0..plan.items.len());
        Ok(plan.conclude(&outcomes, &answers, &found, armed, query, now))
    }

    /// Ends a reservation at its real cost: the rest is given back, what is missing is taken as a
    /// debt; zero cancels it. Whether there was one.
    ///
    /// # Errors
    /// If the store could not answer.
    pub fn settle_at(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, S::Error> {
        self.shared.store.settle_now(id, cost, now)
    }
}
