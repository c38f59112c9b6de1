//! What was taken and may come back: reservations and permits.

use std::fmt;

use tidegate_core::Decision;
use tidegate_store::{Holding, MemoryStore, Store};

use crate::clock::{Clock, SystemClock};
use crate::key::KeyParts;
use crate::limiter::Limiter;

/// Units that were taken for something whose real cost is not known yet.
///
/// Settle it at the real cost when that is known. Dropped without, it is cancelled: what was taken
/// is given back as of the time of taking, so that units which time has paid for meanwhile do not
/// come back twice.
///
/// ```
/// use tidegate::{Limit, Limiter, Rate};
///
/// // 10,000 tokens of a language model a minute.
/// let limiter = Limiter::new(Limit::fixed_window(Rate::per_minute(10_000)))?;
/// let reservation = limiter.on("user:42").cost(2_000).try_reserve().expect("a fresh key");
/// reservation.settle(340); // the answer was shorter than feared
/// assert_eq!(limiter.peek("user:42").remaining, 9_660);
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation<S: Store = MemoryStore, C: Clock = SystemClock> {
    held: Held<S, C>,
}

/// A place in flight, given back when it is dropped. Other limits of the same limiter have counted
/// the request for good.
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::concurrency(1))?;
/// let permit = limiter.on("user:42").acquire().expect("nobody is in flight");
/// assert!(limiter.on("user:42").acquire().is_err());
/// drop(permit);
/// assert!(limiter.on("user:42").acquire().is_ok());
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[must_use = "a permit that is dropped is given back"]
pub struct Permit<S: Store = MemoryStore, C: Clock = SystemClock> {
    held: Held<S, C>,
}

struct Held<S: Store, C: Clock> {
    limiter: Limiter<S, C>,
    key: KeyParts,
    decision: Decision,
    holding: Option<Holding>,
}

impl<S: Store, C: Clock> Held<S, C> {
    fn settle(&mut self, cost: u64) {
        if let Some(holding) = self.holding.take() {
            self.limiter.shared.give_back(holding, cost, &self.key);
        }
    }
}

impl<S: Store, C: Clock> Drop for Held<S, C> {
    fn drop(&mut self) {
        self.settle(0);
    }
}

impl<S: Store, C: Clock> Reservation<S, C> {
    pub(crate) fn new(
        limiter: Limiter<S, C>,
        key: KeyParts,
        decision: Decision,
        holding: Option<Holding>,
    ) -> Self {
        Self { held: Held { limiter, key, decision, holding } }
    }

    /// What was decided when the units were taken.
    pub fn decision(&self) -> &Decision {
        &self.held.decision
    }

    /// Ends it at the real cost: the rest is given back, what is missing is taken as a debt.
    pub fn settle(mut self, cost: u64) {
        self.held.settle(cost);
    }

    /// Gives everything back, as dropping it does.
    pub fn cancel(self) {
        drop(self);
    }
}

impl<S: Store, C: Clock> Permit<S, C> {
    pub(crate) fn new(
        limiter: Limiter<S, C>,
        key: KeyParts,
        decision: Decision,
        mut holding: Option<Holding>,
    ) -> Self {
        // What other limits have counted of the request stays counted when it is over.
        if let Some(holding) = &mut holding {
            holding.parts.retain(|part| part.limit.limit().is_concurrency());
        }
        Self { held: Held { limiter, key, decision, holding } }
    }

    /// What was decided when the permit was taken.
    pub fn decision(&self) -> &Decision {
        &self.held.decision
    }

    /// Prolongs the lease from now on. Answers whether the permit is still, or again, held.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn renew(&self) -> Result<bool, S::Error> {
        match &self.held.holding {
            Some(holding) => self.held.limiter.shared.renew(holding).await,
            None => Ok(false),
        }
    }
}

impl<S: Store, C: Clock> fmt::Debug for Reservation<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("decision", &self.held.decision).finish()
    }
}

impl<S: Store, C: Clock> fmt::Debug for Permit<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("decision", &self.held.decision).finish()
    }
}
