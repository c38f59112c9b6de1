//! A request in the making: a key, a cost, and then what to do.

use std::time::Duration;

use tidegate_core::Decision;
use tidegate_store::{Holding, LocalStore, Op, Store};

use crate::clock::Clock;
use crate::key::{Key, KeyParts};
use crate::limiter::{Asked, Decisions, Limiter};
use crate::reservation::{Permit, Reservation};
use crate::waiting::{self, WaitError};

/// A request for a key: describe it, then end it with what is to be done.
///
/// The short forms answer at once and need a store in this process; the `_async` forms work with
/// every store.
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_minute(100))?;
/// assert!(limiter.on("user:42").cost(60).check().allowed);
/// assert!(!limiter.on("user:42").cost(60).check().allowed);
/// assert_eq!(limiter.on("user:42").cost(60).up_to().granted, 40);
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[must_use = "nothing is asked until `check` or another of its kind is called"]
pub struct Request<'a, S, C: Clock, K: ?Sized> {
    pub(crate) limiter: &'a Limiter<S, C>,
    key: &'a K,
    pub(crate) cost: u64,
}

impl<'a, S: Store, C: Clock, K: Key + ?Sized> Request<'a, S, C, K> {
    #[inline(always)]
    pub(crate) fn new(limiter: &'a Limiter<S, C>, key: &'a K) -> Self {
        Self { limiter, key, cost: 1 }
    }

    /// How many units it asks for; one if not said. Zero asks without taking.
    #[inline(always)]
    pub fn cost(mut self, units: u64) -> Self {
        self.cost = units;
        self
    }

    pub(crate) fn parts(&self) -> KeyParts {
        KeyParts::new(self.key)
    }

    async fn ask(&self, op: Op<'_>) -> Result<Decisions, S::Error> {
        let holder = self.limiter.shared.holders.next();
        let asked = self.limiter.shared.ask(&self.parts(), op, self.cost, holder).await?;
        Ok(asked.decisions)
    }

    /// Takes the units if all limits admit them.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn check_async(self) -> Result<Decision, S::Error> {
        Ok(self.ask(Op::Check).await?.overall)
    }

    /// [`check_async`](Self::check_async) with the answer of every limit.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn check_each_async(self) -> Result<Decisions, S::Error> {
        self.ask(Op::Check).await
    }

    /// Answers as a check would, and takes nothing.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn peek_async(self) -> Result<Decision, S::Error> {
        Ok(self.ask(Op::Peek).await?.overall)
    }

    /// Takes as many of the units as all limits admit.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn up_to_async(self) -> Result<Decisions, S::Error> {
        self.ask(Op::UpTo).await
    }

    /// Takes the units, admitted or not.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn force_async(self) -> Result<Decision, S::Error> {
        Ok(self.ask(Op::Force).await?.overall)
    }

    /// Gives the units back, up to what is used.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn refund_async(self) -> Result<Decision, S::Error> {
        Ok(self.ask(Op::Refund).await?.overall)
    }

    /// Forgets the key.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn reset_async(self) -> Result<Decision, S::Error> {
        Ok(self.ask(Op::Reset).await?.overall)
    }

    /// Waits until the units are admitted, and takes them.
    ///
    /// Those who wait for the same key are served in the order they came; whoever is at the head
    /// sleeps until the moment the limit names. Dropping the future gives up the place.
    /// What [`check`](Self::check) takes meanwhile, it takes without queueing.
    ///
    /// A limit that shapes (a queue, a warm-up) admits first and tells how long to hold: that is
    /// waited for here, too.
    ///
    /// # Errors
    /// If it can never be admitted, too many are waiting, or the store could not answer.
    pub async fn until_ready(self) -> Result<Decision, WaitError<S::Error>> {
        self.wait(None).await.map(|asked| asked.decisions.overall)
    }

    /// [`until_ready`](Self::until_ready), but for so long at the most. A wait that is known to be
    /// too long is not begun.
    ///
    /// # Errors
    /// As `until_ready`, and when it takes too long.
    pub async fn until_ready_within(self, most: Duration) -> Result<Decision, WaitError<S::Error>> {
        self.wait(Some(most)).await.map(|asked| asked.decisions.overall)
    }

    /// Waits like [`until_ready_within`](Self::until_ready_within) and keeps what was taken
    /// returnable: settle it at the real cost, or drop it and it is given back.
    ///
    /// # Errors
    /// As `until_ready_within`.
    pub async fn reserve(self, most: Duration) -> Result<Reservation<S, C>, WaitError<S::Error>> {
        let asked = self.wait(Some(most)).await?;
        let decision = asked.decisions.overall;
        Ok(Reservation::new(self.limiter.clone(), self.parts(), decision, asked.holding))
    }

    /// Waits like [`until_ready_within`](Self::until_ready_within) for a permit, which is given
    /// back when it is dropped.
    ///
    /// # Errors
    /// As `until_ready_within`.
    pub async fn acquire_within(self, most: Duration) -> Result<Permit<S, C>, WaitError<S::Error>> {
        let asked = self.wait(Some(most)).await?;
        Ok(Permit::new(self.limiter.clone(), self.parts(), asked.decisions.overall, asked.holding))
    }

    async fn wait(&self, most: Option<Duration>) -> Result<Asked, WaitError<S::Error>> {
        waiting::until_ready(&self.limiter.shared, self.parts(), self.cost, most).await
    }

    /// [`until_ready_within`](Self::until_ready_within) for threads: blocks this one.
    ///
    /// # Errors
    /// As `until_ready_within`.
    pub fn wait_blocking(self, most: Duration) -> Result<Decision, WaitError<S::Error>> {
        waiting::block_on(self.until_ready_within(most))
    }

    /// [`reserve`](Self::reserve) for threads: blocks this one.
    ///
    /// # Errors
    /// As `until_ready_within`.
    pub fn reserve_blocking(
        self,
        most: Duration,
    ) -> Result<Reservation<S, C>, WaitError<S::Error>> {
        waiting::block_on(self.reserve(most))
    }

    /// [`acquire_within`](Self::acquire_within) for threads: blocks this one.
    ///
    /// # Errors
    /// As `until_ready_within`.
    pub fn acquire_blocking(self, most: Duration) -> Result<Permit<S, C>, WaitError<S::Error>> {
        waiting::block_on(self.acquire_within(most))
    }
}

/// Ends that answer at once.
impl<S: LocalStore, C: Clock, K: Key + ?Sized> Request<'_, S, C, K> {
    /// Takes the units if all limits admit them.
    #[must_use = "a decision that nobody reads limits nothing"]
    #[inline(always)]
    pub fn check(self) -> Decision {
        self.key.with_parts(|parts| self.limiter.shared.check_now(parts, self.cost))
    }

    /// [`check`](Self::check) with the answer of every limit.
    #[must_use = "a decision that nobody reads limits nothing"]
    pub fn check_each(self) -> Decisions {
        self.ask_now(Op::Check)
    }

    /// Answers as a check would, and takes nothing.
    #[must_use]
    pub fn peek(self) -> Decision {
        self.ask_now(Op::Peek).overall
    }

    /// Takes as many of the units as all limits admit.
    #[must_use = "only so many units were taken"]
    pub fn up_to(self) -> Decisions {
        self.ask_now(Op::UpTo)
    }

    /// Takes the units, admitted or not: the key may go into debt.
    pub fn force(self) -> Decision {
        self.ask_now(Op::Force).overall
    }

    /// Gives the units back, up to what is used.
    pub fn refund(self) -> Decision {
        self.ask_now(Op::Refund).overall
    }

    /// Forgets the key.
    pub fn reset(self) -> Decision {
        self.ask_now(Op::Reset).overall
    }

    /// Takes the units returnably, without waiting.
    ///
    /// # Errors
    /// The refusal.
    pub fn try_reserve(self) -> Result<Reservation<S, C>, Decision> {
        let (decision, holding) = self.hold()?;
        Ok(Reservation::new(self.limiter.clone(), self.parts(), decision, Some(holding)))
    }

    /// Takes a permit, which is given back when it is dropped.
    ///
    /// # Errors
    /// The refusal.
    pub fn acquire(self) -> Result<Permit<S, C>, Decision> {
        let (decision, holding) = self.hold()?;
        Ok(Permit::new(self.limiter.clone(), self.parts(), decision, Some(holding)))
    }

    fn hold(&self) -> Result<(Decision, Holding), Decision> {
        let shared = &self.limiter.shared;
        let holder = shared.holders.next();
        self.key.with_parts(|parts| {
            shared.ask_now(
                parts,
                Op::Check,
                self.cost,
                holder,
                |policy, call, answers, _, decision| {
                    if !decision.allowed {
                        return Err(decision);
                    }
                    Ok((decision, Holding::new(call, &policy.handles, answers)))
                },
            )
        })
    }

    fn ask_now(&self, op: Op<'_>) -> Decisions {
        let shared = &self.limiter.shared;
        let holder = shared.holders.next();
        self.key.with_parts(|parts| {
            shared.ask_now(parts, op, self.cost, holder, |_, _, answers, outcome, overall| {
                let each = answers.iter().map(|answer| answer.decision).collect();
                Decisions { overall, granted: outcome.granted, each }
            })
        })
    }
}
