//! The hot path: buckets whose whole state is one `u64`.

use core::time::Duration;

use crate::algorithm::{Action, Algorithm, Ask, Engine, Taken};
use crate::bucket;
use crate::decision::{Admissions, Decision};
use crate::limit::{Kind, Limit};
use crate::state::{Body, State};
use crate::time::Timestamp;

/// A bucket that keeps one `u64` per key: ticks since an *origin* that the caller chooses.
///
/// The arithmetic is that of [`Limit`], at half the width. Every call takes the time in
/// nanoseconds since the same origin, at most
/// [`NARROW_HORIZON`](crate::NARROW_HORIZON); when time goes beyond, move the
/// origin with [`rebase`](Self::rebase). Answers equal those of the limit's own methods.
///
/// ```
/// use tidegate_core::{Action, Limit, Rate};
///
/// let limit = Limit::gcra(Rate::per_second(10)).burst(5).build()?;
/// let bucket = limit.as_narrow().expect("10 per second fits 64 bits");
/// let (decision, state) = bucket.act(None, 1_000, 5, Action::Take);
/// assert_eq!((decision.allowed, decision.remaining), (true, 0));
/// assert!(!bucket.fits(Some(state), 1_000, 1));
/// # Ok::<(), tidegate_core::LimitError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Narrow<'a> {
    limit: &'a Limit,
    bucket: bucket::Narrow<'a>,
}

/// What is used of a narrow bucket at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Level {
    used: u64,
    /// The state, rolled to the moment.
    rolled: u64,
}

impl Limit {
    /// This limit as a narrow bucket, if it is one.
    #[inline(always)]
    pub fn as_narrow(&self) -> Option<Narrow<'_>> {
        match &self.kind {
            Kind::Bucket(bucket) if self.narrow => {
                Some(Narrow { limit: self, bucket: bucket::Narrow(bucket) })
            }
            _ => None,
        }
    }
}

impl<'a> Narrow<'a> {
    #[inline(always)]
    fn engine(&self) -> Engine<'_, bucket::Narrow<'a>> {
        Engine { frame: &self.limit.frame, algorithm: &self.bucket }
    }

    #[inline(always)]
    fn rolled(&self, state: Option<u64>, ask: &Ask) -> u64 {
        match state {
            None => self.bucket.fresh(ask),
            Some(mut state) => {
                self.bucket.roll(&mut state, ask);
                state
            }
        }
    }

    /// Whether a cost would be admitted.
    #[inline(always)]
    pub fn fits(&self, state: Option<u64>, now: u64, cost: u64) -> bool {
        let ask = at(now);
        self.engine().fits(&self.rolled(state, &ask), 0, &ask, cost)
    }

    /// The largest cost that would be admitted.
    pub fn room(&self, state: Option<u64>, now: u64) -> u64 {
        let ask = at(now);
        self.engine().room(&self.rolled(state, &ask), 0, &ask)
    }

    /// Looks and answers.
    #[inline(always)]
    pub fn peek(&self, state: Option<u64>, now: u64, cost: u64) -> Decision {
        let ask = at(now);
        self.engine().look(&self.rolled(state, &ask), 0, &ask, cost)
    }

    /// Consumes, with the new state.
    #[inline(always)]
    pub fn act(&self, state: Option<u64>, now: u64, cost: u64, action: Action) -> (Decision, u64) {
        let ask = at(now);
        let mut state = self.rolled(state, &ask);
        let decision = self.engine().act(&mut state, &mut 0, &ask, cost, action);
        (decision, state)
    }

    /// Consumes a cost that is not zero if it fits, and answers.
    #[inline(always)]
    pub fn check(&self, state: &mut u64, now: u64, cost: u64) -> Decision {
        let ask = at(now);
        let mut rolled = self.rolled(Some(*state), &ask);
        let engine = self.engine();
        if engine.fits(&rolled, 0, &ask, cost) {
            let decision = engine.act(&mut rolled, &mut 0, &ask, cost, Action::Take);
            *state = rolled;
            return decision;
        }
        engine.look(&rolled, 0, &ask, cost)
    }

    /// What is used of the bucket at a moment.
    #[inline(always)]
    pub fn level(&self, state: u64, now: u64) -> Level {
        let bucket = self.bucket.0;
        let mut rolled = state;
        self.bucket.roll(&mut rolled, &at(now));
        Level { used: bucket.used(rolled, now), rolled }
    }

    /// Whether a cost would be admitted at a level.
    #[inline(always)]
    pub fn level_fits(&self, level: Level, cost: u64) -> bool {
        let bucket = self.bucket.0;
        cost <= bucket.size && bucket.fits(level.used, cost, bucket.size)
    }

    /// The state to keep after a cost that fits is taken from a level.
    #[inline(always)]
    pub fn level_after(&self, level: Level, cost: u64) -> u64 {
        level.rolled + cost.wrapping_mul(self.bucket.0.period)
    }

    /// Adds the answer to a cost that was taken from a level to those of other limits.
    #[inline(always)]
    pub fn answer_to(&self, level: Level, cost: u64, rule: u32, others: &mut Admissions) {
        let bucket = self.bucket.0;
        let used = level.used + cost.wrapping_mul(bucket.period);
        let remaining = bucket.room(used, bucket.size);
        let (reset, delay) = (bucket.payment(used), bucket.delay(level.used));
        others.add(rule, bucket.size, remaining, reset, delay);
    }

    /// Whether the state equals no state by now.
    #[inline(always)]
    pub fn is_spent(&self, state: u64, now: u64) -> bool {
        self.bucket.forget_after(&state, &at(now)) == Some(0)
    }

    /// The least time until the state equals no state.
    pub fn forget_after(&self, state: u64, now: u64) -> Duration {
        Duration::from_nanos(self.bucket.forget_after(&state, &at(now)).unwrap_or(u64::MAX))
    }

    /// The state of a key when it is first seen.
    pub fn fresh(&self, now: u64) -> u64 {
        self.bucket.fresh(&at(now))
    }

    /// The same state as the limit's own, counted from the Unix epoch.
    pub fn widen(&self, state: u64, origin: Timestamp) -> State {
        let ticks = u128::from(self.bucket.0.units) * u128::from(origin.as_nanos());
        State { body: Body::Bucket(ticks.saturating_add(u128::from(state))), episode: 0 }
    }

    /// The limit's own state counted from an origin; at most `u64::MAX`, which is a debt of years.
    /// A state before the origin is spent.
    pub fn narrow(&self, state: &State, origin: Timestamp) -> u64 {
        let Body::Bucket(paid_at) = state.body else { return 0 };
        let ticks = u128::from(self.bucket.0.units) * u128::from(origin.as_nanos());
        u64::try_from(paid_at.saturating_sub(ticks)).unwrap_or(u64::MAX)
    }

    /// What to keep in order to give a taking back; `state` is the one after it.
    #[inline(always)]
    pub fn taken(&self, state: u64, origin: Timestamp, now: Timestamp, cost: u64) -> Taken {
        let ticks = |nanos: u64| u128::from(self.bucket.0.units) * u128::from(nanos);
        let mark = match self.bucket.0.queue {
            Some(_) => ticks(origin.as_nanos()) + u128::from(state),
            None => ticks(now.as_nanos()) + u128::from(cost) * u128::from(self.bucket.0.period),
        };
        Taken { mark, cost }
    }

    /// The same state counted from another origin, at a moment after both.
    ///
    /// A bucket that cannot be told from an origin so far back, which takes a clock that is wrong
    /// by a decade, comes out as one that is empty now.
    pub fn rebase(&self, state: u64, from: Timestamp, to: Timestamp, now: Timestamp) -> u64 {
        let (from, to) = (from.as_nanos(), to.as_nanos());
        let units = u128::from(self.bucket.0.units);
        let moved =
            (u128::from(state) + units * u128::from(from)).saturating_sub(units * u128::from(to));
        u64::try_from(moved).unwrap_or_else(|_| {
            let ask = at(now.as_nanos().saturating_sub(to));
            let mut empty = self.fresh(ask.now());
            self.bucket.take(&mut empty, &ask, self.bucket.0.size);
            empty
        })
    }
}

#[inline(always)]
fn at(now: u64) -> Ask {
    Ask::at(Timestamp::from_nanos(now))
}
