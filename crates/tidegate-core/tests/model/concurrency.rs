//! Permits in flight: a list of who holds how many until when.

use std::time::Duration;

use tidegate_core::{Lease, LimitSpec, Retry};

use super::{Answer, Nanos, least, saturated};

#[derive(Clone, Copy)]
struct Holder {
    id: u128,
    units: i128,
    until: Option<Nanos>,
}

/// All permits of one key.
#[derive(Clone)]
pub(crate) struct Permits {
    limit: i128,
    lease: Option<Nanos>,
    holders: Vec<Holder>,
}

impl Permits {
    pub(crate) fn new(spec: &LimitSpec) -> Self {
        let lease = match spec.lease {
            None => Some(60_000_000_000),
            Some(Lease::For(lease)) => Some(lease.as_nanos() as i128),
            Some(Lease::Unlimited) => None,
        };
        Self { limit: i128::from(spec.rate.units), lease, holders: Vec::new() }
    }

    fn held(&self, now: Nanos, counts: impl Fn(u128) -> bool) -> i128 {
        let live = self.holders.iter().filter(|holder| holder.until.is_none_or(|end| now < end));
        live.filter(|holder| counts(holder.id)).map(|holder| holder.units).sum()
    }

    /// Asking again renews, so a holder does not stand in its own way.
    fn fits(&self, now: Nanos, id: u128, n: i128) -> bool {
        self.held(now, |other| other != id) + n <= self.limit
    }

    pub(crate) fn acquire(&mut self, now: u64, id: u128, n: u64) -> Answer {
        let (now, n) = (i128::from(now), i128::from(n));
        if n > 0 && self.fits(now, id, n) {
            self.hold(now, id, n);
        }
        self.answer(now, id, n)
    }

    pub(crate) fn force(&mut self, now: u64, id: u128, n: u64) {
        self.hold(i128::from(now), id, i128::from(n));
    }

    pub(crate) fn release(&mut self, id: u128) {
        self.holders.retain(|holder| holder.id != id);
    }

    pub(crate) fn peek(&self, now: u64, id: u128, n: u64) -> Answer {
        self.answer(i128::from(now), id, i128::from(n))
    }

    fn hold(&mut self, now: Nanos, id: u128, units: i128) {
        self.release(id);
        self.holders.push(Holder { id, units, until: self.lease.map(|lease| now + lease) });
    }

    fn answer(&self, now: Nanos, id: u128, n: i128) -> Answer {
        let allowed = n == 0 || self.fits(now, id, n);
        let everything_back = |d| self.held(now + d, |_| true) == 0;
        Answer {
            allowed,
            limit: saturated(self.limit),
            // For somebody who holds nothing yet.
            remaining: saturated(0.max(self.limit - self.held(now, |_| true))),
            retry: if allowed { Retry::Now } else { self.retry(now, id, n) },
            // Without a lease nobody knows, unless everything is back already.
            reset_after: match (everything_back(0), self.lease) {
                (true, _) => Some(0),
                (false, None) => None,
                (false, Some(_)) => least(0, None, everything_back).map(saturated),
            },
            delay: 0,
            soft: false,
        }
    }

    fn retry(&self, now: Nanos, id: u128, n: i128) -> Retry {
        if n > self.limit {
            return Retry::Never;
        }
        if self.lease.is_none() {
            return Retry::Unknown;
        }
        let wait = least(1, None, |d| self.fits(now + d, id, n)).expect("every lease ends");
        Retry::After(Duration::from_nanos(saturated(wait)))
    }
}
