//! What a front end that sees requests begin and end is told.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{Decision, Timestamp};
use tidegate_rules::{Origin, Place};
use tidegate_store::{Answer, Call, Holding, OnError, Op, Outcome, Store};

use crate::clock::Clock;
use crate::held::{GiveBack, Held, Part, kept};
use crate::key::Key;
use crate::limiter::{Decisions, Limiter, Shared};
use crate::request::Request;
use crate::turn::{Room, Turn};
use crate::verdict::Verdict;

/// What of a request's takings may come back when it is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// What has to: permits, and the places of those who are held or may have others behind them.
    #[default]
    Needed,
    /// Everything, so that it can be settled at another cost, or given back.
    All,
}

/// The answer to a request that somebody sees through to its end.
///
/// ```
/// use tidegate::{Keep, Limit, Limiter};
///
/// # async fn serve() -> Result<(), tidegate::BuildError> {
/// let limiter = Limiter::new(Limit::per_second(5))?;
/// let admission = limiter.on("user:42").admit(Keep::All).await;
/// if !admission.verdict.allowed {
///     return Ok(()); // tell the client
/// }
/// let held = match admission.turn {
///     Some(turn) => Some(turn.await), // a limit that shapes says when
///     None => admission.held,
/// };
/// // Do what the request is about; then, if it should not count after all:
/// if let Some(mut held) = held {
///     held.refund();
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Admission {
    /// What was decided.
    pub verdict: Verdict,
    /// What was taken and may come back, unless it is in `turn`.
    pub held: Option<Held>,
    /// What to wait for before the request goes on.
    pub turn: Option<Turn>,
}

impl Admission {
    /// One that nothing is held for.
    pub fn new(verdict: Verdict) -> Self {
        Self { verdict, held: None, turn: None }
    }

    /// One whose request holds something; it waits if a limit says so, from the moment it was
    /// `decided`.
    pub(crate) fn holding<C: Clock>(
        verdict: Verdict,
        mut held: Held,
        room: &Arc<Room>,
        clock: &C,
        decided: Timestamp,
    ) -> Self {
        let is_due = held.is_due();
        if is_due && !room.is_awaited(held.shaped()) {
            return Self { verdict, held: Some(held), turn: None };
        }
        // One that may go now and finds others waiting: they should have gone, and go first.
        let slots = held.take(|part| if is_due { part.is_shaped } else { !part.delay.is_zero() });
        let slots = slots.into_iter().map(|part| (decided + part.delay, part)).collect();
        match Turn::new(Arc::clone(room), clock.clone(), slots, held) {
            Ok(turn) => Self { verdict, held: None, turn: Some(turn) },
            // Nobody has told it to wait.
            Err(held) if is_due => Self { verdict, held: Some(held), turn: None },
            Err(mut held) => {
                held.refund();
                Self::new(verdict.turned_away())
            }
        }
    }

    /// Waits for the turn, if there is one.
    pub async fn when_due(self) -> (Verdict, Option<Held>) {
        match self.turn {
            Some(turn) => (self.verdict, Some(turn.await)),
            None => (self.verdict, self.held),
        }
    }
}

impl<S: Store + 'static, C: Clock, K: Key + ?Sized> Request<'_, S, C, K> {
    /// Checks a request that somebody sees through to its end: what it takes may come back, and where
    /// a limit shapes it has to wait for its turn.
    ///
    /// If the store could not answer, and was built to say so, the limits answer as
    /// [`on_store_error`](crate::LimiterBuilder::on_store_error) says, `Local` being yes.
    pub async fn admit(self, keep: Keep) -> Admission {
        let shared = &self.limiter.shared;
        let parts = self.parts();
        let (now, holder) = (shared.clock.now(), shared.holders.next());
        let policy = shared.policy.get();
        let slices = parts.slices();
        let items = policy.items(&slices, now);
        let call = Call { op: Op::Check, items: &items, cost: self.cost, now, holder };
        let mut answers: SmallVec<[Answer; 4]> = smallvec![Answer::default(); items.len()];
        let outcome = match shared.store.apply(&call, &mut answers).await {
            Ok(outcome) => outcome,
            Err(_) => answer_without_store(&call, &mut answers),
        };
        let overall = shared.conclude(&call, outcome, &answers);
        let each = answers.iter().map(|answer| answer.decision).collect();
        let decisions = Decisions { overall, granted: outcome.granted, each };
        let verdict = Verdict::of_limits(Some(&decisions), now, Arc::clone(&policy.armed));
        if !outcome.allowed {
            return Admission::new(verdict);
        }
        let keep = kept(keep, &items, &answers, &shared.room);
        let taken = items.iter().zip(&policy.handles).zip(&answers);
        let parts = taken
            .filter_map(|((item, handle), answer)| Part::of(item, handle, answer, self.cost, keep));
        let parts: Vec<Part> = parts.collect();
        if parts.is_empty() {
            return Admission::new(verdict);
        }
        let giver = Arc::clone(shared) as Arc<dyn GiveBack>;
        // Who was waited for has said how long from when it said so.
        let decided = if shared.store.waits() { shared.clock.now() } else { now };
        let held = Held::new(giver, holder, parts);
        Admission::holding(verdict, held, &shared.room, &shared.clock, decided)
    }
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// The verdict of a request that no limit is asked about: `is_refused` because it lacks what it
    /// would be counted by, or let through.
    pub fn unasked(&self, is_refused: bool) -> Verdict {
        let (now, armed) = (self.now(), Arc::clone(&self.shared.policy.get().armed));
        match is_refused {
            true => Verdict::denied(NOWHERE, now, armed),
            false => Verdict::of_limits(None, now, armed),
        }
    }

    /// How many requests wait for their [turn](Turn) now.
    pub fn held(&self) -> usize {
        self.shared.room.len()
    }
}

impl<S: Store, C: Clock> GiveBack for Shared<S, C> {
    fn give_back(&self, holding: Holding, cost: u64) {
        let keys: SmallVec<[Box<[u8]>; 1]> =
            holding.parts.iter().map(|part| part.key.clone()).collect();
        self.store.settle_soon(holding, cost, self.clock.now());
        keys.iter().for_each(|key| self.waiting.wake(key, false));
    }

    fn room(&self) -> &Arc<Room> {
        &self.room
    }
}

/// Where a limit of a program was written: in no file.
const NOWHERE: Origin = Origin { file: u32::MAX, place: Place { line: 0, column: 0 } };

fn answer_without_store(call: &Call<'_>, answers: &mut [Answer]) -> Outcome {
    let mut allowed = true;
    for (item, answer) in call.items.iter().zip(answers) {
        let admits = item.on_error != OnError::Deny;
        allowed &= admits;
        let decision = Decision::without_state(admits, item.limit.limit().limit());
        *answer = Answer { decision, ..Answer::default() };
    }
    Outcome { allowed, granted: if allowed { call.cost } else { 0 } }
}
