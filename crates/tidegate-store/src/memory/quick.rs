//! The short ways through the memory store: one enforced limit, or several buckets of one word each
//! on one key.
//!
//! They decide what the long way decides; there is only less to carry about.

use std::sync::Arc;

use tidegate_core::{Action, Admissions, Ask, Decision, Joint, Level, Moment, Narrow, Timestamp};

use super::shard::{Full, Shard};
use super::{MemoryStore, OnFull};
use crate::fingerprint::Fingerprint;
use crate::registry::Registered;
use crate::store::{Answer, Call, Item, LocalStore, Mode, Op, check_each};

impl MemoryStore {
    /// A check of one item that is not a bucket of one word.
    #[inline(never)]
    pub(super) fn check_any(&self, item: &Item<'_>, cost: u64, now: Timestamp) -> Decision {
        let limit = item.limit.limit();
        let units = cost.saturating_mul(item.factor);
        // Permits have holders, blocks and zero take nothing, and a bound that turns away new keys
        // has to be asked first: all of that is the long way's business.
        if item.mode == Mode::Enforce
            && self.settings.on_full == OnFull::Evict
            && units > 0
            && limit.state_words() != Some(0)
            && !limit.is_concurrency()
        {
            return self.check_single(item, units, now);
        }
        let mut answers = [Answer::default()];
        let items = std::slice::from_ref(item);
        self.apply_now(&Call::new(Op::Check, items, cost, now), &mut answers);
        answers[0].decision
    }

    fn check_single(&self, item: &Item<'_>, units: u64, now: Timestamp) -> Decision {
        let limit = item.limit.limit();
        let window = item.windows.map(|windows| windows.around(now));
        let ask = Ask { at: Moment { now, window }, holder: 0 };
        let key = self.seed.hash(item.key);
        let fingerprint = key.under(item.limit.salt);
        let mut shard = self.shards[self.shard_of(key)].lock();
        shard.since_origin(now, &self.registry);
        if shard.is_inherited(fingerprint, item.limit) {
            shard.adopt(fingerprint, item.limit, &ask, self.room());
        }
        let (decision, _kept) = shard.change(fingerprint, item.limit, &ask, self.room(), |state| {
            let action = match limit.fits(state.as_ref(), &ask, units) {
                true => Action::Take,
                false if limit.counts_rejected() => Action::Count,
                false => Action::Refuse,
            };
            limit.settle(state, &ask, units, action)
        });
        decision
    }

    /// A check of a bucket that is not there yet.
    #[cold]
    #[inline(never)]
    pub(super) fn check_new(
        &self,
        shard: &mut Shard,
        fingerprint: Fingerprint,
        limit: &Registered,
        units: u64,
        now: Timestamp,
    ) -> Decision {
        let Some(narrow) = limit.limit().as_narrow() else {
            return Decision::without_state(false, 0);
        };
        let since = shard.since_origin(now, &self.registry);
        let mut state = narrow.fresh(since);
        let decision = narrow.check(&mut state, since, units);
        if !decision.allowed {
            return decision;
        }
        match shard.insert_narrow(fingerprint, limit, state, &Ask::at(now), self.room()) {
            Ok(()) => decision,
            Err(Full) => self.at_bound(shard, limit.limit(), true),
        }
    }

    /// Several enforced limits on one key: buckets that are there already are decided here, all
    /// else the long way.
    #[inline(never)]
    pub(super) fn check_few<const N: usize>(
        &self,
        bytes: &[u8],
        all: &[Arc<Registered>],
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        let Some((limits, narrows)) = narrows::<N>(all) else {
            return check_each(self, bytes, all, cost, now);
        };
        let key = self.seed.hash(bytes);
        let mut shard = self.shards[self.shard_of(key)].lock();
        let since = shard.since_origin(now, &self.registry);
        let positions = match find_few(&shard, key, limits) {
            Some(positions) if cost > 0 => positions,
            _ => {
                drop(shard);
                return check_each(self, bytes, all, cost, now);
            }
        };
        let (mut states, mut levels, mut fits) = ([0; N], [Level::default(); N], true);
        for at in 0..N {
            states[at] = shard.narrow.at(positions[at]).value[0];
            levels[at] = narrows[at].level(states[at], since);
            fits &= narrows[at].level_fits(levels[at], cost);
        }
        // The answer is worked out after the lock is free for others.
        if !fits {
            drop(shard);
            return refused(narrows, states, since, cost);
        }
        for at in 0..N {
            let state = narrows[at].level_after(levels[at], cost);
            shard.narrow.at_mut(positions[at]).value = [state];
        }
        drop(shard);
        admitted(narrows, levels, cost)
    }
}

/// As many limits, and as buckets of one word, if all of them are.
#[inline(always)]
fn narrows<const N: usize>(
    limits: &[Arc<Registered>],
) -> Option<(&[Arc<Registered>; N], [Narrow<'_>; N])> {
    let limits = limits.first_chunk()?;
    let mut narrows = [limits.first()?.limit().as_narrow()?; N];
    for at in 1..N {
        narrows[at] = limits[at].limit().as_narrow()?;
    }
    Some((limits, narrows))
}

/// Where the buckets of a key are. None if one is new or is to be carried over from an earlier
/// limit, or if a limit is named twice, so that its costs would have to be added up.
#[inline(always)]
fn find_few<const N: usize>(
    shard: &Shard,
    key: Fingerprint,
    limits: &[Arc<Registered>; N],
) -> Option<[usize; N]> {
    let mut positions = [0; N];
    for at in 0..N {
        let fingerprint = key.under(limits[at].salt);
        // Limits of one key came in their order, so the next one is mostly the next slot.
        let found = match at.checked_sub(1) {
            None => shard.narrow.find(fingerprint)?,
            Some(last) => shard.narrow.find_near(fingerprint, positions[last])?,
        };
        if shard.narrow.at(found).limit != limits[at].index || positions[..at].contains(&found) {
            return None;
        }
        positions[at] = found;
    }
    Some(positions)
}

/// The answer to a cost that all buckets have admitted.
#[inline(always)]
pub(super) fn admitted<const N: usize>(
    narrows: [Narrow<'_>; N],
    levels: [Level; N],
    cost: u64,
) -> Decision {
    let mut admissions = Admissions::new();
    for at in 0..N {
        narrows[at].answer_to(levels[at], cost, at as u32, &mut admissions);
    }
    admissions.finish()
}

/// The answer to a cost that not all buckets admit.
#[inline(never)]
fn refused<const N: usize>(
    narrows: [Narrow<'_>; N],
    states: [u64; N],
    since: u64,
    cost: u64,
) -> Decision {
    let mut joint = Joint::new(&narrows[0].peek(Some(states[0]), since, cost));
    for at in 1..N {
        let mut decision = narrows[at].peek(Some(states[at]), since, cost);
        decision.rule = at as u32;
        joint.add(&decision);
    }
    joint.finish(false)
}
