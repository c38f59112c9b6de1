//! Warm-up: a steady rate that a key has to earn; after idling it starts slow again.
//!
//! A key that rests grows *cold*. A cold key pays `cold_factor` times the steady interval for a
//! unit, and less and less as it warms, until it runs at the steady rate; it is never rewarded
//! with a burst. A request is delayed by what the requests *before* it cost, so the first one
//! after a rest goes at once. These are the semantics of Guava's `SmoothWarmingUp`.
//!
//! Coldness is measured as the rest that would produce it: it grows by one nanosecond per
//! nanosecond of rest, up to the warm-up period, and a unit takes a fixed amount away. In ticks
//! of `1/(units * (cold_factor + 5))` nanoseconds all of that is whole numbers; only the price of a
//! request is rounded, up, to the nanosecond.

use crate::algorithm::{Algorithm, Ask, Taken};

/// A warm-up; `units` and `interval` are the steady rate without common divisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WarmUp {
    pub(crate) units: u64,
    pub(crate) interval: u64,
    /// The warm-up period in nanoseconds.
    pub(crate) period: u64,
    pub(crate) cold_factor: u64,
    /// The longest delay that is admitted, in nanoseconds.
    pub(crate) max_delay: u64,
}

/// How cold the key is, and when what was taken will have been paid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Warmth {
    /// In ticks.
    pub(crate) cold: u128,
    /// In nanoseconds.
    pub(crate) free_at: u64,
}

/// Squares of coldness must stay below 2^128.
pub(crate) const TICKS_MAX: u128 = 1 << 60;

impl WarmUp {
    fn ticks_per_nano(&self) -> u128 {
        u128::from(self.units) * u128::from(self.cold_factor + 5)
    }

    /// As cold as a key can be.
    pub(crate) fn coldest(&self) -> u128 {
        u128::from(self.period) * self.ticks_per_nano()
    }

    /// Below this the key is warm and pays the steady interval.
    fn warm(&self) -> u128 {
        u128::from(self.period) * u128::from(self.units) * u128::from(self.cold_factor + 1)
    }

    /// What one unit takes away.
    fn per_unit(&self) -> u128 {
        u128::from(self.interval) * 2 * u128::from(self.cold_factor + 1)
    }

    /// What `n` units cost in nanoseconds, and the coldness they leave.
    ///
    /// The steady interval each, and above the warm line an extra that falls in a straight line
    /// with the coldness: the area of a trapezoid, hence the squares.
    fn price(&self, cold: u128, n: u64) -> (u64, u128) {
        let left = cold.saturating_sub(self.per_unit().saturating_mul(u128::from(n)));
        let steady = u128::from(n) * u128::from(self.interval);
        let (above, still_above) =
            (cold.saturating_sub(self.warm()), left.saturating_sub(self.warm()));
        let squares = above * above - still_above * still_above;
        let factor = u128::from(self.cold_factor);
        let units = u128::from(self.units);
        // (steady + (factor-1)*squares / (16*period*units*(factor+1))) / units; rounding the inner
        // fraction up first does not change the outer one.
        let scale = 16 * u128::from(self.period) * units * (factor + 1);
        let extra = ((factor - 1) * squares).div_ceil(scale);
        let nanos = (steady + extra).div_ceil(units);
        (u64::try_from(nanos).unwrap_or(u64::MAX), left)
    }

    /// What is given back for `n` units: never more than was paid for them.
    fn steady_price(&self, n: u64) -> u64 {
        let nanos = u128::from(n) * u128::from(self.interval) / u128::from(self.units);
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    fn delay_now(&self, state: &Warmth, ask: &Ask) -> u64 {
        state.free_at.saturating_sub(ask.now())
    }

    fn is_soon(&self, state: &Warmth, ask: &Ask) -> bool {
        self.delay_now(state, ask) <= self.max_delay
    }
}

impl Algorithm for WarmUp {
    type State = Warmth;

    fn fresh(&self, ask: &Ask) -> Warmth {
        Warmth { cold: self.coldest(), free_at: ask.now() }
    }

    fn roll(&self, state: &mut Warmth, ask: &Ask) {
        let rest = ask.now().saturating_sub(state.free_at);
        if rest > 0 {
            let colder = state.cold.saturating_add(u128::from(rest) * self.ticks_per_nano());
            *state = Warmth { cold: colder.min(self.coldest()), free_at: ask.now() };
        }
    }

    fn fits(&self, state: &Warmth, ask: &Ask, n: u64, cap: u64) -> bool {
        n <= cap && self.is_soon(state, ask)
    }

    fn room(&self, state: &Warmth, ask: &Ask, cap: u64) -> u64 {
        if self.is_soon(state, ask) { cap } else { 0 }
    }

    fn wait(&self, state: &Warmth, ask: &Ask, _n: u64, _cap: u64) -> Option<u64> {
        Some(self.delay_now(state, ask).saturating_sub(self.max_delay))
    }

    /// Until the key is cold again: from then on it is a key that was never seen.
    fn reset_after(&self, state: &Warmth, ask: &Ask) -> Option<u64> {
        let rest = (self.coldest() - state.cold).div_ceil(self.ticks_per_nano());
        let cold_at = state.free_at.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX));
        Some(cold_at.saturating_sub(ask.now()))
    }

    fn take(&self, state: &mut Warmth, _ask: &Ask, n: u64) {
        let (nanos, cold) = self.price(state.cold, n);
        *state = Warmth { cold, free_at: state.free_at.saturating_add(nanos) };
    }

    /// What has been promised and not yet paid, in steady units.
    fn used(&self, state: &Warmth, ask: &Ask) -> u64 {
        let nanos = u128::from(self.delay_now(state, ask)) * u128::from(self.units);
        u64::try_from(nanos.div_ceil(u128::from(self.interval))).unwrap_or(u64::MAX)
    }

    fn mark(&self, state: &Warmth, _ask: &Ask, _n: u64) -> u128 {
        u128::from(state.free_at)
    }

    fn refund(&self, state: &mut Warmth, ask: &Ask, n: u64) {
        let nanos = self.steady_price(n);
        state.free_at = state.free_at.saturating_sub(nanos).max(ask.now());
    }

    /// Only the last taking comes back: those behind another have been told when to go.
    fn give_back(&self, state: &mut Warmth, ask: &Ask, taken: &Taken) {
        if taken.mark == u128::from(state.free_at) {
            self.refund(state, ask, taken.cost);
        }
    }

    fn delay(&self, state: &Warmth, ask: &Ask) -> u64 {
        self.delay_now(state, ask)
    }
}
