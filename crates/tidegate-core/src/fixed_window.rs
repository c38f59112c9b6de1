//! Fixed window: a count that starts again at the end of each window.

use crate::algorithm::{Algorithm, Ask, Taken, is_within, until};

/// Where windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Windows {
    /// At multiples of the length since the epoch.
    Epoch,
    /// At a key's first request.
    FirstRequest,
    /// Where the caller's calendar says.
    Calendar,
}

/// A window of `length` nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedWindow {
    pub(crate) length: u64,
    pub(crate) windows: Windows,
}

/// What the window that ends at `end` has counted.
///
/// The end alone tells windows apart, and a clock that goes back is still before it: so it
/// counts in the newest window and cannot reopen an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) end: u64,
    pub(crate) used: u64,
}

impl FixedWindow {
    pub(crate) fn end(&self, ask: &Ask) -> u64 {
        let now = ask.now();
        match (self.windows, ask.at.window) {
            (Windows::Calendar, Some(window)) if now < window.end.as_nanos() => {
                window.end.as_nanos()
            }
            (Windows::FirstRequest, _) => now.saturating_add(self.length),
            // A calendar limit asked without its window falls back on even windows.
            _ => (now - now % self.length).saturating_add(self.length),
        }
    }

    fn until_end(&self, state: &Count, ask: &Ask) -> u64 {
        until(state.end, ask.now())
    }
}

impl Algorithm for FixedWindow {
    type State = Count;

    fn fresh(&self, ask: &Ask) -> Count {
        Count { end: self.end(ask), used: 0 }
    }

    fn roll(&self, state: &mut Count, ask: &Ask) {
        // A window that ends with time itself is never over.
        if ask.now() >= state.end && state.end != u64::MAX {
            *state = self.fresh(ask);
        } else if state.used == 0 {
            // A count that was refunded to nothing is no state, except that it remembers a later
            // window than a clock that went back would open.
            state.end = self.end(ask).max(match self.windows {
                Windows::FirstRequest => 0,
                Windows::Epoch | Windows::Calendar => state.end,
            });
        }
    }

    fn fits(&self, state: &Count, _ask: &Ask, n: u64, cap: u64) -> bool {
        is_within(state.used, n, cap)
    }

    fn room(&self, state: &Count, _ask: &Ask, cap: u64) -> u64 {
        cap.saturating_sub(state.used)
    }

    fn wait(&self, state: &Count, ask: &Ask, _n: u64, _cap: u64) -> Option<u64> {
        Some(self.until_end(state, ask))
    }

    fn reset_after(&self, state: &Count, ask: &Ask) -> Option<u64> {
        Some(if state.used == 0 { 0 } else { self.until_end(state, ask) })
    }

    fn take(&self, state: &mut Count, _ask: &Ask, n: u64) {
        state.used = state.used.saturating_add(n);
    }

    fn used(&self, state: &Count, _ask: &Ask) -> u64 {
        state.used
    }

    fn mark(&self, state: &Count, _ask: &Ask, _n: u64) -> u128 {
        u128::from(state.end)
    }

    fn refund(&self, state: &mut Count, _ask: &Ask, n: u64) {
        state.used = state.used.saturating_sub(n);
    }

    fn give_back(&self, state: &mut Count, ask: &Ask, taken: &Taken) {
        if taken.mark == u128::from(state.end) {
            self.refund(state, ask, taken.cost);
        }
    }
}
