//! What the algorithms mean, as plainly as it can be written: slow, exact, and found by searching.
//!
//! A meter says whether so much more fits at a moment. Everything else that a decision tells,
//! when to come back, what remains and when all of it is back, is searched for with that question
//! alone, so that no formula of the engine is repeated here.

use tidegate_core::{AlgorithmName, Decision, LimitSpec, Retry};

pub(crate) mod buckets;
pub(crate) mod concurrency;
pub(crate) mod warm_up;
pub(crate) mod windows;

/// Time and amounts without any danger of overflow.
pub(crate) type Nanos = i128;

/// The parts of a decision that a single limit determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) retry: Retry,
    pub(crate) reset_after: Option<u64>,
    pub(crate) delay: u64,
    pub(crate) soft: bool,
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        Self {
            allowed: decision.allowed,
            limit: decision.limit,
            remaining: decision.remaining,
            retry: decision.retry,
            reset_after: decision.reset_after.map(|span| saturated(span.as_nanos() as i128)),
            delay: saturated(decision.delay.as_nanos() as i128),
            soft: decision.soft,
        }
    }
}

/// What is asked of a key, with the numbers filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Check(u64),
    Peek(u64),
    /// As much of it as there is room for.
    UpTo(u64),
    Force(u64),
    Refund(u64),
    Reset,
}

/// One algorithm by its definition. Times never go back.
pub(crate) trait Meter: Clone {
    /// The key is seen, for the first time or again after it was forgotten if the answer is yes.
    /// Matters only where a key starts with less than everything.
    fn see(&mut self, _now: Nanos) -> bool {
        false
    }
    /// Whether what is used at `now`, and `n` more, stay within `cap`.
    fn fits(&self, now: Nanos, n: i128, cap: i128) -> bool;
    fn take(&mut self, now: Nanos, n: i128);
    fn refund(&mut self, now: Nanos, n: i128);

    fn delay(&self, _now: Nanos) -> Nanos {
        0
    }

    /// Whether everything is back: nothing remains to be replenished.
    fn is_full(&self, now: Nanos, limit: i128) -> bool {
        self.fits(now, limit, limit)
    }
}

/// A meter with the rules that all of them share.
#[derive(Clone)]
pub(crate) struct Model<M> {
    fresh: M,
    meter: M,
    limit: i128,
    soft: Option<Soft>,
    /// The end of the episode above a soft limit, from its start until the key is full again.
    episode: Option<Nanos>,
    counts_rejected: bool,
}

#[derive(Clone, Copy)]
struct Soft {
    extra: i128,
    span: Nanos,
}

impl<M: Meter> Model<M> {
    pub(crate) fn new(spec: &LimitSpec, meter: M) -> Self {
        let limit = limit_of(spec);
        let soft = spec.soft.map(|soft| Soft {
            extra: limit * i128::from(soft.over_bp) / 10_000,
            span: soft.span.as_nanos() as i128,
        });
        let counts_rejected = spec.count_rejected;
        Self { fresh: meter.clone(), meter, limit, soft, episode: None, counts_rejected }
    }

    pub(crate) fn run(&mut self, now: u64, act: Act) -> Answer {
        let now = i128::from(now);
        match act {
            Act::Check(cost) => self.check(now, i128::from(cost)),
            Act::Peek(cost) => self.peek(now, i128::from(cost)),
            Act::UpTo(cost) => {
                let room = self.room(now);
                self.check(now, room.min(i128::from(cost)))
            }
            Act::Force(cost) => self.force(now, i128::from(cost)),
            Act::Refund(n) => {
                if n > 0 {
                    self.meter.refund(now, i128::from(n));
                }
                self.peek(now, 0)
            }
            Act::Reset => {
                self.meter = self.fresh.clone();
                self.episode = None;
                self.peek(now, 0)
            }
        }
    }

    fn check(&mut self, now: Nanos, cost: i128) -> Answer {
        if cost == 0 {
            return self.peek(now, 0);
        }
        self.see(now);
        if self.admits(now, cost) {
            let delay = self.meter.delay(now);
            self.consume(now, cost);
            return self.answer(now, true, Retry::Now, delay);
        }
        if self.counts_rejected {
            // Counted, but no admission: it does not start an episode.
            self.meter.take(now, cost);
        }
        self.answer(now, false, self.retry(now, cost), 0)
    }

    fn peek(&self, now: Nanos, cost: i128) -> Answer {
        let mut seen = self.clone();
        seen.see(now);
        if seen.admits(now, cost) {
            return seen.answer(now, true, Retry::Now, seen.meter.delay(now));
        }
        seen.answer(now, false, seen.retry(now, cost), 0)
    }

    /// A forced cost goes into debt, and is told when the debt will be paid.
    fn force(&mut self, now: Nanos, cost: i128) -> Answer {
        if cost == 0 {
            return self.peek(now, 0);
        }
        self.see(now);
        let delay = self.meter.delay(now);
        self.consume(now, cost);
        self.answer(now, true, self.retry(now, 0), delay)
    }

    fn see(&mut self, now: Nanos) {
        if self.meter.see(now) || self.meter.is_full(now, self.limit) {
            self.episode = None;
        }
    }

    fn consume(&mut self, now: Nanos, cost: i128) {
        self.meter.take(now, cost);
        if let (Some(soft), None) = (self.soft, self.episode)
            && !self.meter.fits(now, 0, self.limit)
        {
            self.episode = Some(now + soft.span);
        }
    }

    fn largest_cap(&self) -> i128 {
        self.limit + self.soft.map_or(0, |soft| soft.extra)
    }

    fn cap(&self, now: Nanos) -> i128 {
        match self.episode {
            Some(end) if now >= end => self.limit,
            _ => self.largest_cap(),
        }
    }

    fn admits(&self, now: Nanos, cost: i128) -> bool {
        let cap = self.cap(now);
        cost == 0 || (cost <= cap && self.meter.fits(now, cost, cap))
    }

    fn room(&self, now: Nanos) -> i128 {
        let mut seen = self.clone();
        seen.see(now);
        seen.largest(now, seen.cap(now))
    }

    /// The largest cost that fits under a capacity.
    fn largest(&self, now: Nanos, cap: i128) -> i128 {
        let refused = least(0, Some(cap + 1), |n| !self.meter.fits(now, n, cap));
        (refused.unwrap_or(cap + 1) - 1).max(0)
    }

    /// The first moment at which the cost is admitted: in the episode, after it, or once full.
    fn retry(&self, now: Nanos, cost: i128) -> Retry {
        if cost > self.largest_cap() {
            return Retry::Never;
        }
        let fits = |d: Nanos, cap: i128| cost <= cap && self.meter.fits(now + d, cost, cap);
        let with_extra = |d| fits(d, self.largest_cap());
        let wait = match self.episode {
            None => least(0, None, with_extra),
            Some(end) => {
                let over = (end - now).max(0);
                let full = self.until_full(now).max(over);
                least(0, Some(over), with_extra)
                    .or_else(|| least(over, Some(full), |d| fits(d, self.limit)))
                    .or_else(|| least(full, None, with_extra))
            }
        };
        match wait.expect("a full key admits whatever its limit can hold") {
            0 => Retry::Now,
            wait => Retry::After(std::time::Duration::from_nanos(saturated(wait))),
        }
    }

    fn until_full(&self, now: Nanos) -> Nanos {
        least(0, None, |d| self.meter.is_full(now + d, self.limit)).expect("every key refills")
    }

    fn answer(&self, now: Nanos, allowed: bool, retry: Retry, delay: Nanos) -> Answer {
        let above = !self.meter.fits(now, 0, self.limit);
        Answer {
            allowed,
            limit: saturated(self.limit),
            remaining: saturated(self.largest(now, self.limit)),
            retry,
            reset_after: Some(saturated(self.until_full(now))),
            delay: saturated(delay),
            soft: self.episode.is_some() && above,
        }
    }
}

/// The largest cost that a limit can ever admit.
pub(crate) fn limit_of(spec: &LimitSpec) -> i128 {
    match (spec.algorithm, spec.queue) {
        // One is served while `size` wait.
        (AlgorithmName::LeakyBucket, Some(queue)) => i128::from(queue.size) + 1,
        _ => i128::from(spec.burst.unwrap_or(spec.rate.units)),
    }
}

/// The least `d` in `from..to` at which a condition holds that stays true once it is: by leaps
/// that double, then by halving.
pub(crate) fn least(from: i128, to: Option<i128>, holds: impl Fn(i128) -> bool) -> Option<i128> {
    let last = to.unwrap_or(i128::MAX >> 20) - 1;
    if from > last {
        return None;
    }
    let (mut low, mut high, mut leap) = (from - 1, from, 1);
    while !holds(high) {
        if high == last {
            return None;
        }
        low = high;
        high = (high + leap).min(last);
        leap *= 2;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

pub(crate) fn saturated(value: i128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Rounded up, for positive divisors.
pub(crate) fn div_up(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0)
}
