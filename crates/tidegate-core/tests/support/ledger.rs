//! What was really admitted, and whether a limit's definition allows so much.

use tidegate_core::{AlgorithmName, Align, Compare, LimitSpec, Refill};

use crate::model::{Nanos, div_up, limit_of, windows};

/// Units that were admitted, in the order of their times.
#[derive(Clone, Copy, Debug)]
struct Admission {
    id: usize,
    at: Nanos,
    units: i128,
    /// The start of the window that it opened or fell into, where first requests open windows.
    window: Nanos,
}

/// The admissions of one key.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    spec: LimitSpec,
    cap: i128,
    admissions: Vec<Admission>,
}

impl Ledger {
    pub(crate) fn new(spec: LimitSpec) -> Self {
        let limit = limit_of(&spec);
        let extra = spec.soft.map_or(0, |soft| limit * i128::from(soft.over_bp) / 10_000);
        Self { spec, cap: limit + extra, admissions: Vec::new() }
    }

    /// Writes an admission down; `id` is for taking it back.
    pub(crate) fn admit(&mut self, id: usize, at: u64, units: u64) {
        let at = i128::from(at);
        let window = match self.admissions.last() {
            Some(last) if at < last.window + self.period() => last.window,
            _ => at,
        };
        self.admissions.push(Admission { id, at, units: i128::from(units), window });
    }

    /// A refusal that counts admits nothing, but may open a window.
    pub(crate) fn count(&mut self, at: u64) {
        self.admit(usize::MAX, at, 0);
    }

    /// The admission was called off: it was as if it had never been.
    pub(crate) fn call_off(&mut self, id: usize) {
        self.admissions.retain(|admission| admission.id != id);
    }

    fn period(&self) -> Nanos {
        self.spec.rate.period.as_nanos() as i128
    }

    /// Looks at every stretch of time that ends with the last admission.
    pub(crate) fn is_within_definition(&self) -> Result<(), String> {
        let Some(last) = self.admissions.last() else { return Ok(()) };
        let mut sum = 0;
        for first in self.admissions.iter().rev() {
            sum += first.units;
            if !self.allows(sum, first, last) {
                let spec = self.spec;
                let (from, to) = (first.at, last.at);
                return Err(format!("{spec}: {sum} admitted from {from} to {to}"));
            }
        }
        Ok(())
    }

    /// Whether `sum` units may be admitted from `first` to `last`, both included.
    fn allows(&self, sum: i128, first: &Admission, last: &Admission) -> bool {
        let (units, period) = (i128::from(self.spec.rate.units), self.period());
        let span = last.at - first.at;
        match self.spec.algorithm {
            AlgorithmName::TokenBucket if self.spec.refill != Refill::Greedy => {
                sum <= self.cap + units * div_up(span, period)
            }
            AlgorithmName::TokenBucket | AlgorithmName::LeakyBucket | AlgorithmName::Gcra => {
                sum * period <= self.cap * period + units * span
            }
            AlgorithmName::FixedWindow => {
                self.window(first) != self.window(last) || sum <= self.cap
            }
            AlgorithmName::SlidingWindowLog => span >= period || sum <= self.cap,
            AlgorithmName::SlidingWindowCounter => self.counter_allows(first, last),
            other => panic!("no ledger for {other}"),
        }
    }

    fn window(&self, admission: &Admission) -> Nanos {
        match self.spec.align {
            Align::Epoch => admission.at / self.period(),
            Align::Calendar => windows::month(admission.at, self.period()).0,
            Align::FirstRequest => admission.window,
        }
    }

    /// The estimate at the moment of the last admission, with what came after `first`.
    fn counter_allows(&self, first: &Admission, last: &Admission) -> bool {
        let period = self.period();
        let index = last.at / period;
        let count = |index: Nanos| -> i128 {
            let counted =
                |admission: &&Admission| admission.at >= first.at && admission.at / period == index;
            self.admissions.iter().filter(counted).map(|admission| admission.units).sum()
        };
        let weighted = count(index - 1) * (period - last.at % period);
        match self.spec.compare {
            Compare::Floor => weighted / period + count(index) <= self.cap,
            Compare::Exact => weighted + count(index) * period <= self.cap * period,
        }
    }
}
