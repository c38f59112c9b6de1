//! What a store is asked, and what it answers.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{Decision, Inherit, Limit, Taken, Timestamp, Windows, join};

use crate::registry::{RegisterError, Registered};

/// A place that keeps what was used of each key, and decides on it atomically.
///
/// A call names several (key, limit) pairs and is all-or-nothing: it consumes from all of them or
/// from none, also when others race for the same keys, and nobody is refused because somebody
/// else was merely asking. Limits are registered once and then named by their handle.
///
/// The caller says what time it is; a store shared by several machines may trust its own clock
/// instead, as long as all decisions use the same one.
///
/// A store that can fail answers all the same, by each item's [`OnError`], unless it was built to
/// return its errors.
pub trait Store: Send + Sync {
    /// Why a store could not answer. A refusal is an answer, not an error.
    type Error: Error + Send + Sync + 'static;

    /// Makes a limit known under a stable id, and gives the handle that calls use.
    ///
    /// Registering another limit under the same id changes it: what its keys have used is carried
    /// over as `inherit` says, when each is next seen, be it by a peek.
    ///
    /// # Errors
    /// When the store knows too many limits.
    fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError>;

    /// Forgets those of the limits that nobody else has a handle of and that no key is counted
    /// under, and gives back the others: for limits that come and go with requests. Nobody may
    /// register them anew meanwhile. A store that cannot tell forgets none.
    fn forget_unused(&self, limits: Vec<Arc<Registered>>) -> Vec<Arc<Registered>> {
        limits
    }

    /// Decides a call. `answers` has one place for each item, in the same order.
    fn apply(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;

    /// The most common call, one limit and nothing else: [`Op::Check`] for one item.
    fn check_one(
        &self,
        item: &Item<'_>,
        cost: u64,
        now: Timestamp,
    ) -> impl Future<Output = Result<Decision, Self::Error>> + Send {
        async move {
            let mut answers = [Answer::default()];
            let items = std::slice::from_ref(item);
            self.apply(&Call::new(Op::Check, items, cost, now), &mut answers).await?;
            Ok(answers[0].decision)
        }
    }

    /// Whether somebody may have to be waited for. Who has several calls to make that do not depend
    /// on each other then makes them side by side. A store that says no answers when its futures are first
    /// polled, and is asked where nobody can wait: if it does not, that is a panic.
    fn waits(&self) -> bool {
        true
    }

    /// Decides a call like [`Op::Check`], and remembers under `id` what it took, so that it can be
    /// settled from anywhere within `ttl`. Past that it stays consumed.
    ///
    /// The id makes it safe to repeat: while the reservation is open, the same id reserves once.
    fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send;

    /// Ends a reservation at its real cost: what was reserved beyond it is given back as of the
    /// time of taking, what is missing is consumed even if that makes a debt. Zero cancels.
    ///
    /// Answers whether there was such a reservation; ending it twice changes nothing.
    fn settle(
        &self,
        id: u128,
        cost: u64,
        now: Timestamp,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Brings what somebody holds to its real cost, like [`settle`](Self::settle), without being
    /// waited for: what a reservation or a permit does when it is dropped. A networked store does
    /// it in the background, and counts its failures.
    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp);
}

/// A store in this process, which answers without waiting for anybody: what its futures come to,
/// they come to when they are first polled.
pub trait LocalStore: Store {
    /// [`Store::apply`] at once.
    fn apply_now(&self, call: &Call<'_>, answers: &mut [Answer]) -> Outcome;

    /// [`Store::reserve`] at once.
    ///
    /// # Errors
    /// As there.
    fn reserve_now(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, Self::Error>;

    /// [`Store::settle`] at once.
    ///
    /// # Errors
    /// As there.
    fn settle_now(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, Self::Error>;

    /// [`Store::check_one`] at once.
    fn check_one_now(&self, item: &Item<'_>, cost: u64, now: Timestamp) -> Decision {
        let mut answers = [Answer::default()];
        let items = std::slice::from_ref(item);
        self.apply_now(&Call::new(Op::Check, items, cost, now), &mut answers);
        answers[0].decision
    }

    /// Several enforced limits on one key: [`Op::Check`], with the joined answer.
    fn check_all(
        &self,
        key: &[u8],
        limits: &[Arc<Registered>],
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        check_each(self, key, limits, cost, now)
    }
}

/// [`LocalStore::check_all`] for any limits.
#[inline(never)]
pub(crate) fn check_each<S: LocalStore + ?Sized>(
    store: &S,
    key: &[u8],
    limits: &[Arc<Registered>],
    cost: u64,
    now: Timestamp,
) -> Decision {
    let items: SmallVec<[Item<'_>; 4]> = limits.iter().map(|limit| Item::new(key, limit)).collect();
    let mut answers: SmallVec<[Answer; 4]> = smallvec![Answer::default(); items.len()];
    let outcome = store.apply_now(&Call::new(Op::Check, &items, cost, now), &mut answers);
    join(outcome.allowed, answers.iter().map(|answer| &answer.decision))
        .unwrap_or(Decision::without_state(true, 0))
}

/// One limit to apply to one key.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// What is counted. Different keys are different byte strings; the limit is not part of it.
    ///
    /// The limits of one key are kept side by side, which is quick for a few of them. Thousands
    /// of limits do better with a key of their own each.
    pub key: &'a [u8],
    /// The limit.
    pub limit: &'a Registered,
    /// Units of this limit for each unit of the call's cost.
    pub factor: u64,
    /// Whether the limit may refuse.
    pub mode: Mode,
    /// The calendar around now, for limits that need one.
    pub windows: Option<Windows>,
    /// What to answer when the store cannot.
    pub on_error: OnError,
}

impl<'a> Item<'a> {
    /// An enforced limit at its plain cost, which admits when the store cannot answer.
    pub fn new(key: &'a [u8], limit: &'a Registered) -> Self {
        let (mode, on_error) = (Mode::Enforce, OnError::Allow);
        Self { key, limit, factor: 1, mode, windows: None, on_error }
    }
}

/// What a limit answers when a store that others share cannot be reached, or not in time. Such
/// answers say [`Source::Fallback`](tidegate_core::Source::Fallback). A store in this process
/// always answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnError {
    /// Yes.
    #[default]
    Allow,
    /// No.
    Deny,
    /// What this process counts by itself, under its share of the limit.
    Local,
}

/// What a limit that does not admit means for the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The request is refused.
    #[default]
    Enforce,
    /// Nothing: the limit only watches.
    Shadow,
    /// The request is refused if all quotas refuse. Items with the same number are one quota, and
    /// it refuses if one of them does.
    Quota(u32),
}

/// A question to a store.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// What to do.
    pub op: Op<'a>,
    /// To what.
    pub items: &'a [Item<'a>],
    /// How much; each item multiplies it by its factor.
    pub cost: u64,
    /// When.
    pub now: Timestamp,
    /// On whose behalf: permits of concurrency limits are held, renewed and released by this id.
    pub holder: u128,
}

impl<'a> Call<'a> {
    /// A call without a holder.
    pub fn new(op: Op<'a>, items: &'a [Item<'a>], cost: u64, now: Timestamp) -> Self {
        Self { op, items, cost, now, holder: 0 }
    }

    /// The same call on behalf of a holder.
    #[must_use]
    pub fn held_by(self, holder: u128) -> Self {
        Self { holder, ..self }
    }
}

/// What to do with a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Consume it from all limits if the request is admitted, from none otherwise.
    Check,
    /// Answer as a check would, and change nothing.
    Peek,
    /// Consume as much of it as all limits admit, which may be nothing.
    UpTo,
    /// Consume it whether it is admitted or not.
    Force,
    /// Give it back now. A concurrency limit releases all that the holder has.
    Refund,
    /// Forget the keys.
    Reset,
    /// Give back what is left of earlier takings, one for each item, as of the time of taking.
    GiveBack(&'a [Taken]),
}

/// What somebody took and may give back, with all that is needed to do so.
#[derive(Clone, Debug)]
pub struct Holding {
    /// The cost that was taken.
    pub cost: u64,
    /// On whose behalf.
    pub holder: u128,
    /// From which keys.
    pub parts: Vec<HeldPart>,
}

/// What was taken from one key.
#[derive(Clone, Debug)]
pub struct HeldPart {
    /// The key.
    pub key: Box<[u8]>,
    /// The limit.
    pub limit: Arc<Registered>,
    /// Units for each unit of the cost.
    pub factor: u64,
    /// The calendar at the time.
    pub windows: Option<Windows>,
    /// What was taken.
    pub taken: Taken,
}

impl Holding {
    /// What an admitted call took, by the answers it got. Items that took nothing, such as a limit
    /// in shadow that did not admit, have no part in it. `handles` are the items' limits.
    pub fn new(call: &Call<'_>, handles: &[Arc<Registered>], answers: &[Answer]) -> Self {
        let items = call.items.iter().zip(handles).zip(answers);
        // Of nothing, everybody takes nothing; the real cost may still turn out to be something.
        let takes_part = |item: &Item<'_>, answer: &Answer| match call.cost {
            0 => item.mode != Mode::Shadow,
            _ => answer.taken.cost > 0,
        };
        let taking = items.filter(|((item, _), answer)| takes_part(item, answer));
        let parts = taking.map(|((item, handle), answer)| HeldPart {
            key: item.key.into(),
            limit: Arc::clone(handle),
            factor: answer.taken.cost.checked_div(call.cost).unwrap_or(item.factor),
            windows: item.windows,
            taken: answer.taken,
        });
        Self { cost: call.cost, holder: call.holder, parts: parts.collect() }
    }
}

/// The answer of one item.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// What this limit says. `allowed` is its own opinion, whatever became of the request.
    pub decision: Decision,
    /// What was taken from it, to give back later.
    pub taken: Taken,
}

impl Default for Answer {
    fn default() -> Self {
        Self { decision: Decision::without_state(false, 0), taken: Taken::default() }
    }
}

/// The answer of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the request is admitted.
    pub allowed: bool,
    /// How much of the cost was admitted: all or nothing, but for [`Op::UpTo`].
    pub granted: u64,
}

impl<S: Store> Store for Arc<S> {
    type Error = S::Error;

    fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        S::register(self, id, limit, inherit)
    }

    fn forget_unused(&self, limits: Vec<Arc<Registered>>) -> Vec<Arc<Registered>> {
        S::forget_unused(self, limits)
    }

    fn apply(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send {
        S::apply(self, call, answers)
    }

    fn check_one(
        &self,
        item: &Item<'_>,
        cost: u64,
        now: Timestamp,
    ) -> impl Future<Output = Result<Decision, Self::Error>> + Send {
        S::check_one(self, item, cost, now)
    }

    fn waits(&self) -> bool {
        S::waits(self)
    }

    fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> impl Future<Output = Result<Outcome, Self::Error>> + Send {
        S::reserve(self, call, answers, id, ttl)
    }

    fn settle(
        &self,
        id: u128,
        cost: u64,
        now: Timestamp,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        S::settle(self, id, cost, now)
    }

    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp) {
        S::settle_soon(self, holding, cost, now);
    }
}

impl<S: LocalStore> LocalStore for Arc<S> {
    fn apply_now(&self, call: &Call<'_>, answers: &mut [Answer]) -> Outcome {
        S::apply_now(self, call, answers)
    }

    fn reserve_now(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, Self::Error> {
        S::reserve_now(self, call, answers, id, ttl)
    }

    fn settle_now(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, Self::Error> {
        S::settle_now(self, id, cost, now)
    }

    fn check_one_now(&self, item: &Item<'_>, cost: u64, now: Timestamp) -> Decision {
        S::check_one_now(self, item, cost, now)
    }

    fn check_all(
        &self,
        key: &[u8],
        limits: &[Arc<Registered>],
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        S::check_all(self, key, limits, cost, now)
    }
}
