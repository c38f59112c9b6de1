//! Sliding window log: every unit with the time it was taken; exact in any window.

use alloc::collections::VecDeque;

use crate::algorithm::{Algorithm, Ask, Taken, is_within, until};

/// A window of `length` nanoseconds that looks back from now: exactly `length` old is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlidingLog {
    pub(crate) length: u64,
    /// How many of the newest units are kept; what older ones would refuse, these refuse longer.
    pub(crate) units_max: u64,
}

/// Times at which units were taken, oldest first, each with the running total up to it.
///
/// Totals make the sum over any stretch a subtraction and the search for a unit a bisection.
/// They wrap around; what is subtracted never spans more than the units that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    pub(crate) entries: VecDeque<(u64, u64)>,
    /// The running total before the first entry.
    pub(crate) before: u64,
}

impl Log {
    fn newest(&self) -> u64 {
        self.entries.back().map_or(0, |(at, _)| *at)
    }

    fn total_before(&self, position: usize) -> u64 {
        match position.checked_sub(1) {
            None => self.before,
            Some(previous) => self.entries[previous].1,
        }
    }

    /// Units in the entries from `position` on.
    fn units_from(&self, position: usize) -> u64 {
        let total = self.entries.back().map_or(self.before, |(_, total)| *total);
        total.wrapping_sub(self.total_before(position))
    }

    fn drop_before(&mut self, position: usize) {
        self.before = self.total_before(position);
        self.entries.drain(..position);
    }

    /// Takes up to `n` units out of one entry and says how many.
    fn lower(&mut self, position: usize, n: u64) -> u64 {
        let units = self.entries[position].1.wrapping_sub(self.total_before(position));
        let lowered = n.min(units);
        for (_, total) in self.entries.range_mut(position..) {
            *total = total.wrapping_sub(lowered);
        }
        if lowered == units {
            self.entries.remove(position);
        }
        lowered
    }
}

impl SlidingLog {
    /// The first entry that is still in the window.
    ///
    /// A clock that went back sees the window that the newest entry saw.
    fn first_live(&self, log: &Log, ask: &Ask) -> usize {
        let now = ask.now().max(log.newest());
        log.entries.partition_point(|(at, _)| now - at >= self.length)
    }

    fn until_gone(&self, at: u64, ask: &Ask) -> u64 {
        until(at.saturating_add(self.length), ask.now())
    }

    /// Forgets all but the newest `units_max` units, which bounds a log that records refusals.
    fn trim(&self, log: &mut Log) {
        let surplus = log.units_from(0).saturating_sub(self.units_max);
        let before = log.before;
        let whole = log.entries.partition_point(|(_, total)| total.wrapping_sub(before) <= surplus);
        log.drop_before(whole);
        log.before = before.wrapping_add(surplus);
    }
}

impl Algorithm for SlidingLog {
    type State = Log;

    fn fresh(&self, _ask: &Ask) -> Log {
        Log::default()
    }

    /// Nothing moves: entries that left the window are passed over, and dropped by the next
    /// taking. Dropping them earlier would let a clock that goes back forget them.
    fn roll(&self, _log: &mut Log, _ask: &Ask) {}

    fn fits(&self, log: &Log, ask: &Ask, n: u64, cap: u64) -> bool {
        is_within(self.used(log, ask), n, cap)
    }

    fn room(&self, log: &Log, ask: &Ask, cap: u64) -> u64 {
        cap.saturating_sub(self.used(log, ask))
    }

    fn wait(&self, log: &Log, ask: &Ask, n: u64, cap: u64) -> Option<u64> {
        let first = self.first_live(log, ask);
        let before = log.total_before(first);
        let leaving = log.units_from(first).saturating_add(n).saturating_sub(cap);
        // The entry that holds the last unit that has to leave. Totals before `first` lie behind
        // `before` and would wrap, hence the explicit index.
        let (mut low, mut high) = (first, log.entries.len().saturating_sub(1));
        while low < high {
            let middle = low + (high - low) / 2;
            if log.entries[middle].1.wrapping_sub(before) >= leaving {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let at = log.entries.get(low).map_or(0, |(at, _)| *at);
        Some(self.until_gone(at, ask))
    }

    fn reset_after(&self, log: &Log, ask: &Ask) -> Option<u64> {
        let unused = self.used(log, ask) == 0;
        Some(if unused { 0 } else { self.until_gone(log.newest(), ask) })
    }

    fn take(&self, log: &mut Log, ask: &Ask, n: u64) {
        log.drop_before(self.first_live(log, ask));
        // A clock that went back writes at the newest time, so the log stays in order.
        let now = ask.now().max(log.newest());
        let total = log.units_from(0).wrapping_add(log.before).wrapping_add(n.min(self.units_max));
        match log.entries.back_mut() {
            Some((at, units)) if *at == now => *units = total,
            _ => log.entries.push_back((now, total)),
        }
        self.trim(log);
    }

    fn used(&self, log: &Log, ask: &Ask) -> u64 {
        log.units_from(self.first_live(log, ask))
    }

    fn mark(&self, log: &Log, _ask: &Ask, _n: u64) -> u128 {
        u128::from(log.newest())
    }

    fn refund(&self, log: &mut Log, ask: &Ask, n: u64) {
        log.drop_before(self.first_live(log, ask));
        let mut left = n;
        while left > 0 && !log.entries.is_empty() {
            left -= log.lower(log.entries.len() - 1, left);
        }
    }

    fn give_back(&self, log: &mut Log, _ask: &Ask, taken: &Taken) {
        let found = log.entries.binary_search_by(|(at, _)| u128::from(*at).cmp(&taken.mark));
        if let Ok(position) = found {
            log.lower(position, taken.cost);
        }
    }
}
