//! The short ways through the memory store: one enforced limit, or several buckets of one word each
//! on one key.
//!
//! They decide what the long way decides; there is only less to carry about.

use std::sync::Arc;

use tidegate_core::{Action, Admissions, Ask, Decision, Joint, Level, Moment, Timestamp};

use super::shard::{Full, Shard};
use super::{MemoryStore, OnFull};
use crate::fingerprint::Fingerprint;
use crate::registry::Registered;
use crate::store::{Answer, Call, Item, LocalStore, Mode, Op};

/// How many limits the short way takes.
const MOST: usize = 8;

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

    /// Several enforced buckets on one key; `None` if it takes the long way.
    #[inline(always)]
    pub(super) fn check_narrow(
        &self,
        key: &[u8],
        limits: &[Arc<Registered>],
        cost: u64,
        now: Timestamp,
    ) -> Option<Decision> {
        if limits.len() > MOST || limits.is_empty() || cost == 0 {
            return None;
        }
        let key = self.seed.hash(key);
        let mut shard = self.shards[self.shard_of(key)].lock();
        let since = shard.since_origin(now, &self.registry);
        let mut positions = [0; MOST];
        let mut levels = [Level::default(); MOST];
        let mut allowed = true;
        for (index, limit) in limits.iter().enumerate() {
            let narrow = limit.limit().as_narrow()?;
            // New keys, and keys that are to be carried over, take the long way.
            let fingerprint = key.under(limit.salt);
            // Limits of one key came in their order, so the next one is mostly the next slot.
            let found = match index.checked_sub(1) {
                None => shard.narrow.find(fingerprint)?,
                Some(last) => shard.narrow.find_near(fingerprint, positions[last] + 1)?,
            };
            let slot = shard.narrow.at(found);
            // So do limits that are named twice, whose costs add up.
            if slot.limit != limit.index || positions[..index].contains(&found) {
                return None;
            }
            positions[index] = found;
            levels[index] = narrow.level(slot.value[0], since);
            allowed &= narrow.level_fits(levels[index], cost);
        }
        if !allowed {
            return self.refuse_narrow(&shard, limits, &positions, since, cost);
        }
        let mut admissions = Admissions::new();
        for (index, limit) in limits.iter().enumerate() {
            let narrow = limit.limit().as_narrow()?;
            let kept = narrow.take_from(levels[index], cost, index as u32, &mut admissions);
            shard.narrow.at_mut(positions[index]).value = [kept];
        }
        Some(admissions.finish())
    }

    #[inline(never)]
    fn refuse_narrow(
        &self,
        shard: &Shard,
        limits: &[Arc<Registered>],
        positions: &[usize; MOST],
        since: u64,
        cost: u64,
    ) -> Option<Decision> {
        let mut joint: Option<Joint> = None;
        for (index, (limit, position)) in limits.iter().zip(positions).enumerate() {
            let state = shard.narrow.at(*position).value[0];
            let mut decision = limit.limit().as_narrow()?.peek(Some(state), since, cost);
            decision.rule = index as u32;
            match &mut joint {
                None => joint = Some(Joint::new(&decision)),
                Some(joint) => joint.add(&decision),
            }
        }
        joint.map(|joint| joint.finish(false))
    }
}
