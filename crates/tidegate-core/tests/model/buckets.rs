//! Buckets: tokens that flow in steadily or all at once, and the queue that flows out.
//!
//! Amounts are exact fractions: their numerator over the rate's period is kept.

use tidegate_core::{LimitSpec, Refill};

use super::{Meter, Nanos, div_up, limit_of};

/// How long a full key is remembered whose first sight matters: a day.
const MEMORY: Nanos = 86_400_000_000_000;

/// So many units per so many nanoseconds.
#[derive(Clone, Copy)]
struct Flow {
    units: i128,
    period: i128,
}

impl Flow {
    fn of(spec: &LimitSpec) -> Self {
        Self { units: i128::from(spec.rate.units), period: spec.rate.period.as_nanos() as i128 }
    }
}

/// A bucket of tokens that is refilled continuously: token bucket, leaky meter and GCRA.
#[derive(Clone)]
pub(crate) struct Tokens {
    flow: Flow,
    /// Numerators over the period, like all amounts here.
    size: i128,
    initial: i128,
    level: i128,
    /// When the level was last written down; `None` before the key was first seen.
    at: Option<Nanos>,
}

impl Tokens {
    pub(crate) fn new(spec: &LimitSpec) -> Self {
        let flow = Flow::of(spec);
        let size = limit_of(spec);
        let initial = spec.initial.map_or(size, i128::from);
        let [size, initial] = [size, initial].map(|units| units * flow.period);
        Self { flow, size, initial, level: size, at: None }
    }

    fn level(&self, now: Nanos) -> i128 {
        let at = self.at.unwrap_or(now);
        self.size.min(self.level + (now - at) * self.flow.units)
    }

    /// A key that starts with less than a full bucket is remembered for a day once it is full,
    /// or was refunded when it was full.
    fn is_known(&self, now: Nanos) -> bool {
        self.at.is_some_and(|at| {
            let missing = self.size - self.level;
            (now - at - MEMORY) * self.flow.units < missing
        })
    }

    fn write(&mut self, now: Nanos, level: i128) {
        self.level = level;
        self.at = Some(now);
    }
}

impl Meter for Tokens {
    fn see(&mut self, now: Nanos) -> bool {
        let is_new = self.initial < self.size && !self.is_known(now);
        if is_new {
            self.write(now, self.initial);
        }
        is_new
    }

    fn fits(&self, now: Nanos, n: i128, cap: i128) -> bool {
        let used = self.size - self.level(now);
        used + n * self.flow.period <= cap * self.flow.period
    }

    fn take(&mut self, now: Nanos, n: i128) {
        self.write(now, self.level(now) - n * self.flow.period);
    }

    fn refund(&mut self, now: Nanos, n: i128) {
        if self.at.is_none() || (self.initial < self.size && !self.is_known(now)) {
            return;
        }
        self.write(now, self.size.min(self.level(now) + n * self.flow.period));
    }
}

/// A queue that lets units out one by one: a request waits for everything before it.
#[derive(Clone)]
pub(crate) struct Backlog {
    flow: Flow,
    max_delay: Option<Nanos>,
    waiting: i128,
    at: Nanos,
}

impl Backlog {
    pub(crate) fn new(spec: &LimitSpec) -> Self {
        let max_delay = spec.queue.and_then(|queue| queue.max_delay);
        let max_delay = max_delay.map(|delay| delay.as_nanos() as i128);
        Self { flow: Flow::of(spec), max_delay, waiting: 0, at: 0 }
    }

    fn waiting(&self, now: Nanos) -> i128 {
        0.max(self.waiting - (now - self.at) * self.flow.units)
    }
}

impl Meter for Backlog {
    fn fits(&self, now: Nanos, n: i128, cap: i128) -> bool {
        let waiting = self.waiting(now);
        let soon = self.max_delay.is_none_or(|most| waiting <= most * self.flow.units);
        soon && waiting + n * self.flow.period <= cap * self.flow.period
    }

    fn take(&mut self, now: Nanos, n: i128) {
        self.waiting = self.waiting(now) + n * self.flow.period;
        self.at = now;
    }

    fn refund(&mut self, now: Nanos, n: i128) {
        self.waiting = 0.max(self.waiting(now) - n * self.flow.period);
        self.at = now;
    }

    fn delay(&self, now: Nanos) -> Nanos {
        div_up(self.waiting(now), self.flow.units)
    }
}

/// A bucket that is refilled at the end of each period, stepped through period by period.
#[derive(Clone)]
pub(crate) struct Refilled {
    flow: Flow,
    missing_at_first: i128,
    aligned: bool,
    seen: bool,
    used: i128,
    /// When the next units come; meaningful while something is used.
    next: Nanos,
    /// Since when nothing is used; meaningful while nothing is.
    full_since: Nanos,
}

impl Refilled {
    pub(crate) fn new(spec: &LimitSpec) -> Self {
        let size = limit_of(spec);
        let missing_at_first = size - spec.initial.map_or(size, i128::from);
        Self {
            flow: Flow::of(spec),
            missing_at_first,
            aligned: spec.refill == Refill::IntervalAligned,
            seen: false,
            used: 0,
            next: 0,
            full_since: 0,
        }
    }

    /// Every refill that is due by now.
    fn refilled(&self, now: Nanos) -> Self {
        let mut state = self.clone();
        while state.used > 0 && state.next <= now {
            state.used = 0.max(state.used - state.flow.units);
            state.full_since = state.next;
            state.next += state.flow.period;
        }
        state
    }

    /// Units that are used for the first time start a period.
    fn start(&mut self, now: Nanos, used: i128) {
        let since = if self.aligned { now - now % self.flow.period } else { now };
        self.next = since + self.flow.period;
        self.used = used;
    }

    fn is_known(&self, now: Nanos) -> bool {
        self.seen && (self.used > 0 || now < self.full_since + MEMORY)
    }
}

impl Meter for Refilled {
    fn see(&mut self, now: Nanos) -> bool {
        let is_new = self.missing_at_first > 0 && !self.refilled(now).is_known(now);
        if is_new {
            self.start(now, self.missing_at_first);
            self.seen = true;
        }
        is_new
    }

    fn fits(&self, now: Nanos, n: i128, cap: i128) -> bool {
        self.refilled(now).used + n <= cap
    }

    fn take(&mut self, now: Nanos, n: i128) {
        *self = self.refilled(now);
        if self.used == 0 {
            self.start(now, n);
        } else {
            self.used += n;
        }
    }

    fn refund(&mut self, now: Nanos, n: i128) {
        *self = self.refilled(now);
        if self.missing_at_first > 0 && !self.is_known(now) {
            return;
        }
        self.used = 0.max(self.used - n);
        if self.used == 0 {
            self.full_since = now;
        }
    }
}
