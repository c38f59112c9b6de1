//! Windows: fixed ones, the log of a sliding one, and the two counts that come near to it.

use std::collections::BTreeMap;

use tidegate_core::{Align, Compare, LimitSpec};

use super::{Meter, Nanos, limit_of};

fn length_of(spec: &LimitSpec) -> Nanos {
    spec.rate.period.as_nanos() as i128
}

/// Months of three lengths, for a calendar that is easy to compute: 3, 5 and 7 units by turns.
pub(crate) fn month(now: Nanos, unit: Nanos) -> (Nanos, Nanos) {
    let year = now.div_euclid(15 * unit) * 15 * unit;
    let months = [(0, 3), (3, 8), (8, 15)].map(|(from, to)| (year + from * unit, year + to * unit));
    months.into_iter().find(|(_, end)| now < *end).expect("a year has three months")
}

/// A count for each window that there ever was.
#[derive(Clone)]
pub(crate) struct PerWindow {
    length: Nanos,
    align: Align,
    /// By the start of the window.
    counts: BTreeMap<Nanos, i128>,
}

impl PerWindow {
    pub(crate) fn new(spec: &LimitSpec) -> Self {
        Self { length: length_of(spec), align: spec.align, counts: BTreeMap::new() }
    }

    fn start(&self, now: Nanos) -> Nanos {
        match self.align {
            Align::Epoch => now - now % self.length,
            Align::Calendar => month(now, self.length).0,
            // The window that somebody opened and that still runs, else one that opens now.
            Align::FirstRequest => match self.counts.last_key_value() {
                Some((start, _)) if now < start + self.length => *start,
                _ => now,
            },
        }
    }

    fn used(&self, now: Nanos) -> i128 {
        self.counts.get(&self.start(now)).copied().unwrap_or(0)
    }
}

impl Meter for PerWindow {
    fn fits(&self, now: Nanos, n: i128, cap: i128) -> bool {
        self.used(now) + n <= cap
    }

    fn take(&mut self, now: Nanos, n: i128) {
        *self.counts.entry(self.start(now)).or_default() += n;
    }

    fn refund(&mut self, now: Nanos, n: i128) {
        let (start, left) = (self.start(now), 0.max(self.used(now) - n));
        self.counts.insert(start, left);
        // A window in which nothing is counted was opened by nobody.
        self.counts.retain(|_, count| *count > 0);
    }
}

/// Every unit with its time.
#[derive(Clone)]
pub(crate) struct AllTimes {
    length: Nanos,
    /// A debt is remembered up to one more limit, a refusal up to the limit.
    units_max: i128,
    entries: Vec<(Nanos, i128)>,
}

impl AllTimes {
    pub(crate) fn new(spec: &LimitSpec) -> Self {
        let limit = limit_of(spec);
        let extra = spec.soft.map_or(0, |soft| limit * i128::from(soft.over_bp) / 10_000);
        let units_max = (limit + extra) * if spec.count_rejected { 1 } else { 2 };
        Self { length: length_of(spec), units_max, entries: Vec::new() }
    }

    /// What is younger than the window is long.
    fn live(&self, now: Nanos) -> impl DoubleEndedIterator<Item = (Nanos, i128)> {
        let oldest = now - self.length;
        self.entries.iter().copied().filter(move |(at, _)| *at > oldest)
    }

    fn used(&self, now: Nanos) -> i128 {
        self.live(now).map(|(_, units)| units).sum()
    }

    /// Passes over the newest `skipped` units and keeps up to `kept` of those before.
    fn keep(&mut self, now: Nanos, mut skipped: i128, mut kept: i128) {
        let mut entries: Vec<(Nanos, i128)> = Vec::new();
        for (at, units) in self.live(now).rev() {
            let passed = skipped.min(units);
            skipped -= passed;
            let units = kept.min(units - passed);
            kept -= units;
            entries.extend((units > 0).then_some((at, units)));
        }
        entries.reverse();
        self.entries = entries;
    }
}

impl Meter for AllTimes {
    fn fits(&self, now: Nanos, n: i128, cap: i128) -> bool {
        self.used(now) + n <= cap
    }

    fn take(&mut self, now: Nanos, n: i128) {
        self.entries.push((now, n));
        self.keep(now, 0, self.units_max);
    }

    /// The newest units leave.
    fn refund(&mut self, now: Nanos, n: i128) {
        self.keep(now, n, self.units_max);
    }
}

/// The count of this window, and the last one's by the share of it that a sliding window covers.
#[derive(Clone)]
pub(crate) struct TwoCounts {
    length: Nanos,
    exact: bool,
    /// By the index of the window.
    counts: BTreeMap<Nanos, i128>,
}

impl TwoCounts {
    pub(crate) fn new(spec: &LimitSpec) -> Self {
        let exact = spec.compare == Compare::Exact;
        Self { length: length_of(spec), exact, counts: BTreeMap::new() }
    }

    fn count(&self, index: Nanos) -> i128 {
        self.counts.get(&index).copied().unwrap_or(0)
    }
}

impl Meter for TwoCounts {
    fn fits(&self, now: Nanos, n: i128, cap: i128) -> bool {
        let (index, elapsed) = (now / self.length, now % self.length);
        let (previous, current) = (self.count(index - 1), self.count(index));
        let weighted = previous * (self.length - elapsed);
        if self.exact {
            weighted + (current + n) * self.length <= cap * self.length
        } else {
            weighted / self.length + current + n <= cap
        }
    }

    fn take(&mut self, now: Nanos, n: i128) {
        *self.counts.entry(now / self.length).or_default() += n;
    }

    fn refund(&mut self, now: Nanos, n: i128) {
        let index = now / self.length;
        self.counts.insert(index, 0.max(self.count(index) - n));
    }
}
