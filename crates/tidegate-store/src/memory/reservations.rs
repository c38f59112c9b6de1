//! Reservations that wait to be settled.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{Action, Ask, Moment, Taken, Timestamp, Windows};

use super::{MemoryError, MemoryStore};
use crate::fingerprint::Fingerprint;
use crate::registry::Registered;
use crate::store::{Answer, Call, LocalStore, Op, Outcome};

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
    cost: u64,
    outcome: Outcome,
    parts: Vec<Part>,
}

/// What was taken of one key.
struct Part {
    key: Fingerprint,
    limit: Arc<Registered>,
    factor: u64,
    windows: Option<Windows>,
    taken: Taken,
    holder: u128,
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
    pub(super) fn reserve_now(
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
                let parts = self.parts(call, answers);
                let reservation = Reservation { ends, cost: call.cost, outcome, parts };
                open.by_id.insert(id, reservation);
                open.by_end.insert((ends, id));
            }
            Ok(outcome)
        })
    }

    pub(super) fn settle_now(&self, id: u128, cost: u64, now: Timestamp) -> bool {
        let reservation = self.reservations.with(|open| {
            open.expire(now);
            open.remove(id)
        });
        let Some(reservation) = reservation else { return false };
        for part in &reservation.parts {
            self.settle_part(part, reservation.cost, cost, now);
        }
        true
    }

    fn parts(&self, call: &Call<'_>, answers: &[Answer]) -> Vec<Part> {
        let mut parts = Vec::with_capacity(call.items.len());
        for (item, answer) in call.items.iter().zip(answers) {
            // A limit in shadow that did not admit took nothing.
            if answer.taken.cost > 0
                && let Some(limit) = self.registry.get(item.limit.index)
            {
                parts.push(Part {
                    key: self.seed.hash(item.key),
                    limit,
                    factor: answer.taken.cost / call.cost.max(1),
                    windows: item.windows,
                    taken: answer.taken,
                    holder: call.holder,
                });
            }
        }
        parts
    }

    /// Brings one key from the reserved cost to the real one.
    fn settle_part(&self, part: &Part, reserved: u64, cost: u64, now: Timestamp) {
        let window = part.windows.map(|windows| windows.around(now));
        let ask = Ask { at: Moment { now, window }, holder: part.holder };
        let fingerprint = part.key.under(part.limit.salt);
        let mut shard = self.shards[self.shard_of(part.key)].lock();
        shard.since_origin(now, &self.registry);
        let limit = part.limit.limit();
        // A key that finds no room any more is one that was evicted: it owes nothing.
        let _ = shard.change(fingerprint, &part.limit, &ask, self.room(), |state| {
            if cost <= reserved {
                let spared = (reserved - cost).saturating_mul(part.factor);
                limit.give_back(state, &ask, &Taken { cost: spared, ..part.taken })
            } else {
                let missing = (cost - reserved).saturating_mul(part.factor);
                limit.settle(state, &ask, missing, Action::Force)
            }
        });
    }
}
