//! Token bucket with continuous refill, leaky bucket as a meter and as a queue, and GCRA.
//!
//! They are one algorithm. Each keeps the *theoretical arrival time*: the moment at which
//! everything taken so far will have been paid for. A bucket of `size` units that earns `units`
//! per `period` admits `n` more while that moment, moved on by `n` units, lies at most `size`
//! units ahead of now. The tokens left are how far it is from that horizon; the water in a leaky
//! bucket, and the queue, are how far it is from now.
//!
//! Time is counted in ticks of `1/units` nanoseconds, so that a unit is a whole number of ticks
//! and nothing is ever rounded but the answers.

use crate::algorithm::{Algorithm, Ask, Taken};
use crate::word::Word;

/// A bucket; `units` and `period` have no common divisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Ticks per nanosecond.
    pub(crate) units: u64,
    /// Ticks per unit.
    pub(crate) period: u64,
    /// 2^64 divided by `period`.
    pub(crate) reciprocal: u64,
    /// Units that a full bucket holds.
    pub(crate) size: u64,
    /// Units that are missing when a key is first seen.
    pub(crate) missing: u64,
    /// A shaper holds requests until their turn; at most this long, in nanoseconds, or
    /// `u64::MAX` for as long as it takes.
    pub(crate) queue: Option<u64>,
}

/// The moment of full payment, in ticks; `Narrow` counts them from an origin near now.
#[derive(Clone, Copy)]
pub(crate) struct Narrow<'a>(pub(crate) &'a Bucket);
/// The moment of full payment, in ticks since the epoch.
#[derive(Clone, Copy)]
pub(crate) struct Wide<'a>(pub(crate) &'a Bucket);

/// How long a full key is remembered whose first sight matters: a day.
pub(crate) const FIRST_SIGHT_MEMORY: u64 = 86_400_000_000_000;

/// How far from its origin a [`Narrow`](crate::Narrow) bucket counts, in nanoseconds: four and a
/// half years.
pub const NARROW_HORIZON: u64 = 1 << 57;
/// The most that the ticks of a narrow bucket's full size, and of its horizon, may be.
const NARROW_TICKS: u128 = 1 << 62;

impl Bucket {
    /// Whether ticks fit `u64` up to the horizon: then now, plus a full bucket, plus one more
    /// request of the largest cost stay below 2^64.
    pub(crate) fn is_narrow(&self, largest_cap: u64) -> bool {
        // With an initial level, how long ago a key became full matters, and may be long ago.
        self.missing == 0
            && u128::from(self.units) * u128::from(NARROW_HORIZON) <= NARROW_TICKS
            && u128::from(self.period) * u128::from(largest_cap) <= NARROW_TICKS
    }

    /// With an initial level below full, a full bucket is not yet a forgotten one: it is
    /// remembered for [`FIRST_SIGHT_MEMORY`]. Otherwise everybody who pauses would start from the
    /// initial level again, and whoever comes seldom would never get beyond it.
    #[inline(always)]
    fn memory<W: Word>(&self) -> W {
        if self.missing == 0 {
            W::default()
        } else {
            W::small_product(FIRST_SIGHT_MEMORY, self.units)
        }
    }

    #[inline(always)]
    fn fresh<W: Word>(&self, now: u64) -> W {
        W::small_product(now, self.units).plus(W::small_product(self.missing, self.period))
    }

    #[inline(always)]
    fn roll<W: Word>(&self, paid_at: &mut W, now: u64) {
        let x = W::small_product(now, self.units);
        if *paid_at <= x {
            let forgotten = paid_at.plus(self.memory()) <= x;
            *paid_at = if forgotten { self.fresh(now) } else { x };
        }
    }

    /// What is used, in ticks.
    #[inline(always)]
    pub(crate) fn used<W: Word>(&self, paid_at: W, now: u64) -> W {
        paid_at.minus(W::small_product(now, self.units))
    }

    // What follows speaks of what is used, in ticks, and no more of time.

    #[inline(always)]
    fn is_too_late<W: Word>(&self, used: W) -> bool {
        match self.queue {
            None | Some(u64::MAX) => false,
            Some(max_delay) => used > W::product(max_delay, self.units),
        }
    }

    #[inline(always)]
    pub(crate) fn fits<W: Word>(&self, used: W, n: u64, cap: u64) -> bool {
        used.plus(W::small_product(n, self.period)) <= W::small_product(cap, self.period)
            && !self.is_too_late(used)
    }

    #[inline(always)]
    pub(crate) fn room<W: Word>(&self, used: W, cap: u64) -> u64 {
        if self.is_too_late(used) {
            return 0;
        }
        W::small_product(cap, self.period).minus(used).small_over(self.period, self.reciprocal)
    }

    fn wait<W: Word>(&self, used: W, n: u64, cap: u64) -> u64 {
        let wanted = used.plus(W::small_product(n, self.period));
        let beyond = wanted.minus(W::small_product(cap, self.period));
        let late = match self.queue {
            None | Some(u64::MAX) => W::default(),
            Some(max_delay) => used.minus(W::product(max_delay, self.units)),
        };
        beyond.max(late).over_up(self.units)
    }

    /// The time in which what is used is paid.
    #[inline(always)]
    pub(crate) fn payment<W: Word>(&self, used: W) -> u64 {
        used.over_up(self.units)
    }

    #[inline(always)]
    pub(crate) fn delay<W: Word>(&self, used: W) -> u64 {
        if self.queue.is_some() { self.payment(used) } else { 0 }
    }

    fn refund<W: Word>(&self, paid_at: &mut W, now: u64, ticks: W) {
        *paid_at = paid_at.minus(ticks).max(W::small_product(now, self.units));
    }
}

/// The same arithmetic at both widths; only what a mark means differs.
macro_rules! bucket_algorithm {
    ($name:ty, $word:ty) => {
        impl Algorithm for $name {
            type State = $word;

            #[inline(always)]
            fn fresh(&self, ask: &Ask) -> $word {
                self.0.fresh(ask.now())
            }

            #[inline(always)]
            fn roll(&self, state: &mut $word, ask: &Ask) {
                self.0.roll(state, ask.now());
            }

            #[inline(always)]
            fn fits(&self, state: &$word, ask: &Ask, n: u64, cap: u64) -> bool {
                self.0.fits(self.0.used(*state, ask.now()), n, cap)
            }

            #[inline(always)]
            fn room(&self, state: &$word, ask: &Ask, cap: u64) -> u64 {
                self.0.room(self.0.used(*state, ask.now()), cap)
            }

            fn wait(&self, state: &$word, ask: &Ask, n: u64, cap: u64) -> Option<u64> {
                Some(self.0.wait(self.0.used(*state, ask.now()), n, cap))
            }

            #[inline(always)]
            fn reset_after(&self, state: &$word, ask: &Ask) -> Option<u64> {
                Some(self.0.payment(self.0.used(*state, ask.now())))
            }

            #[inline(always)]
            fn take(&self, state: &mut $word, _ask: &Ask, n: u64) {
                *state = state.plus(Word::product(n, self.0.period));
            }

            fn used(&self, state: &$word, ask: &Ask) -> u64 {
                self.0.used(*state, ask.now()).over_up(self.0.period)
            }

            /// A queue marks the slot; a bucket the moment at which time has paid for the units
            /// if they were alone in it.
            fn mark(&self, state: &$word, ask: &Ask, n: u64) -> u128 {
                match self.0.queue {
                    Some(_) => u128::from(*state),
                    None => u128::product(ask.now(), self.0.units)
                        .saturating_add(u128::product(n, self.0.period)),
                }
            }

            fn refund(&self, state: &mut $word, ask: &Ask, n: u64) {
                self.0.refund(state, ask.now(), Word::product(n, self.0.period));
            }

            /// A queue takes back its last slot and no other: those behind it have been told
            /// when to leave.
            fn give_back(&self, state: &mut $word, ask: &Ask, taken: &Taken) {
                let mark = <$word>::try_from(taken.mark).unwrap_or(<$word>::MAX);
                if self.0.queue.is_some() && mark != *state {
                    return;
                }
                let outstanding = self.0.used(mark, ask.now());
                let ticks = outstanding.min(Word::product(taken.cost, self.0.period));
                self.0.refund(state, ask.now(), ticks);
            }

            #[inline(always)]
            fn delay(&self, state: &$word, ask: &Ask) -> u64 {
                self.0.delay(self.0.used(*state, ask.now()))
            }

            fn forget_after(&self, state: &$word, ask: &Ask) -> Option<u64> {
                let end = state.plus(self.0.memory());
                Some(self.0.payment(self.0.used(end, ask.now())))
            }
        }
    };
}

bucket_algorithm!(Narrow<'_>, u64);
bucket_algorithm!(Wide<'_>, u128);
