//! Guava's `SmoothWarmingUp` in exact fractions: permits that are stored while a key rests, and
//! that cost the more the more of them there are.

use tidegate_core::LimitSpec;

use super::{Meter, Nanos, div_up};

/// An exact fraction in lowest terms, its denominator positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio {
    top: i128,
    bottom: i128,
}

impl Ratio {
    pub(crate) fn new(top: i128, bottom: i128) -> Self {
        let divisor = gcd(top.abs(), bottom.abs()) * bottom.signum();
        Self { top: top / divisor, bottom: bottom / divisor }
    }

    fn whole(value: i128) -> Self {
        Self::new(value, 1)
    }

    fn plus(self, other: Self) -> Self {
        let common = gcd(self.bottom, other.bottom);
        let top = times(self.top, other.bottom / common) + times(other.top, self.bottom / common);
        Self::new(top, times(self.bottom / common, other.bottom))
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self { top: -other.top, ..other })
    }

    fn by(self, other: Self) -> Self {
        let (left, right) = (Self::new(self.top, other.bottom), Self::new(other.top, self.bottom));
        Self::new(times(left.top, right.top), times(left.bottom, right.bottom))
    }

    fn over(self, other: Self) -> Self {
        self.by(Self::new(other.bottom, other.top))
    }

    fn min(self, other: Self) -> Self {
        if self.minus(other).top < 0 { self } else { other }
    }

    fn max(self, other: Self) -> Self {
        if self.minus(other).top < 0 { other } else { self }
    }

    fn rounded_up(self) -> i128 {
        div_up(self.top, self.bottom)
    }
}

fn times(a: i128, b: i128) -> i128 {
    a.checked_mul(b).expect("the tests choose numbers whose products fit")
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a.max(1) } else { gcd(b, a % b) }
}

/// The names are Guava's.
#[derive(Clone)]
pub(crate) struct Guava {
    stable_interval: Ratio,
    threshold: Ratio,
    max_permits: Ratio,
    slope: Ratio,
    /// How fast permits are stored while resting.
    stored_per_nano: Ratio,
    max_delay: Option<Nanos>,
    stored: Ratio,
    /// When everything taken so far is paid; `None` before the first taking.
    next_free: Option<Nanos>,
}

impl Guava {
    pub(crate) fn new(spec: &LimitSpec) -> Self {
        let cold = spec.warm_up.expect("a warm-up");
        let warm_up = Ratio::whole(cold.period.as_nanos() as i128);
        let factor = i128::from(cold.cold_factor);
        let stable_interval =
            Ratio::new(spec.rate.period.as_nanos() as i128, i128::from(spec.rate.units));
        let threshold = warm_up.by(Ratio::new(1, 2)).over(stable_interval);
        let sloped = warm_up.by(Ratio::new(2, 1 + factor)).over(stable_interval);
        let max_permits = threshold.plus(sloped);
        let max_delay = spec.queue.and_then(|queue| queue.max_delay);
        Self {
            stable_interval,
            threshold,
            max_permits,
            slope: stable_interval.by(Ratio::whole(factor - 1)).over(sloped),
            stored_per_nano: max_permits.over(warm_up),
            max_delay: max_delay.map(|delay| delay.as_nanos() as i128),
            stored: max_permits,
            next_free: None,
        }
    }

    fn stored(&self, now: Nanos) -> Ratio {
        let rest = 0.max(now - self.next_free.unwrap_or(now));
        let stored = self.stored.plus(self.stored_per_nano.by(Ratio::whole(rest)));
        stored.min(self.max_permits)
    }

    /// The price of the permit that brings the stored ones down to `height` above the threshold.
    fn price_at(&self, height: Ratio) -> Ratio {
        self.stable_interval.plus(height.by(self.slope))
    }

    /// What `n` permits cost: a trapezoid above the threshold, the stable interval below it.
    fn price(&self, stored: Ratio, n: Ratio) -> Ratio {
        let above = stored.minus(self.threshold).max(Ratio::whole(0));
        let sloped = above.min(n);
        let both = self.price_at(above).plus(self.price_at(above.minus(sloped)));
        let trapezoid = sloped.by(both).by(Ratio::new(1, 2));
        trapezoid.plus(n.minus(sloped).by(self.stable_interval))
    }
}

impl Meter for Guava {
    fn fits(&self, now: Nanos, n: i128, cap: i128) -> bool {
        n <= cap && self.max_delay.is_none_or(|most| self.delay(now) <= most)
    }

    fn take(&mut self, now: Nanos, n: i128) {
        let (stored, n) = (self.stored(now), Ratio::whole(n));
        let price = self.price(stored, n).rounded_up();
        self.next_free = Some(now + self.delay(now) + price);
        self.stored = stored.minus(n).max(Ratio::whole(0));
    }

    fn refund(&mut self, _now: Nanos, _n: i128) {
        unreachable!("Guava has no refund; what ours promises has tests of its own");
    }

    fn delay(&self, now: Nanos) -> Nanos {
        0.max(self.next_free.unwrap_or(now) - now)
    }

    /// A key that is cold again is one that was never seen: that is when everything is back.
    fn is_full(&self, now: Nanos, _limit: i128) -> bool {
        self.delay(now) == 0 && self.stored(now) == self.max_permits
    }
}
