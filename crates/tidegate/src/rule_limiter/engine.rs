//! The way of a request from its descriptors to the verdict, whatever store it is decided by.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Inherit, Timestamp};
use tidegate_rules::{Found, HttpRequest, Mapped, Met};
use tidegate_store::{Answer, MemoryStore, Op, Store};

use super::planning::Wanted;
use super::way::{AtOnce, ByWaiting, UnderWay, Way, at_once, side_by_side};
use super::{Query, Shared};
use crate::armed::{Armed, RuleError};
use crate::plain::{check_only, only_limit};
use crate::plan::{Outcomes, Plan};
use crate::verdict::Verdict;

impl<S: Store, C: Send + Sync> Shared<S, C> {
    /// Asks some of the limits that a request meets. Rules that are replaced meanwhile stay in
    /// force for it.
    #[inline]
    pub(super) async fn ask<W: Way>(
        &self,
        way: &W,
        op: Op<'_>,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Result<Verdict, W::Error> {
        self.ask_armed(way, &self.armed.load(), op, query, now, wanted).await
    }

    /// [`ask`](Self::ask) for an HTTP request.
    #[expect(clippy::too_many_arguments, reason = "a request in all its parts")]
    pub(super) async fn ask_http<W: Way, R: HttpRequest + ?Sized>(
        &self,
        way: &W,
        op: Op<'_>,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        now: Timestamp,
        wanted: Wanted,
    ) -> Result<Verdict, W::Error> {
        let armed = self.armed.load();
        armed.rules.map_http(query.domain, request, mapped);
        if let Some(origin) = mapped.denied_by() {
            return Ok(Verdict::denied(origin, now, Arc::clone(&armed)));
        }
        let entries = mapped.entries();
        let descriptors = mapped.grouped(&entries);
        let query = Query { descriptors: &descriptors, ..*query };
        self.ask_armed(way, &armed, op, &query, now, wanted).await
    }

    #[inline]
    async fn ask_armed<W: Way>(
        &self,
        way: &W,
        armed: &Arc<Armed>,
        op: Op<'_>,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Result<Verdict, W::Error> {
        if self.exceptions.may_be_any(now) {
            return self.ask_excepted(way, armed, op, query, now, wanted).await;
        }
        self.ask_rules(way, armed, op, query, now, wanted).await
    }

    /// Asks as the rules say, without exceptions.
    #[inline]
    pub(super) async fn ask_rules<W: Way>(
        &self,
        way: &W,
        armed: &Arc<Armed>,
        op: Op<'_>,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Result<Verdict, W::Error> {
        let mut found = Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        if let Some(met) = only_limit(self.modes, op, query, &found) {
            return check_only(way, armed, &found, met, query, now).await;
        }
        self.ask_found(way, armed, op, query, &found, now, wanted).await
    }

    /// Asks the limits that were found, the general way.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "a request in all its parts")]
    pub(super) async fn ask_found<W: Way>(
        &self,
        way: &W,
        armed: &Arc<Armed>,
        op: Op<'_>,
        query: &Query<'_>,
        found: &Found<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Result<Verdict, W::Error> {
        let overrides = self.overridden(found);
        let plan = self.plan(armed, found, &overrides, query, now, wanted);
        let mut answers = plan.places();
        let outcomes = apply(way, &plan, op, &mut answers, now).await?;
        Ok(plan.conclude(&outcomes, &answers, found, armed, query, now))
    }

    /// Checks a request and remembers what it took.
    pub(super) async fn reserve(
        &self,
        query: &Query<'_>,
        id: u128,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        self.reserve_armed(&self.armed.load(), query, id, ttl, now).await
    }

    /// [`reserve`](Self::reserve) for an HTTP request.
    pub(super) async fn reserve_http<R: HttpRequest + ?Sized>(
        &self,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        (id, ttl): (u128, Duration),
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let armed = self.armed.load();
        armed.rules.map_http(query.domain, request, mapped);
        if let Some(origin) = mapped.denied_by() {
            return Ok(Verdict::denied(origin, now, Arc::clone(&armed)));
        }
        let entries = mapped.entries();
        let descriptors = mapped.grouped(&entries);
        let query = Query { descriptors: &descriptors, ..*query };
        self.reserve_armed(&armed, &query, id, ttl, now).await
    }

    async fn reserve_armed(
        &self,
        armed: &Arc<Armed>,
        query: &Query<'_>,
        id: u128,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        let excepting = self.exceptions.apply(query, now);
        let query = &Query { descriptors: &excepting.descriptors, ..*query };
        if !excepting.blocked.is_empty() {
            let way = ByWaiting(&self.store);
            let verdict = self.ask_rules(&way, armed, Op::Peek, query, now, Wanted::All).await?;
            return Ok(verdict.blocked(&excepting.blocked));
        }
        let mut found = Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        let overrides = self.overridden(&found);
        let plan = self.plan(armed, &found, &overrides, query, now, Wanted::All);
        if !found.knows_domain {
            // Nobody will be told its name, and so nobody would settle it.
            return Ok(plan.conclude(&Outcomes::default(), &[], &found, armed, query, now));
        }
        let mut answers = plan.places();
        let all = 0..plan.items.len();
        let call = plan.call(Op::Check, all.clone(), now);
        let outcome = self.store.reserve(&call, &mut answers, id, ttl).await?;
        let mut outcomes = Outcomes::default();
        outcomes.add(outcome, all);
        Ok(plan.conclude(&outcomes, &answers, &found, armed, query, now))
    }

    /// What a request would be told if nobody had used anything yet; exceptions do not count.
    pub(super) fn ask_fresh(
        &self,
        query: &Query<'_>,
        now: Timestamp,
    ) -> Result<Verdict, RuleError> {
        let armed = self.armed.load();
        let mut found = Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        let store = MemoryStore::builder().shards(1).build();
        let mut handles = Vec::with_capacity(found.limits.len());
        for met in &found.limits {
            let (id, limit) = (&met.rule.counter, met.rule.limit.clone());
            handles.push(store.register(id, limit, Inherit::Used)?);
        }
        let overrides = found.overrides().map(|_| None).collect();
        let handle = |position: usize, _: &Met<'_>| &*handles[position];
        let plan = self.plan_with(&armed, &found, &overrides, query, now, Wanted::All, handle);
        let mut answers = plan.places();
        let Ok(outcomes) = at_once(apply(&AtOnce(&store), &plan, Op::Check, &mut answers, now));
        Ok(plan.conclude(&outcomes, &answers, &found, &armed, query, now))
    }
}

/// Asks the store all parts of a plan.
#[inline]
pub(super) async fn apply<W: Way>(
    way: &W,
    plan: &Plan<'_>,
    op: Op<'_>,
    answers: &mut [Answer],
    now: Timestamp,
) -> Result<Outcomes, W::Error> {
    let parts = plan.parts();
    let mut outcomes = Outcomes::default();
    if parts.len() > 1 && way.waits() {
        // None of them depends on another, so that all take no longer than the slowest.
        let (mut asked, mut rest) = (Vec::with_capacity(parts.len()), answers);
        for part in &parts {
            let (mine, others) = rest.split_at_mut(part.len());
            rest = others;
            let call = plan.call(op, part.clone(), now);
            let ask = async move { way.apply(&call, mine).await };
            asked.push(Box::pin(ask) as UnderWay<'_, _>);
        }
        for (outcome, part) in side_by_side(asked).await.into_iter().zip(parts) {
            outcomes.add(outcome?, part);
        }
        return Ok(outcomes);
    }
    for part in parts {
        let call = plan.call(op, part.clone(), now);
        let outcome = way.apply(&call, &mut answers[part.clone()]).await?;
        outcomes.add(outcome, part);
    }
    Ok(outcomes)
}
