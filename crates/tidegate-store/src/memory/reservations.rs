//! Reservations that wait to be settled.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{Action, Ask, Moment, Taken, Timestamp};

use super::{MemoryError, MemoryStore};
use crate::store::{Answer, Call, HeldPart, Holding, LocalStore, Op, Outcome};

/// Open reservations by id, and in the order of their end.
pub(super) struct Reservations {
    max: usize,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    by_id: HashMap<u128, Reservation>,
    by_end: BTreeSet<(Timestamp, u128)>,
}

struct Reservation {
    ends: Timestamp,
    outcome: Outcome,
    holding: Holding,
}

impl Open {
    /// Forgets those past their end, whose units stay consumed.
    fn expire(&mut self, now: Timestamp) {
        while let Some((ends, id)) = self.by_end.first().copied() {
            if ends > now {
                return;
            }
            self.by_end.pop_first();
            self.by_id.remove(&id);
        }
    }

    fn remove(&mut self, id: u128) -> Option<Reservation> {
        let reservation = self.by_id.remove(&id)?;
        self.by_end.remove(&(reservation.ends, id));
        Some(reservation)
    }
}

impl Reservations {
    pub(super) fn new(max: usize) -> Self {
        Self { max, open: Mutex::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.with(|open| open.by_id.len())
    }

    fn with<R>(&self, work: impl FnOnce(&mut Open) -> R) -> R {
        work(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl MemoryStore {
    pub(super) fn open_reservation(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, MemoryError> {
        // Held throughout, so that the same id asked twice at once still takes once.
        self.reservations.with(|open| {
            open.expire(call.now);
            if let Some(known) = open.by_id.get(&id) {
                let outcome = known.outcome;
                self.apply_now(&Call { op: Op::Peek, cost: 0, ..*call }, answers);
                return Ok(outcome);
            }
            if open.by_id.len() >= self.reservations.max {
                return Err(MemoryError::TooManyReservations { max: self.reservations.max });
            }
            let outcome = self.apply_now(&Call { op: Op::Check, ..*call }, answers);
            if outcome.allowed {
                let ends = call.now + ttl;
                let handles = call.items.iter().map(|item| self.registry.get(item.limit.index));
                let handles: Option<Vec<_>> = handles.collect();
                let holding = Holding::new(call, &handles.unwrap_or_default(), answers);
                let reservation = Reservation { ends, outcome, holding };
                open.by_id.insert(id, reservation);
                open.by_end.insert((ends, id));
            }
            Ok(outcome)
        })
    }

    pub(super) fn end_reservation(&self, id: u128, cost: u64, now: Timestamp) -> bool {
        let reservation = self.reservations.with(|open| {
            open.expire(now);
            open.remove(id)
        });
        let Some(reservation) = reservation else { return false };
        self.settle_holding(&reservation.holding, cost, now);
        true
    }

    pub(super) fn settle_holding(&self, holding: &Holding, cost: u64, now: Timestamp) {
        for part in &holding.parts {
            self.settle_part(part, holding, cost, now);
        }
    }

    /// Brings one key from the cost that was taken to the real one.
    fn settle_part(&self, part: &HeldPart, holding: &Holding, cost: u64, now: Timestamp) {
        let window = part.windows.map(|windows| windows.around(now));
        let ask = Ask { at: Moment { now, window }, holder: holding.holder };
        let key = self.seed.hash(&part.key);
        let fingerprint = key.under(part.limit.salt);
        let mut shard = self.shards[self.shard_of(key)].lock();
        shard.since_origin(now, &self.registry);
        // The limit may have changed since; a key that has moved on stays where it is.
        let moved = part.limit.has_past();
        let current = moved.then(|| shard.limit_of(fingerprint, &self.registry)).flatten();
        let current = current.as_ref().unwrap_or(&part.limit);
        let limit = current.limit();
        // A key that finds no room any more is one that was evicted: it owes nothing.
        let (_decision, _kept) = shard.change(fingerprint, current, &ask, self.room(), |state| {
            if cost <= holding.cost {
                let spared = (holding.cost - cost).saturating_mul(part.factor);
                let same =
                    current.index == part.limit.index || limit.counts_like(part.limit.limit());
                // Marks of another reckoning mean nothing here: then nothing comes back.
                let spared = if same { spared } else { 0 };
                limit.give_back(state, &ask, &Taken { cost: spared, ..part.taken })
            } else {
                // Permits are set to a number, everything else is added to.
                let held = if limit.is_concurrency() { 0 } else { holding.cost };
                let missing = (cost - held).saturating_mul(part.factor);
                limit.settle(state, &ask, missing, Action::Force)
            }
        });
    }
}
