//! Concurrency: permits that are held and given back, or that expire with their lease.

use alloc::vec::Vec;

use crate::algorithm::{self, Algorithm, Ask, Taken, is_within};

/// Permits; a holder that is not heard of for `lease` nanoseconds loses its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Concurrency {
    pub(crate) lease: Option<u64>,
}

/// Who holds how many permits until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) id: u128,
    pub(crate) units: u64,
    /// The end of the lease; `u64::MAX` without one.
    pub(crate) until: u64,
}

impl Holder {
    /// A lease that ends with time itself never ends.
    fn is_live(&self, now: u64) -> bool {
        now < self.until || self.until == u64::MAX
    }
}

/// The holders, in no order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) holders: Vec<Holder>,
}

impl Concurrency {
    /// Those whose lease has not ended. The others are dropped by the next taking, not before:
    /// a clock that goes back must still find them.
    fn live<'a>(&self, permits: &'a Permits, ask: &Ask) -> impl Iterator<Item = &'a Holder> {
        let (leased, now) = (self.lease.is_some(), ask.now());
        permits.holders.iter().filter(move |holder| !leased || holder.is_live(now))
    }

    /// What everybody else holds: the same holder asking again renews its permits.
    fn held_by_others(&self, permits: &Permits, ask: &Ask) -> u64 {
        let others = self.live(permits, ask).filter(|holder| holder.id != ask.holder);
        others.fold(0, |sum, holder| sum.saturating_add(holder.units))
    }

    fn until(&self, end: u64, ask: &Ask) -> Option<u64> {
        self.lease.map(|_| algorithm::until(end, ask.now()))
    }
}

impl Algorithm for Concurrency {
    type State = Permits;

    fn fresh(&self, _ask: &Ask) -> Permits {
        Permits::default()
    }

    fn roll(&self, _permits: &mut Permits, _ask: &Ask) {}

    fn fits(&self, permits: &Permits, ask: &Ask, n: u64, cap: u64) -> bool {
        is_within(self.held_by_others(permits, ask), n, cap)
    }

    fn room(&self, permits: &Permits, ask: &Ask, cap: u64) -> u64 {
        cap.saturating_sub(self.used(permits, ask))
    }

    fn grantable(&self, permits: &Permits, ask: &Ask, cap: u64) -> u64 {
        cap.saturating_sub(self.held_by_others(permits, ask))
    }

    /// Leases end in their order: wait for as many as have to go.
    fn wait(&self, permits: &Permits, ask: &Ask, n: u64, cap: u64) -> Option<u64> {
        self.lease?;
        let others = self.held_by_others(permits, ask);
        let mut leaving = others.saturating_add(n).saturating_sub(cap);
        let mut ends: Vec<(u64, u64)> = self
            .live(permits, ask)
            .filter(|holder| holder.id != ask.holder)
            .map(|holder| (holder.until, holder.units))
            .collect();
        ends.sort_unstable();
        for (end, units) in ends {
            leaving = leaving.saturating_sub(units);
            if leaving == 0 {
                return self.until(end, ask);
            }
        }
        None
    }

    fn reset_after(&self, permits: &Permits, ask: &Ask) -> Option<u64> {
        match self.live(permits, ask).map(|holder| holder.until).max() {
            None => Some(0),
            Some(end) => self.until(end, ask),
        }
    }

    fn take(&self, permits: &mut Permits, ask: &Ask, n: u64) {
        if self.lease.is_some() {
            permits.holders.retain(|holder| holder.is_live(ask.now()));
        }
        // Leases end in the order they were given: a clock that went back cuts none short.
        let newest = permits.holders.iter().map(|holder| holder.until).max().unwrap_or(0);
        let until = self.lease.map_or(u64::MAX, |lease| ask.now().saturating_add(lease));
        let until = until.max(newest);
        let id = ask.holder;
        match permits.holders.iter_mut().find(|holder| holder.id == id) {
            Some(holder) => *holder = Holder { id, units: n, until },
            None => permits.holders.push(Holder { id, units: n, until }),
        }
    }

    fn used(&self, permits: &Permits, ask: &Ask) -> u64 {
        self.live(permits, ask).fold(0, |sum, holder| sum.saturating_add(holder.units))
    }

    fn mark(&self, _permits: &Permits, ask: &Ask, _n: u64) -> u128 {
        ask.holder
    }

    /// Releases the holder's permits; how many it asks for does not matter, and asking twice
    /// is as good as asking once.
    fn refund(&self, permits: &mut Permits, ask: &Ask, _n: u64) {
        permits.holders.retain(|holder| holder.id != ask.holder);
    }

    fn give_back(&self, permits: &mut Permits, _ask: &Ask, taken: &Taken) {
        if let Some(holder) = permits.holders.iter_mut().find(|holder| holder.id == taken.mark) {
            holder.units = holder.units.saturating_sub(taken.cost);
        }
        permits.holders.retain(|holder| holder.units > 0);
    }
}
