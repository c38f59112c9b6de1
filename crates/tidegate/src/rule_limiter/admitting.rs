//! Requests that somebody sees through to their end.

use std::sync::Arc;

use tidegate_core::{Decision, Source, Timestamp};
use tidegate_rules::{Found, HttpRequest, Mapped, Met, Settling};
use tidegate_store::{Answer, Holding, Mode, OnError, Op, Outcome, Store};

use super::engine::apply;
use super::overrides::Handles;
use super::planning::Wanted;
use super::way::{ByWaiting, at_once};
use super::{Query, RuleLimiter, Shared};
use crate::admission::{Admission, Keep};
use crate::armed::Armed;
use crate::clock::Clock;
use crate::held::{GiveBack, Held, Part, kept};
use crate::plain::{check_only, check_only_at_once, only_limit};
use crate::plan::{Outcomes, Plan};
use crate::turn::{Room, shapes};
use crate::verdict::{By, Verdict};

impl<S: Store + 'static, C: Clock> RuleLimiter<S, C> {
    /// Checks a request that somebody sees through to its end: what it takes may come back, and where
    /// a limit shapes it has to wait for its turn.
    ///
    /// If the store could not answer, and was built to say so, each limit answers as its
    /// `on_store_error` says, `local` being yes.
    pub async fn admit(&self, query: &Query<'_>, keep: Keep) -> Admission {
        let now = self.shared.clock.now();
        admit(&self.shared, &self.shared.armed.load(), query, now, Keeping::of(keep)).await
    }

    /// [`admit`](Self::admit) for an HTTP request, which the `http` section of the rules turns into
    /// descriptors. `query` says all but those. `mapped` is room to work in. `seen` is shown what was
    /// asked in the end, and what was decided.
    pub async fn admit_http<R: HttpRequest + ?Sized>(
        &self,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        keep: Keep,
        seen: impl FnOnce(&Query<'_>, &Verdict),
    ) -> Admission {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        let armed = shared.armed.load();
        armed.rules.map_http(query.domain, request, mapped);
        if let Some(verdict) = unmet(&armed, query, mapped, now) {
            seen(query, &verdict);
            return Admission::new(verdict);
        }
        let entries = mapped.entries();
        let descriptors = mapped.grouped(&entries);
        let query = Query { descriptors: &descriptors, ..*query };
        let keeping = Keeping { keep, mapped: Some(mapped) };
        let admission = admit(shared, &armed, &query, now, keeping).await;
        seen(&query, &admission.verdict);
        admission
    }

    /// [`admit_http`](Self::admit_http) if nobody has to be waited for; `None` if somebody has. An
    /// admission is large, and is looked at where it is.
    pub fn admit_http_at_once<R: HttpRequest + ?Sized, T>(
        &self,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        keep: Keep,
        judge: impl FnOnce(&Query<'_>, &mut Admission) -> T,
    ) -> Option<T> {
        let (shared, now) = (&self.shared, self.shared.clock.now());
        if shared.store.waits() {
            return None;
        }
        let armed = shared.armed.load();
        armed.rules.map_http(query.domain, request, mapped);
        if let Some(verdict) = unmet(&armed, query, mapped, now) {
            return Some(judge(query, &mut Admission::new(verdict)));
        }
        let entries = mapped.entries();
        let descriptors = mapped.grouped(&entries);
        let query = Query { descriptors: &descriptors, ..*query };
        let keeping = Keeping { keep, mapped: Some(mapped) };
        if shared.exceptions.may_be_any(now) {
            return Some(judge(&query, &mut at_once(admit(shared, &armed, &query, now, keeping))));
        }
        let mut found = Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        let Some(met) = plain_limit(shared, &query, &found, keeping) else {
            let general = admit_found(shared, &armed, &found, &query, now, keeping);
            return Some(judge(&query, &mut at_once(general)));
        };
        let way = ByWaiting(&shared.store);
        let mut admission = match check_only_at_once(&way, &armed, &found, met, &query, now) {
            Ok(verdict) => Admission::new(verdict),
            Err(_) => Admission::new(shared.unanswered(&armed, &query, now)),
        };
        Some(judge(&query, &mut admission))
    }

    /// How many requests wait for their turn now.
    pub fn held(&self) -> usize {
        self.shared.room.len()
    }
}

/// What of a request's takings may come back, and what the rules say of that.
#[derive(Clone, Copy)]
struct Keeping<'a> {
    keep: Keep,
    mapped: Option<&'a Mapped>,
}

impl<'a> Keeping<'a> {
    fn of(keep: Keep) -> Self {
        Self { keep, mapped: None }
    }

    /// What the answer changes of what a descriptor is counted with.
    fn settling(&self, descriptor: u32) -> Option<&'a Arc<Settling>> {
        self.mapped?.descriptors().nth(descriptor as usize)?.settling()
    }

    /// Whether nothing comes back but what has to.
    fn is_only_needed(&self) -> bool {
        let settles = |mapped: &Mapped| mapped.descriptors().any(|it| it.settling().is_some());
        self.keep == Keep::Needed && !self.mapped.is_some_and(settles)
    }
}

impl<S: Store, C: Clock> GiveBack for Shared<S, C> {
    fn give_back(&self, holding: Holding, cost: u64) {
        self.store.settle_soon(holding, cost, self.clock.now());
    }

    fn room(&self) -> &Arc<Room> {
        &self.room
    }
}

/// The verdict on a request that has no descriptor: it lacks a value that the rules insist on, or nothing
/// is said of it.
fn unmet(
    armed: &Arc<Armed>,
    query: &Query<'_>,
    mapped: &Mapped,
    now: Timestamp,
) -> Option<Verdict> {
    if let Some(origin) = mapped.denied_by() {
        return Some(Verdict::denied(origin, now, Arc::clone(armed)));
    }
    let is_nothing = mapped.descriptors().len() == 0;
    is_nothing.then(|| Verdict {
        granted: query.cost,
        knows_domain: armed.rules.knows(query.domain),
        ..Verdict::of_limits(None, now, Arc::clone(armed))
    })
}

/// The limit that a request meets, if it is a plain one and nothing else comes into it, nor comes back.
#[inline]
fn plain_limit<'f, 'r, S, C>(
    shared: &Shared<S, C>,
    query: &Query<'_>,
    found: &'f Found<'r>,
    keeping: Keeping<'_>,
) -> Option<&'f Met<'r>> {
    let met = only_limit(shared.modes, Op::Check, query, found)?;
    (keeping.is_only_needed() && !shapes(&met.rule.limit)).then_some(met)
}

async fn admit<S: Store + 'static, C: Clock>(
    shared: &Arc<Shared<S, C>>,
    armed: &Arc<Armed>,
    query: &Query<'_>,
    now: Timestamp,
    keeping: Keeping<'_>,
) -> Admission {
    if !shared.exceptions.may_be_any(now) {
        return admit_by_rules(shared, armed, query, now, keeping).await;
    }
    let excepting = shared.exceptions.apply(query, now);
    let query = Query { descriptors: &excepting.descriptors, ..*query };
    if excepting.blocked.is_empty() {
        return admit_by_rules(shared, armed, &query, now, keeping).await;
    }
    let way = ByWaiting(&shared.store);
    let verdict = match shared.ask_rules(&way, armed, Op::Peek, &query, now, Wanted::All).await {
        Ok(verdict) => verdict,
        Err(_) => shared.unanswered(armed, &query, now),
    };
    Admission::new(verdict.blocked(&excepting.blocked))
}

async fn admit_by_rules<S: Store + 'static, C: Clock>(
    shared: &Arc<Shared<S, C>>,
    armed: &Arc<Armed>,
    query: &Query<'_>,
    now: Timestamp,
    keeping: Keeping<'_>,
) -> Admission {
    let mut found = Found::new();
    armed.rules.find(query.domain, query.descriptors, &mut found);
    admit_found(shared, armed, &found, query, now, keeping).await
}

/// Asks the limits that were found.
async fn admit_found<S: Store + 'static, C: Clock>(
    shared: &Arc<Shared<S, C>>,
    armed: &Arc<Armed>,
    found: &Found<'_>,
    query: &Query<'_>,
    now: Timestamp,
    keeping: Keeping<'_>,
) -> Admission {
    let way = ByWaiting(&shared.store);
    if let Some(met) = plain_limit(shared, query, found, keeping) {
        let verdict = check_only(&way, armed, found, met, query, now).await;
        return Admission::new(verdict.unwrap_or_else(|_| shared.unanswered(armed, query, now)));
    }
    let overrides = shared.overridden(found);
    let plan = shared.plan(armed, found, &overrides, query, now, Wanted::All);
    let mut answers = plan.places();
    let outcomes = apply(&way, &plan, Op::Check, &mut answers, now).await;
    let outcomes = outcomes.unwrap_or_else(|_| plan.answer_without_store(&mut answers));
    let verdict = plan.conclude(&outcomes, &answers, found, armed, query, now);
    let keep = kept(keeping.keep, &plan.items, &answers, &shared.room);
    let keeping = Keeping { keep, ..keeping };
    let parts = plan.kept(armed, &overrides, &answers, query, keeping, verdict.allowed);
    if parts.is_empty() {
        return Admission::new(verdict);
    }
    let giver = Arc::clone(shared) as Arc<dyn GiveBack>;
    let held = Held::new(giver, plan.holder, parts);
    // Who was waited for has said how long from when it said so.
    let decided = if shared.store.waits() { shared.clock.now() } else { now };
    Admission::holding(verdict, held, &shared.room, &shared.clock, decided)
}

impl<S: Store, C: Clock> Shared<S, C> {
    /// What a request is told when the store has no answer at all.
    fn unanswered(&self, armed: &Arc<Armed>, query: &Query<'_>, now: Timestamp) -> Verdict {
        let mut found = Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        let overrides = self.overridden(&found);
        let plan = self.plan(armed, &found, &overrides, query, now, Wanted::All);
        let mut answers = plan.places();
        let outcomes = plan.answer_without_store(&mut answers);
        plan.conclude(&outcomes, &answers, &found, armed, query, now)
    }
}

impl Plan<'_> {
    /// Answers for a store that does not, as each limit's policy says.
    fn answer_without_store(&self, answers: &mut [Answer]) -> Outcomes {
        for (item, answer) in self.items.iter().zip(answers.iter_mut()) {
            let decision =
                Decision::without_state(item.on_error != OnError::Deny, item.limit.limit().limit());
            let source = if item.mode == Mode::Shadow { Source::Shadow } else { Source::Fallback };
            *answer = Answer { decision: Decision { source, ..decision }, ..Answer::default() };
        }
        let mut outcomes = Outcomes::default();
        for part in self.parts() {
            let refuses = |item: &tidegate_store::Item<'_>| {
                item.mode != Mode::Shadow && item.on_error == OnError::Deny
            };
            let allowed = !self.items[part.clone()].iter().any(refuses);
            outcomes.add(Outcome { allowed, granted: if allowed { self.cost } else { 0 } }, part);
        }
        outcomes
    }

    /// What was taken and may come back. Of a request that was refused only permits do, which some of
    /// its descriptors may have been given where each is decided by itself.
    fn kept(
        &self,
        armed: &Armed,
        overrides: &Handles,
        answers: &[Answer],
        query: &Query<'_>,
        keeping: Keeping<'_>,
        allowed: bool,
    ) -> Vec<Part> {
        let asked = self.items.iter().zip(&self.by).zip(answers);
        let parts = asked.filter_map(|((item, (descriptor, by)), answer)| {
            let own = query.descriptors.get(*descriptor as usize).and_then(|it| it.cost);
            // What the rules say costs nothing costs nothing, whatever the request turns out to cost.
            let cost = match own {
                Some(0) => return None,
                own => own.unwrap_or(query.cost),
            };
            let handle = match by {
                By::Rule(index) => armed.handles.get(*index as usize)?,
                By::Override(_) => overrides.get(*descriptor as usize)?.as_ref()?,
                By::Limit(_) | By::Block => return None,
            };
            let settling = keeping.settling(*descriptor);
            let keep = if settling.is_some() { Keep::All } else { keeping.keep };
            let mut part = Part::of(item, handle, answer, cost, keep)?;
            part.settling = settling.cloned();
            (allowed || part.is_permit()).then_some(part)
        });
        parts.collect()
    }
}
