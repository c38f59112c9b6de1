//! A limiter whose limits come from rules.

mod admitting;
mod awaited;
mod engine;
mod excepted;
mod overrides;
mod planning;
mod way;

use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_core::Timestamp;
use tidegate_rules::{Descriptor, HttpRequest, Mapped, Rules};
use tidegate_store::{LocalStore, MemoryStore, Op, Store};

use self::overrides::Overrides;
use self::planning::Wanted;
pub(crate) use self::planning::on_error;
use self::way::AtOnce;
pub(crate) use self::way::{Way, at_once};
use crate::armed::{Armed, RuleError};
use crate::clock::{Clock, SystemClock};
use crate::exceptions::Exceptions;
use crate::holder::Holders;
use crate::turn::Room;
use crate::verdict::Verdict;

/// How many descriptors a request should have at the most: what is asked of a store grows with
/// the square of it. Front ends refuse more.
pub const DESCRIPTORS_MAX: usize = 1000;

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
    room: Arc<Room>,
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
        let room = Arc::default();
        let shared = Shared { store, clock, modes, armed, holders, overrides, exceptions, room };
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
        self.ask_now(op, query, now, Wanted::All)
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
        self.ask_http_now(op, query, request, mapped, now, Wanted::All)
    }

    /// Gives back the permits that a holder has of the concurrency limits that a request meets,
    /// and nothing else.
    pub fn release_at(&self, query: &Query<'_>, now: Timestamp) -> Verdict {
        self.ask_now(Op::Refund, query, now, Wanted::Permits)
    }

    /// [`release_at`](Self::release_at) for an HTTP request.
    pub fn release_http_at<R: HttpRequest + ?Sized>(
        &self,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        now: Timestamp,
    ) -> Verdict {
        self.ask_http_now(Op::Refund, query, request, mapped, now, Wanted::Permits)
    }

    /// Checks a request and remembers under `id` what it took, to be [settled](Self::settle_at)
    /// within `ttl`; past that it stays consumed. All or nothing, also where descriptors are
    /// independent. While it is open the same id reserves once.
    ///
    /// Where descriptors have costs of their own, the reservation costs one and they are factors.
    ///
    /// # Errors
    /// If the store has no room for another reservation.
    pub fn reserve_at(
        &self,
        query: &Query<'_>,
        id: u128,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Verdict, S::Error> {
        at_once(self.shared.reserve(query, id, ttl, now))
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
        at_once(self.shared.reserve_http(query, request, mapped, (id, ttl), now))
    }

    /// Ends a reservation at its real cost: the rest is given back, what is missing is taken as a
    /// debt; zero cancels it. Whether there was one.
    ///
    /// # Errors
    /// If the store could not answer.
    pub fn settle_at(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, S::Error> {
        self.shared.store.settle_now(id, cost, now)
    }

    #[inline]
    fn ask_now(&self, op: Op<'_>, query: &Query<'_>, now: Timestamp, wanted: Wanted) -> Verdict {
        let shared = &*self.shared;
        let way = AtOnce(&shared.store);
        let Ok(verdict) = at_once(shared.ask(&way, op, query, now, wanted));
        verdict
    }

    fn ask_http_now<R: HttpRequest + ?Sized>(
        &self,
        op: Op<'_>,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        now: Timestamp,
        wanted: Wanted,
    ) -> Verdict {
        let shared = &*self.shared;
        let way = AtOnce(&shared.store);
        let Ok(verdict) = at_once(shared.ask_http(&way, op, query, request, mapped, now, wanted));
        verdict
    }
}

/// For tests: the general way also where there is a short one.
#[cfg(all(test, feature = "time-zones"))]
impl<S: LocalStore, C: Clock> RuleLimiter<S, C> {
    pub(crate) fn ask_generally(&self, op: Op<'_>, query: &Query<'_>) -> Verdict {
        let (shared, now) = (&*self.shared, self.now());
        let (armed, way) = (shared.armed.load(), AtOnce(&shared.store));
        let mut found = tidegate_rules::Found::new();
        armed.rules.find(query.domain, query.descriptors, &mut found);
        let asked = shared.ask_found(&way, &armed, op, query, &found, now, Wanted::All);
        let Ok(verdict) = at_once(asked);
        verdict
    }
}
