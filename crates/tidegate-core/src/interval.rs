//! Token bucket that is refilled at intervals: so many units at once, at the end of each period.

use crate::algorithm::{Algorithm, Ask, Taken, is_within, until};
use crate::bucket::FIRST_SIGHT_MEMORY;

/// A bucket that gets `units` back at the end of each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) units: u64,
    pub(crate) period: u64,
    pub(crate) size: u64,
    /// Units that are missing when a key is first seen.
    pub(crate) missing: u64,
    /// Periods start at multiples of the period since the epoch, not at a key's first use.
    pub(crate) aligned: bool,
}

/// What is used, and the start of the running period.
///
/// While nothing is used, `since` stands still at the moment the bucket became full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refills {
    pub(crate) used: u64,
    pub(crate) since: u64,
}

impl Interval {
    fn anchor(&self, now: u64) -> u64 {
        if self.aligned { now - now % self.period } else { now }
    }

    fn periods_until_full(&self, used: u64) -> u64 {
        used.div_ceil(self.units)
    }

    fn after_periods(&self, state: &Refills, count: u64) -> u64 {
        state.since.saturating_add(count.saturating_mul(self.period))
    }

    /// How long a full bucket is remembered; see `Bucket::memory`.
    fn memory(&self) -> u64 {
        if self.missing == 0 { 0 } else { FIRST_SIGHT_MEMORY }
    }

    /// The end of the given number of periods, as a time to wait.
    fn until(&self, state: &Refills, ask: &Ask, periods: u64) -> u64 {
        until(self.after_periods(state, periods), ask.now())
    }
}

impl Algorithm for Interval {
    type State = Refills;

    fn fresh(&self, ask: &Ask) -> Refills {
        Refills { used: self.missing, since: self.anchor(ask.now()) }
    }

    fn roll(&self, state: &mut Refills, ask: &Ask) {
        let elapsed = ask.now().saturating_sub(state.since) / self.period;
        let needed = self.periods_until_full(state.used);
        if elapsed < needed {
            state.used -= elapsed * self.units;
            state.since += elapsed * self.period;
            return;
        }
        *state = Refills { used: 0, since: self.after_periods(state, needed) };
        if ask.now().saturating_sub(state.since) >= self.memory() {
            let since = state.since;
            *state = self.fresh(ask);
            // A clock behind the last refill must not open a period that already ended.
            state.since = state.since.max(since);
        }
    }

    fn fits(&self, state: &Refills, _ask: &Ask, n: u64, cap: u64) -> bool {
        is_within(state.used, n, cap)
    }

    fn room(&self, state: &Refills, _ask: &Ask, cap: u64) -> u64 {
        cap.saturating_sub(state.used)
    }

    fn wait(&self, state: &Refills, ask: &Ask, n: u64, cap: u64) -> Option<u64> {
        let beyond = state.used.saturating_add(n).saturating_sub(cap);
        Some(self.until(state, ask, beyond.div_ceil(self.units)))
    }

    fn reset_after(&self, state: &Refills, ask: &Ask) -> Option<u64> {
        if state.used == 0 {
            return Some(0);
        }
        Some(self.until(state, ask, self.periods_until_full(state.used)))
    }

    fn take(&self, state: &mut Refills, ask: &Ask, n: u64) {
        if state.used == 0 {
            state.since = self.anchor(ask.now().max(state.since));
        }
        state.used = state.used.saturating_add(n);
    }

    fn used(&self, state: &Refills, _ask: &Ask) -> u64 {
        state.used
    }

    /// The units taken, and above them the moment their period began.
    fn mark(&self, state: &Refills, _ask: &Ask, n: u64) -> u128 {
        u128::from(state.since) << 64 | u128::from(n)
    }

    fn refund(&self, state: &mut Refills, ask: &Ask, n: u64) {
        state.used = state.used.saturating_sub(n);
        if state.used == 0 {
            state.since = state.since.max(ask.now());
        }
    }

    fn give_back(&self, state: &mut Refills, ask: &Ask, taken: &Taken) {
        let (since, units) = ((taken.mark >> 64) as u64, taken.mark as u64);
        let refills = state.since.saturating_sub(since) / self.period;
        let outstanding = units.saturating_sub(refills.saturating_mul(self.units));
        self.refund(state, ask, outstanding.min(taken.cost));
    }

    fn forget_after(&self, state: &Refills, ask: &Ask) -> Option<u64> {
        let full_at = self.after_periods(state, self.periods_until_full(state.used));
        let end = full_at.saturating_add(self.memory());
        Some(if state.used == 0 { end.saturating_sub(ask.now()) } else { until(end, ask.now()) })
    }
}
