//! A limiter whose limits come from rules.

mod excepted;
mod reserved;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tidegate_core::{Inherit, Limit, Rate, Timestamp};
use tidegate_rules::{Descriptor, Found, HttpRequest, Mapped, Met, Override, Rules};
use tidegate_store::{Item, LocalStore, MemoryStore, Mode, Op, Registered, Store};

use self::excepted::may_refuse;
use crate::armed::{Armed, RuleError};
use crate::clock::{Clock, SystemClock};
use crate::exceptions::Exceptions;
use crate::holder::Holders;
use crate::plain::{check_only, only_limit};
use crate::plan::{FREE_QUOTA, NOBODY, Outcomes, Plan, sort_by_descriptor};
use crate::verdict::{By, Verdict};

/// How many descriptors a request should have at the most: what is asked of a store grows with
/// the square of it. Front ends refuse more.
pub const DESCRIPTORS_MAX: usize = 1000;
/// How many different limits that requests bring along may count something at once.
const OVERRIDES_MAX: usize = 4096;

/// Limits by rules: finds the limits that a request meets, and asks them all or nothing.
///
/// ```
/// use tidegate::rules::{Descriptor, Entry, File, Options, Rules};
/// use tidegate::{Query, RuleLimiter};
///
/// let text = "
/// domain: api
/// descriptors:
///   - key: user
///     rate_limit: { requests_per_unit: 2, unit: second, algorithm: token_bucket }
/// ";
/// let loaded = Rules::load(&[File { name: "api.yaml", text }], &Options::default());
/// let limiter = RuleLimiter::new(loaded.rules.ok_or(loaded.report.to_string())?)?;
///
/// let entries = [Entry::new("user", "ada")];
/// let descriptors = [Descriptor::new(&entries)];
/// assert!(limiter.check(&Query::new("api", &descriptors)).allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RuleLimiter<S = MemoryStore, C: Clock = SystemClock> {
    shared: Arc<Shared<S, C>>,
}

/// A clone is another handle of the same limiter.
impl<S, C: Clock> Clone for RuleLimiter<S, C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S, C: Clock> fmt::Debug for RuleLimiter<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuleLimiter").field(&self.shared.armed.load().rules).finish()
    }
}

struct Shared<S, C> {
    store: S,
    clock: C,
    modes: Modes,
    armed: ArcSwap<Armed>,
    holders: Holders,
    overrides: RwLock<Overrides>,
    exceptions: Exceptions,
}

/// The limits that requests have brought along, and that count something.
#[derive(Default)]
struct Overrides {
    handles: HashMap<Override, Arc<Registered>>,
    /// How many have found no room since unused ones were last looked for.
    turned_away: usize,
}

impl Overrides {
    /// Makes room for another one, if there is any to be had. To look for some takes a walk over
    /// all keys, which whoever brings many limits along must not cause too often.
    fn make_room<S: Store>(&mut self, store: &S) -> Option<()> {
        if self.handles.len() < OVERRIDES_MAX {
            return Some(());
        }
        self.turned_away += 1;
        if self.turned_away % OVERRIDES_MAX != 1 {
            return None;
        }
        let (limits, handles): (Vec<_>, Vec<_>) = self.handles.drain().unzip();
        let names: HashMap<*const Registered, Override> =
            handles.iter().map(Arc::as_ptr).zip(limits).collect();
        let kept = store.forget_unused(handles);
        let named = kept.into_iter().filter_map(|it| Some((*names.get(&Arc::as_ptr(&it))?, it)));
        self.handles.extend(named);
        (self.handles.len() < OVERRIDES_MAX).then_some(())
    }
}

/// What holds for all rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Modes {
    /// Every limit only watches.
    pub shadow: bool,
    /// Every descriptor is a quota: a request is refused only if all are over.
    pub quota: bool,
    /// Each descriptor of a request is decided by itself, as at Lyft: those that admit consume
    /// also when another one refuses the request.
    pub independent: bool,
}

/// A request: what it is counted by, and what it costs.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// Whose rules to ask.
    pub domain: &'a str,
    /// What it is counted by.
    pub descriptors: &'a [Descriptor<'a>],
    /// What it costs, where a descriptor does not say otherwise.
    pub cost: u64,
    /// Who holds the permits of concurrency limits; somebody new if not said.
    pub holder: Option<u128>,
}

impl<'a> Query<'a> {
    /// A request of cost one.
    pub fn new(domain: &'a str, descriptors: &'a [Descriptor<'a>]) -> Self {
        Self { domain, descriptors, cost: 1, holder: None }
    }

    /// Its cost.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// Who holds its permits.
    #[must_use]
    pub fn holder(self, holder: u128) -> Self {
        Self { holder: Some(holder), ..self }
    }
}

impl RuleLimiter {
    /// A limiter in memory, by the machine's clock.
    ///
    /// # Errors
    /// If the rules cannot be enforced.
    pub fn new(rules: Rules) -> Result<Self, RuleError> {
        Self::build(MemoryStore::new(), SystemClock::new(), rules, Modes::default())
    }
}

impl<S: Store, C: Clock> RuleLimiter<S, C> {
    /// A limiter on a store, by a clock.
    ///
    /// # Errors
    /// If the rules cannot be enforced.
    pub fn build(store: S, clock: C, rules: Rules, modes: Modes) -> Result<Self, RuleError> {
        let armed = ArcSwap::from_pointee(Armed::new(&store, rules)?);
        let (holders, overrides) = (Holders::new(), RwLock::default());
        let exceptions = Exceptions::default();
        let shared = Shared { store, clock, modes, armed, holders, overrides, exceptions };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Replaces the rules while everything goes on: requests that have begun end by the old ones,
    /// nobody waits. A limit that is still there keeps what its keys have used, also when its
    /// numbers have changed.
    ///
    /// # Errors
    /// If the new rules cannot be enforced; the old ones then stay.
    pub fn replace(&self, rules: Rules) -> Result<(), RuleError> {
        let armed = Armed::new(&self.shared.store, rules)?;
        self.shared.armed.store(Arc::new(armed));
        Ok(())
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.shared.store
    }

    /// What holds for all rules.
    pub fn modes(&self) -> Modes {
        self.shared.modes
    }

    /// The time by the limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Calls `look` with the rules in force.
    pub fn with_rules<R>(&self, look: impl FnOnce(&Rules) -> R) -> R {
        look(&self.shared.armed.load().rules)
    }

    /// Which rules are in force: another number after each [`replace`](Self::replace).
    pub fn generation(&self) -> u64 {
        self.shared.armed.load().generation
    }

    /// Calls `look` with the rules in force and their [generation](Self::generation).
    pub fn with_generation<R>(&self, look: impl FnOnce(u64, &Rules) -> R) -> R {
        let armed = self.shared.armed.load();
        look(armed.generation, &armed.rules)
    }

    /// Decides a request with any store.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn ask_async(&self, op: Op<'_>, query: &Query<'_>) -> Result<Verdict, S::Error> {
        let shared = &*self.shared;
        let armed = shared.armed.load_full();
        let now = shared.clock.now();
        let excepting =
            shared.exceptions.may_be_any(now).then(|| shared.exceptions.apply(query, now));
        let blocked = excepting.as_ref().filter(|_| may_refuse(op)).map(|it| &it.blocked[..]);
        let blocked = blocked.unwrap_or_default();
        let descriptors = excepting.as_ref().map_or(query.descriptors, |it| &it.descriptors);
        let query = &Query { descriptors, ..*query };
        let op = if blocked.is_empty() { op } else { Op::Peek };
        let mut found = Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        let overrides = shared.overridden(&found);
        let plan = shared.plan(&armed, &found, &overrides, query, now, Wanted::All);
        let mut answers = plan.places();
        let mut outcomes = Outcomes::default();
        for part in plan.parts() {
            let call = plan.call(op, part.clone(), now);
            let outcome = shared.store.apply(&call, &mut answers[part.clone()]).await?;
            outcomes.add(outcome, part);
        }
        let verdict = plan.conclude(&outcomes, &answers, &found, &armed, query, now);
        Ok(if blocked.is_empty() { verdict } else { verdict.blocked(blocked) })
    }

    /// What a request would be told if nobody had used anything yet; exceptions do not count.
    pub(crate) fn ask_fresh(
        &self,
        query: &Query<'_>,
        now: Timestamp,
    ) -> Result<Verdict, RuleError> {
        let shared = &*self.shared;
        let armed = shared.armed.load_full();
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
        let plan = shared.plan_with(&armed, &found, &overrides, query, now, Wanted::All, handle);
        let mut answers = plan.places();
        let mut outcomes = Outcomes::default();
        for part in plan.parts() {
            let call = plan.call(Op::Check, part.clone(), now);
            let outcome = store.apply_now(&call, &mut answers[part.clone()]);
            outcomes.add(outcome, part);
        }
        Ok(plan.conclude(&outcomes, &answers, &found, &armed, query, now))
    }
}

impl<S: LocalStore, C: Clock> RuleLimiter<S, C> {
    /// Consumes from all limits that the request meets if it is admitted, from none otherwise.
    #[must_use = "a verdict that nobody reads limits nothing"]
    pub fn check(&self, query: &Query<'_>) -> Verdict {
        self.ask(Op::Check, query)
    }

    /// Answers as a check would, and takes nothing.
    #[must_use]
    pub fn peek(&self, query: &Query<'_>) -> Verdict {
        self.ask(Op::Peek, query)
    }

    /// Does whatever a store can do with the limits that a request meets.
    pub fn ask(&self, op: Op<'_>, query: &Query<'_>) -> Verdict {
        self.ask_at(op, query, self.shared.clock.now())
    }

    /// [`ask`](Self::ask) at another time than the clock's: for those who replay what has been.
    pub fn ask_at(&self, op: Op<'_>, query: &Query<'_>, now: Timestamp) -> Verdict {
        self.ask_some(op, query, now, Wanted::All)
    }

    /// [`ask`](Self::ask) for an HTTP request, which the `http` section of the rules turns into
    /// descriptors. `query` says all but those. `mapped` is room to work in, to be used again.
    pub fn ask_http<R: HttpRequest + ?Sized>(
        &self,
        op: Op<'_>,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
    ) -> Verdict {
        self.ask_http_at(op, query, request, mapped, self.shared.clock.now())
    }

    /// [`ask_http`](Self::ask_http) at another time than the clock's.
    pub fn ask_http_at<R: HttpRequest + ?Sized>(
        &self,
        op: Op<'_>,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        now: Timestamp,
    ) -> Verdict {
        self.ask_some_http(op, query, request, mapped, now, Wanted::All)
    }

    /// Gives back the permits that a holder has of the concurrency limits that a request meets,
    /// and nothing else.
    pub fn release_at(&self, query: &Query<'_>, now: Timestamp) -> Verdict {
        self.ask_some(Op::Refund, query, now, Wanted::Permits)
    }

    /// [`release_at`](Self::release_at) for an HTTP request.
    pub fn release_http_at<R: HttpRequest + ?Sized>(
        &self,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        now: Timestamp,
    ) -> Verdict {
        self.ask_some_http(Op::Refund, query, request, mapped, now, Wanted::Permits)
    }

    fn ask_some_http<R: HttpRequest + ?Sized>(
        &self,
        op: Op<'_>,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        now: Timestamp,
        wanted: Wanted,
    ) -> Verdict {
        let armed = self.shared.armed.load_full();
        armed.rules.map_http(query.domain, request, mapped);
        if let Some(origin) = mapped.denied_by() {
            return Verdict::denied(origin, now, armed);
        }
        mapped.with(|descriptors| {
            let query = Query { descriptors, ..*query };
            self.ask_armed(&armed, op, &query, now, wanted)
        })
    }

    fn ask_some(&self, op: Op<'_>, query: &Query<'_>, now: Timestamp, wanted: Wanted) -> Verdict {
        self.ask_armed(&self.shared.armed.load(), op, query, now, wanted)
    }

    fn ask_armed(
        &self,
        armed: &Arc<Armed>,
        op: Op<'_>,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Verdict {
        if self.shared.exceptions.may_be_any(now) {
            return self.ask_excepted(armed, op, query, now, wanted);
        }
        self.ask_rules(armed, op, query, now, wanted)
    }

    fn ask_rules(
        &self,
        armed: &Arc<Armed>,
        op: Op<'_>,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Verdict {
        let shared = &*self.shared;
        let mut found = Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        if let Some(met) = only_limit(shared.modes, op, query, &found) {
            return check_only(&shared.store, armed, &found, met, query, now);
        }
        let overrides = shared.overridden(&found);
        let plan = shared.plan(armed, &found, &overrides, query, now, wanted);
        let mut answers = plan.places();
        let mut outcomes = Outcomes::default();
        for part in plan.parts() {
            let call = plan.call(op, part.clone(), now);
            let outcome = shared.store.apply_now(&call, &mut answers[part.clone()]);
            outcomes.add(outcome, part);
        }
        plan.conclude(&outcomes, &answers, &found, armed, query, now)
    }
}

/// Which of the limits that a request meets are asked.
#[derive(Clone, Copy)]
enum Wanted {
    All,
    /// Those that give permits.
    Permits,
}

impl Wanted {
    fn covers(self, limit: &Limit) -> bool {
        match self {
            Self::All => true,
            Self::Permits => limit.is_concurrency(),
        }
    }
}

type Handles = SmallVec<[Option<Arc<Registered>>; 4]>;

impl<S: Store, C> Shared<S, C> {
    /// The handles of limits that the request brings along, one place for each descriptor.
    fn overridden(&self, found: &Found<'_>) -> Handles {
        found.overrides().map(|limit| limit.and_then(|limit| self.handle_of(limit))).collect()
    }

    /// The handle of a limit that a request brings along; `None` if too many are in use.
    fn handle_of(&self, limit: Override) -> Option<Arc<Registered>> {
        let known = self.overrides.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = known.handles.get(&limit) {
            return Some(Arc::clone(handle));
        }
        drop(known);
        let Override { requests_per_unit, unit } = limit;
        let rate = Rate::new(requests_per_unit.into(), unit.length());
        let built = Limit::fixed_window(rate).build().ok()?;
        let mut known = self.overrides.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = known.handles.get(&limit) {
            return Some(Arc::clone(handle));
        }
        known.make_room(&self.store)?;
        // One id for each unit, so that a key that comes with another number keeps what it used.
        let id = format!("override/{}", unit.as_str());
        let handle = self.store.register(&id, built, Inherit::Used).ok()?;
        known.handles.insert(limit, Arc::clone(&handle));
        Some(handle)
    }

    fn plan<'a>(
        &self,
        armed: &'a Armed,
        found: &'a Found<'_>,
        overrides: &'a Handles,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Plan<'a> {
        let handle = |_: usize, met: &Met<'_>| &*armed.handles[met.index as usize];
        self.plan_with(armed, found, overrides, query, now, wanted, handle)
    }

    /// A plan with the limits of the rules as `handle` has them, which is told the position among
    /// those found.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all that a plan is made of, and who has limits")]
    fn plan_with<'a>(
        &self,
        armed: &'a Armed,
        found: &'a Found<'_>,
        overrides: &'a Handles,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
        handle: impl Fn(usize, &Met<'_>) -> &'a Registered,
    ) -> Plan<'a> {
        // Where descriptors have costs of their own, the call costs one and they are factors.
        let has_costs = query.descriptors.iter().any(|descriptor| descriptor.cost.is_some());
        let cost_of = |descriptor: usize| match has_costs {
            true => query.descriptors[descriptor].cost.unwrap_or(query.cost),
            false => 1,
        };
        let mut items: SmallVec<[Item<'a>; 4]> = SmallVec::new();
        let mut by: SmallVec<[(u32, By); 4]> = SmallVec::new();
        let mut unasked: SmallVec<[(u32, Override); 1]> = SmallVec::new();
        for (position, (handle, limit)) in (0u32..).zip(overrides.iter().zip(found.overrides())) {
            let Some(limit) = limit else { continue };
            let Some(handle) = handle else {
                unasked.push((position, limit));
                continue;
            };
            if !wanted.covers(handle.limit()) {
                continue;
            }
            items.push(Item {
                factor: cost_of(position as usize),
                mode: self.mode(false, false, position),
                ..Item::new(found.override_key(position as usize), handle)
            });
            by.push((position, By::Override(limit)));
        }
        for (place, met) in found.limits.iter().enumerate() {
            if !wanted.covers(&met.rule.limit) {
                continue;
            }
            let rule = met.rule;
            let calendar = armed.calendars[met.index as usize].as_ref();
            items.push(Item {
                factor: cost_of(met.descriptor as usize).saturating_mul(rule.cost.into()),
                mode: self.mode(rule.shadow, rule.quota, met.descriptor),
                windows: calendar.map(|calendar| calendar.windows(now)),
                ..Item::new(found.key(met), handle(place, met))
            });
            by.push((met.descriptor, By::Rule(met.index)));
        }
        if overrides.iter().any(Option::is_some) {
            sort_by_descriptor(&mut items, &mut by);
        }
        // With quotas everywhere, a descriptor without a limit is one that is never over.
        let is_limited = |position: u32| by.iter().any(|(descriptor, _)| *descriptor == position);
        let count = u32::try_from(query.descriptors.len()).unwrap_or(u32::MAX);
        let free_quota = self.modes.quota && !(0..count).all(is_limited);
        if let Some(first) =
            items.first().copied().filter(|_| free_quota && !self.modes.independent)
        {
            let mode = Mode::Quota(FREE_QUOTA);
            items.push(Item {
                factor: 0,
                mode,
                windows: first.windows,
                ..Item::new(NOBODY, first.limit)
            });
        }
        let cost = if has_costs { 1 } else { query.cost };
        let holder = query.holder.unwrap_or_else(|| self.holders.next());
        let independent = self.modes.independent;
        Plan { items, by, unasked, cost, holder, independent, free_quota }
    }

    fn mode(&self, shadow: bool, quota: bool, descriptor: u32) -> Mode {
        match (shadow || self.modes.shadow, quota || self.modes.quota) {
            (true, _) => Mode::Shadow,
            (false, true) => Mode::Quota(descriptor),
            (false, false) => Mode::Enforce,
        }
    }
}
