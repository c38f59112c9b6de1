//! The limiter: limits, a store and a clock.

use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{Ask, Decision, Inherit, LimitSpec, Retry, Timestamp, join};
use tidegate_store::{
    Answer, Call, Holding, Item, LocalStore, MemoryStore, OnError, Op, Outcome, Registered, Store,
};

use crate::clock::{Clock, SystemClock};
use crate::holder::Holders;
use crate::key::{Key, KeyParts};
use crate::observer::{Event, Observer};
use crate::policy::{BuildError, Items, Limits, Policy, PolicyCell};
use crate::request::Request;
use crate::waiting::WaitingRoom;

/// Limits on keys: asks the store, by the clock, on behalf of whoever holds a key.
///
/// Every check applies all limits of the limiter to one key, all or nothing: it consumes from all
/// of them or from none.
///
/// ```
/// use tidegate::{Limit, Limiter, Retry};
///
/// // 5 per second with bursts of 10, and 1000 per hour.
/// let limiter = Limiter::builder()
///     .limit(Limit::per_second(5).burst(10))
///     .limit(Limit::per_hour(1000))
///     .build()?;
/// let decision = limiter.check("user:42");
/// assert!(decision.allowed);
/// assert_eq!(decision.remaining, 9);
/// # Ok::<(), tidegate::BuildError>(())
/// ```
pub struct Limiter<S = MemoryStore, C: Clock = SystemClock> {
    pub(crate) shared: Arc<Shared<S, C>>,
}

pub(crate) struct Shared<S, C> {
    pub(crate) store: S,
    pub(crate) clock: C,
    pub(crate) policy: PolicyCell,
    pub(crate) observer: Option<Box<dyn Observer>>,
    pub(crate) waiting: WaitingRoom,
    pub(crate) jitter: Duration,
    pub(crate) holders: Holders,
    #[cfg(feature = "rules")]
    pub(crate) room: Arc<crate::turn::Room>,
}

/// A clone is another handle of the same limiter.
impl<S, C: Clock> Clone for Limiter<S, C> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S, C: Clock> std::fmt::Debug for Limiter<S, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Limiter").field(&self.shared.policy.get().handles).finish()
    }
}

impl Limiter {
    /// A limiter with one limit, in memory, by the machine's clock.
    ///
    /// # Errors
    /// If the limit is impossible.
    pub fn new(limit: LimitSpec) -> Result<Self, BuildError> {
        Self::builder().limit(limit).build()
    }

    /// A limiter to be described.
    #[must_use]
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder {
            limits: Limits::new(),
            store: None,
            clock: SystemClock::new,
            observer: None,
            waiters_max: 100_000,
            jitter: Duration::ZERO,
        }
    }
}

/// What a limiter is made of.
///
/// The store is made when the limiter is, unless one is given. Several limiters may share a store as
/// an `Arc`: limits of the same name are then the same limit, so give those a name of their own
/// that are not. Two limiters that give one name different numbers undo each other's work.
pub struct LimiterBuilder<S = MemoryStore, F = fn() -> SystemClock> {
    limits: Limits,
    store: Option<S>,
    clock: F,
    observer: Option<Box<dyn Observer>>,
    waiters_max: usize,
    jitter: Duration,
}

impl<S, F> LimiterBuilder<S, F> {
    /// Adds a limit, named by its position: `limit-0`, `limit-1`.
    #[must_use]
    pub fn limit(mut self, limit: LimitSpec) -> Self {
        self.limits = self.limits.limit(limit);
        self
    }

    /// Adds a limit by name. The name is what snapshots, and other limiters of the same store,
    /// know it by.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>, limit: LimitSpec) -> Self {
        self.limits = self.limits.named(name, limit);
        self
    }

    /// Adds a limit of so many units per day, week, month or year of a calendar.
    #[cfg(feature = "time-zones")]
    #[must_use]
    pub fn calendar(
        mut self,
        name: impl Into<String>,
        units: u64,
        calendar: crate::Calendar,
    ) -> Self {
        self.limits = self.limits.calendar(name, units, calendar);
        self
    }

    /// What the limits answer when a store that others share cannot: yes if not said.
    #[must_use]
    pub fn on_store_error(mut self, on_error: OnError) -> Self {
        self.limits = self.limits.on_store_error(on_error);
        self
    }

    /// Keeps counters in this store.
    #[must_use]
    pub fn store<T>(self, store: T) -> LimiterBuilder<T, F> {
        let Self { limits, clock, observer, waiters_max, jitter, .. } = self;
        LimiterBuilder { limits, store: Some(store), clock, observer, waiters_max, jitter }
    }

    /// Tells the time by this clock.
    #[must_use]
    pub fn clock<C: Clock>(self, clock: C) -> LimiterBuilder<S, impl FnOnce() -> C> {
        let Self { limits, store, observer, waiters_max, jitter, .. } = self;
        let clock = move || clock;
        LimiterBuilder { limits, store, clock, observer, waiters_max, jitter }
    }

    /// Tells somebody about every decision.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// How many may wait at once, over all keys; 100,000 if not said.
    #[must_use]
    pub fn max_waiters(mut self, max: usize) -> Self {
        self.waiters_max = max;
        self
    }

    /// Adds up to this much, at random, to every wait, so that those who were refused together do
    /// not come back together.
    #[must_use]
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most;
        self
    }
}

impl<C: Clock, F: FnOnce() -> C> LimiterBuilder<MemoryStore, F> {
    /// The limiter.
    ///
    /// # Errors
    /// If there is no limit, or one is impossible, or two have the same name.
    pub fn build(mut self) -> Result<Limiter<MemoryStore, C>, BuildError> {
        self.store.get_or_insert_with(MemoryStore::new);
        self.build_on()
    }
}

impl<S: Store, C: Clock, F: FnOnce() -> C> LimiterBuilder<S, F> {
    /// The limiter, on the store that was given; [`build`](LimiterBuilder::build) if none was.
    ///
    /// # Errors
    /// If there is no limit, or one is impossible, or two have the same name, or no store was
    /// given.
    pub fn build_on(self) -> Result<Limiter<S, C>, BuildError> {
        let Some(store) = self.store else { return Err(BuildError::NoStore) };
        let policy = Policy::register(&store, self.limits, Inherit::Used, OnError::default())?;
        Ok(Limiter {
            shared: Arc::new(Shared {
                store,
                clock: (self.clock)(),
                policy: PolicyCell::new(policy),
                observer: self.observer,
                waiting: WaitingRoom::new(self.waiters_max),
                jitter: self.jitter,
                holders: Holders::new(),
                #[cfg(feature = "rules")]
                room: Arc::default(),
            }),
        })
    }
}

/// The answers of all limits of a request.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// The answer as a whole.
    pub overall: Decision,
    /// How much was admitted.
    pub granted: u64,
    /// What each limit said, in the order they were added.
    pub each: SmallVec<[Decision; 4]>,
}

/// Ways to ask.
impl<S: Store, C: Clock> Limiter<S, C> {
    /// A request for a key, to be described further: `limiter.on("key").cost(5).check()`.
    #[inline(always)]
    pub fn on<'a, K: Key + ?Sized>(&'a self, key: &'a K) -> Request<'a, S, C, K> {
        Request::new(self, key)
    }

    /// The time by the limiter's clock.
    pub fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.shared.store
    }

    /// The limits in force, with their names.
    pub fn limits(&self) -> Vec<Arc<Registered>> {
        self.shared.policy.get().handles.to_vec()
    }

    /// How many are waiting now.
    pub fn waiters(&self) -> usize {
        self.shared.waiting.len()
    }

    /// Replaces the limits while everything goes on. What keys have used is carried over by the
    /// names of the limits, as `inherit` says, when each key is next seen.
    ///
    /// ```
    /// use tidegate::{Inherit, Limit, Limiter};
    ///
    /// let limiter = Limiter::new(Limit::per_minute(100))?;
    /// assert!(limiter.on("key").cost(60).check().allowed);
    /// limiter.replace([("limit-0", Limit::per_minute(200))], Inherit::Used)?;
    /// assert_eq!(limiter.peek("key").remaining, 140);
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// As for building; the limits then stay as they were.
    pub fn replace(&self, limits: impl Into<Limits>, inherit: Inherit) -> Result<(), BuildError> {
        let on_error = self.shared.policy.get().on_error;
        let policy = Policy::register(&self.shared.store, limits.into(), inherit, on_error)?;
        self.shared.policy.replace(policy);
        // There may be room now where there was none.
        self.shared.waiting.wake_all();
        Ok(())
    }
}

/// Asking without waiting for anybody.
impl<S: LocalStore, C: Clock> Limiter<S, C> {
    /// Asks for one unit, and takes it if it is there.
    ///
    /// A concurrency limit gives a permit that stays out until its lease ends, and without a lease
    /// for ever, because nobody has it in hand: use [`acquire`](Request::acquire) for one that is
    /// given back.
    #[must_use = "a decision that nobody reads limits nothing"]
    #[inline(never)]
    pub fn check<K: Key + ?Sized>(&self, key: &K) -> Decision {
        self.on(key).check()
    }

    /// What a check would answer, without taking anything.
    #[must_use]
    pub fn peek<K: Key + ?Sized>(&self, key: &K) -> Decision {
        self.on(key).peek()
    }

    /// Takes as many of `units` as there are, and says how many.
    #[must_use = "only so many units were taken"]
    pub fn up_to<K: Key + ?Sized>(&self, key: &K, units: u64) -> u64 {
        self.on(key).cost(units).up_to().granted
    }

    /// Takes one unit whether it is there or not: the key may go into debt.
    pub fn force<K: Key + ?Sized>(&self, key: &K) -> Decision {
        self.on(key).force()
    }

    /// Gives `units` back, up to what is used. Permits of a concurrency limit are given back by
    /// those who hold them, and not by this.
    pub fn refund<K: Key + ?Sized>(&self, key: &K, units: u64) -> Decision {
        self.on(key).cost(units).refund()
    }

    /// Forgets a key.
    pub fn reset<K: Key + ?Sized>(&self, key: &K) -> Decision {
        self.on(key).reset()
    }
}

/// A call as the store wants it, built and asked.
impl<S: Store, C: Clock> Shared<S, C> {
    pub(crate) fn conclude(
        &self,
        call: &Call<'_>,
        outcome: Outcome,
        answers: &[Answer],
    ) -> Decision {
        let decisions = answers.iter().map(|answer| &answer.decision);
        // Without limits there would be nothing to join, and there is always one.
        let decision =
            join(outcome.allowed, decisions).unwrap_or(Decision::without_state(outcome.allowed, 0));
        self.tell(call, &decision, answers);
        decision
    }

    /// Calls those who wait for what was given back.
    fn wake_after(&self, op: Op<'_>, parts: &[&[u8]]) {
        if !matches!(op, Op::Refund | Op::Reset | Op::GiveBack(_)) {
            return;
        }
        match parts {
            [only] => self.waiting.wake(only, false),
            _ => self.waiting.wake_all(),
        }
    }

    /// Brings what was taken to its real cost, and calls those who wait for the rest.
    pub(crate) fn give_back(&self, holding: Holding, cost: u64, key: &KeyParts) {
        self.store.settle_soon(holding, cost, self.clock.now());
        self.waiting.wake(&key.whole, key.is_compound());
    }

    fn tell(&self, call: &Call<'_>, decision: &Decision, answers: &[Answer]) {
        if let Some(observer) = &self.observer {
            let (op, cost, items) = (call.op, call.cost, call.items);
            observer.decided(&Event { op, cost, decision, items, answers });
        }
    }

    /// Asks a store that answers at once; `then` sees what was asked and answered.
    pub(crate) fn ask_now<R>(
        &self,
        parts: &[&[u8]],
        op: Op<'_>,
        cost: u64,
        holder: u128,
        then: impl FnOnce(&Policy, &Call<'_>, &[Answer], Outcome, Decision) -> R,
    ) -> R
    where
        S: LocalStore,
    {
        let now = self.clock.now();
        let policy = self.policy.get();
        let items = policy.items(parts, now);
        let call = Call { op, items: &items, cost, now, holder };
        let mut answers: SmallVec<[Answer; 4]> = smallvec![Answer::default(); items.len()];
        let outcome = self.store.apply_now(&call, &mut answers);
        self.wake_after(op, parts);
        let decision = self.conclude(&call, outcome, &answers);
        then(&policy, &call, &answers, outcome, decision)
    }

    /// The shortest way: plain limits that were never replaced, nobody watching.
    ///
    /// Every return is a call in last place, so that the decision is written once, to where the
    /// caller wants it: copying it costs as much as finding the key.
    #[inline(always)]
    pub(crate) fn check_now(&self, parts: &[&[u8]], cost: u64) -> Decision
    where
        S: LocalStore,
    {
        if let ([key], None) = (parts, &self.observer) {
            let plain = self.policy.plain();
            if let [only] = plain {
                return self.store.check_one_now(&Item::new(key, only), cost, self.clock.now());
            }
            if !plain.is_empty() {
                return self.store.check_all(key, plain, cost, self.clock.now());
            }
        }
        self.check_long(parts, cost)
    }

    #[inline(never)]
    fn check_long(&self, parts: &[&[u8]], cost: u64) -> Decision
    where
        S: LocalStore,
    {
        let policy = self.policy.get();
        if let ([key], None) = (parts, &self.observer)
            && !policy.plain().is_empty()
        {
            return self.store.check_all(key, policy.plain(), cost, self.clock.now());
        }
        let holder = self.holders.next();
        self.ask_now(parts, Op::Check, cost, holder, |_, _, _, _, decision| decision)
    }

    /// The answer for a cost that no state could admit, if it is one.
    pub(crate) fn never(&self, cost: u64) -> Option<Decision> {
        let ask = Ask::at(self.clock.now());
        let policy = self.policy.get();
        let mut fresh = policy.handles.iter().map(|known| known.limit().peek(None, &ask, cost));
        fresh.find(|decision| decision.retry == Retry::Never)
    }

    /// Asks a store that takes its time.
    pub(crate) async fn ask(
        &self,
        key: &KeyParts,
        op: Op<'_>,
        cost: u64,
        holder: u128,
    ) -> Result<Asked, S::Error> {
        let now = self.clock.now();
        let policy = self.policy.get();
        let items = policy.items(&key.slices(), now);
        let call = Call { op, items: &items, cost, now, holder };
        let mut answers: SmallVec<[Answer; 4]> = smallvec![Answer::default(); items.len()];
        let outcome = self.store.apply(&call, &mut answers).await?;
        self.wake_after(op, &key.slices());
        let decision = self.conclude(&call, outcome, &answers);
        let holding = outcome.allowed.then(|| Holding::new(&call, &policy.handles, &answers));
        let each = answers.iter().map(|answer| answer.decision).collect();
        let decisions = Decisions { overall: decision, granted: outcome.granted, each };
        // Everything else that refuses holds for as long as it says.
        let others = items.iter().zip(&answers);
        let others = others.filter(|(item, _)| !item.limit.limit().is_concurrency());
        let sure = others.fold(Retry::Now, |sure, (_, answer)| sure.max(answer.decision.retry));
        Ok(Asked { decisions, holding, sure })
    }
}

impl<S: Store, C: Clock> Shared<S, C> {
    /// Asks again for the permits that somebody holds, and for nothing else.
    pub(crate) async fn renew(&self, holding: &Holding) -> Result<bool, S::Error> {
        let on_error = self.policy.get().on_error;
        let items: Items<'_> = holding
            .parts
            .iter()
            .map(|part| {
                let factor = part.factor;
                Item { factor, on_error, ..Item::new(&part.key, &part.limit) }
            })
            .collect();
        let (cost, holder, now) = (holding.cost, holding.holder, self.clock.now());
        let call = Call { op: Op::Check, items: &items, cost, now, holder };
        let mut answers: SmallVec<[Answer; 4]> = smallvec![Answer::default(); items.len()];
        let outcome = self.store.apply(&call, &mut answers).await?;
        self.conclude(&call, outcome, &answers);
        Ok(outcome.allowed && !items.is_empty())
    }
}

/// What came of asking.
pub(crate) struct Asked {
    pub(crate) decisions: Decisions,
    /// What was taken, if the request was admitted.
    pub(crate) holding: Option<Holding>,
    /// How long it takes even if all permits come back at once.
    pub(crate) sure: Retry,
}
