//! Changing a limit while keeping what its keys have used.

use crate::algorithm::{Action, Ask, Episode};
use crate::concurrency::Concurrency;
use crate::limit::{Kind, Limit};
use crate::state::{Body, State};

/// What a key keeps when its limit changes.
///
/// With 60 of 100 used, so 40 left, and a new limit of 200 or of 20, there is left:
///
/// | | of 200 | of 20 |
/// | --- | --- | --- |
/// | `Used` | 140 | 0 |
/// | `AsIs` | 40 | 20 |
/// | `Proportional` | 80 | 8 |
/// | `Additive` | 140 | 20 |
/// | `Reset` | 200 | 20 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Inherit {
    /// What was used stays used: the strictest, and what a change of rules does.
    #[default]
    Used,
    /// What is left stays, up to the new limit.
    AsIs,
    /// What is left stays the same share of the limit, rounded down.
    Proportional,
    /// What is left stays, and what the new limit has more is added.
    Additive,
    /// The key starts afresh.
    Reset,
}

impl Inherit {
    /// What counts as used of a limit of `new` units, if `used` of `old` were used.
    fn used(self, used: u64, old: u64, new: u64) -> u64 {
        if self == Self::Used {
            return used;
        }
        let left = old.saturating_sub(used);
        new.saturating_sub(match self {
            Self::Used | Self::AsIs => left.min(new),
            Self::Proportional if old == 0 => new,
            Self::Proportional => {
                let share = u128::from(left) * u128::from(new) / u128::from(old);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
            Self::Additive => left.min(new).saturating_add(new.saturating_sub(old)),
            Self::Reset => new,
        })
    }
}

impl Limit {
    /// The state that a key of `old` has under this limit.
    ///
    /// Where both count in the same way, times stay as they are; otherwise what was used is used
    /// now. Fractions of a unit are rounded to the favour of the limit. Permits in flight stay in
    /// flight whatever `inherit` says: their holders still hold them.
    pub fn inherit(&self, old: &Self, state: &State, ask: &Ask, inherit: Inherit) -> Option<State> {
        if self.kind == old.kind && self.frame == old.frame {
            return Some(state.clone());
        }
        if self.counts_like(old) && (self.is_concurrency() || inherit == Inherit::Used) {
            return Some(State { body: self.leased(state, ask), episode: self.episode_of(state) });
        }
        if inherit == Inherit::Reset {
            return None;
        }
        if let (Kind::Bucket(_), Kind::Bucket(_), Inherit::Used) = (&self.kind, &old.kind, inherit)
        {
            return self.inherit_level(old, state, ask);
        }
        let used = inherit.used(old.used(state, ask), old.limit(), self.limit());
        self.having_used(used, ask)
    }

    /// An episode above a soft limit that is over stays over under another soft limit.
    fn episode_of(&self, state: &State) -> Episode {
        if self.frame.soft.is_some() { state.episode } else { 0 }
    }

    /// The same body, its leases no longer than this limit gives them.
    fn leased(&self, state: &State, ask: &Ask) -> Body {
        let mut body = state.body.clone();
        if let (Kind::Concurrency(Concurrency { lease: Some(lease) }), Body::Concurrency(permits)) =
            (&self.kind, &mut body)
        {
            let latest = ask.now().saturating_add(*lease);
            permits.holders.iter_mut().for_each(|holder| holder.until = holder.until.min(latest));
        }
        body
    }

    /// Whether states and marks of the other limit mean the same under this one: the same windows
    /// or list, whatever the number of units.
    pub fn counts_like(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Concurrency(_), Kind::Concurrency(_)) => true,
            (Kind::FixedWindow(one), Kind::FixedWindow(two)) => one == two,
            (Kind::SlidingCounter(one), Kind::SlidingCounter(two)) => one.length == two.length,
            (Kind::SlidingLog(one), Kind::SlidingLog(two)) => one.length == two.length,
            _ => false,
        }
    }

    /// Buckets keep fractions of a unit, and debt.
    fn inherit_level(&self, old: &Self, state: &State, ask: &Ask) -> Option<State> {
        let (Kind::Bucket(new), Kind::Bucket(old), Body::Bucket(paid_at)) =
            (&self.kind, &old.kind, &state.body)
        else {
            return None;
        };
        let now = u128::from(ask.now());
        let used = paid_at.saturating_sub(now * u128::from(old.units));
        // Whole units and the rest apart, so that the products fit; the rest rounds up.
        let (units, rest) = (used / u128::from(old.period), used % u128::from(old.period));
        let ticks = units
            .saturating_mul(u128::from(new.period))
            .saturating_add((rest * u128::from(new.period)).div_ceil(u128::from(old.period)));
        let body = Body::Bucket((now * u128::from(new.units)).saturating_add(ticks));
        Some(State { body, episode: self.episode_of(state) })
    }

    /// The state of a key that has used so much now.
    fn having_used(&self, used: u64, ask: &Ask) -> Option<State> {
        let mut state = self.fresh(ask);
        let missing = self.used(state.as_ref()?, ask);
        // With an initial level, a key that was never seen counts as having used something.
        if used > missing {
            let _ = self.settle(&mut state, ask, used - missing, Action::Force);
        } else if missing > used {
            let _ = self.refund(&mut state, ask, missing - used);
        }
        state
    }
}
