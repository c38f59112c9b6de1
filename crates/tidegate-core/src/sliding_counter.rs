//! Sliding window counter: the present window's count, and the previous one's in proportion to
//! how much of it the sliding window still covers.

use crate::algorithm::{self, Algorithm, Ask, Taken, is_within};

/// Two adjoining windows of `length` nanoseconds each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlidingCounter {
    pub(crate) length: u64,
    /// Compare the exact fraction instead of the whole units of the previous window's share.
    pub(crate) exact: bool,
}

/// The window that began at `start`, and the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) start: u64,
    pub(crate) previous: u64,
    pub(crate) current: u64,
}

impl SlidingCounter {
    fn start(&self, now: u64) -> u64 {
        now - now % self.length
    }

    /// How much of the previous window is still covered. A clock behind the start covers all.
    fn left(&self, state: &Counts, ask: &Ask) -> u64 {
        self.length - ask.now().saturating_sub(state.start).min(self.length)
    }

    /// The previous window's share in units, rounded the way the comparison asks.
    fn share(&self, state: &Counts, ask: &Ask) -> u64 {
        let weighted = u128::from(state.previous) * u128::from(self.left(state, ask));
        let length = u128::from(self.length);
        let units = if self.exact { weighted.div_ceil(length) } else { weighted / length };
        // A share of at most all of `previous`, which is a u64.
        units as u64
    }

    /// The largest `left` at which `count` units weigh no more than `room`.
    fn left_when(&self, count: u64, room: u64) -> u64 {
        if count == 0 {
            return self.length;
        }
        let length = u128::from(self.length);
        let left = if self.exact {
            u128::from(room) * length / u128::from(count)
        } else {
            ((u128::from(room) + 1) * length).div_ceil(u128::from(count)) - 1
        };
        left.min(length) as u64
    }

    /// Time from now until `left` of the window before `start` is covered.
    fn until(&self, start: u64, left: u64, ask: &Ask) -> u64 {
        algorithm::until(start.saturating_add(self.length - left), ask.now())
    }
}

impl Algorithm for SlidingCounter {
    type State = Counts;

    fn fresh(&self, ask: &Ask) -> Counts {
        Counts { start: self.start(ask.now()), previous: 0, current: 0 }
    }

    fn roll(&self, state: &mut Counts, ask: &Ask) {
        let start = self.start(ask.now());
        if start <= state.start {
            return;
        }
        let adjoins = start - state.start == self.length;
        *state = Counts { start, previous: if adjoins { state.current } else { 0 }, current: 0 };
    }

    fn fits(&self, state: &Counts, ask: &Ask, n: u64, cap: u64) -> bool {
        is_within(self.used(state, ask), n, cap)
    }

    fn room(&self, state: &Counts, ask: &Ask, cap: u64) -> u64 {
        cap.saturating_sub(self.used(state, ask))
    }

    fn wait(&self, state: &Counts, ask: &Ask, n: u64, cap: u64) -> Option<u64> {
        let next = state.start.saturating_add(self.length);
        let in_this_window = cap
            .checked_sub(n)
            .and_then(|room| room.checked_sub(state.current))
            .map(|room| self.left_when(state.previous, room))
            // With nothing left covered, this window is over.
            .filter(|left| *left > 0);
        Some(match in_this_window {
            Some(left) => self.until(state.start, left, ask),
            None => match cap.checked_sub(n) {
                Some(room) => self.until(next, self.left_when(state.current, room), ask),
                None => u64::MAX,
            },
        })
    }

    fn reset_after(&self, state: &Counts, ask: &Ask) -> Option<u64> {
        if self.used(state, ask) == 0 {
            return Some(0);
        }
        let next = state.start.saturating_add(self.length);
        Some(if state.current > 0 {
            self.until(next, self.left_when(state.current, 0), ask)
        } else {
            self.until(state.start, self.left_when(state.previous, 0), ask)
        })
    }

    fn take(&self, state: &mut Counts, _ask: &Ask, n: u64) {
        state.current = state.current.saturating_add(n);
    }

    fn used(&self, state: &Counts, ask: &Ask) -> u64 {
        self.share(state, ask).saturating_add(state.current)
    }

    fn mark(&self, state: &Counts, _ask: &Ask, _n: u64) -> u128 {
        u128::from(state.start)
    }

    fn refund(&self, state: &mut Counts, _ask: &Ask, n: u64) {
        state.current = state.current.saturating_sub(n);
    }

    fn give_back(&self, state: &mut Counts, _ask: &Ask, taken: &Taken) {
        if taken.mark == u128::from(state.start) {
            state.current = state.current.saturating_sub(taken.cost);
        } else if taken.mark + u128::from(self.length) == u128::from(state.start) {
            state.previous = state.previous.saturating_sub(taken.cost);
        }
    }
}
