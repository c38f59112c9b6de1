//! What a store should answer, worked out in the plainest way.
//!
//! One limit on one key is `tidegate-core` on an `Option<State>`. What several of them mean
//! together is written out here: ask all, decide on the whole, then act on each.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tidegate_core::{
    Action, Ask, Decision, Inherit, Limit, Moment, Source, State, Taken, Timestamp, Windows,
};

use crate::store::{Answer, Call, Item, Mode, Op, Outcome};

/// What is remembered of every key, for ever: nothing is dropped and nothing is bounded.
#[derive(Default)]
pub(super) struct Oracle {
    kept: HashMap<(String, Vec<u8>), Kept>,
    reserved: HashMap<u128, Reserved>,
    /// The latest time that the store has been told.
    latest: Timestamp,
}

/// A state with the limit that it was counted under.
#[derive(Clone)]
struct Kept {
    limit: Limit,
    state: State,
}

struct Reserved {
    ends: Timestamp,
    cost: u64,
    outcome: Outcome,
    parts: Vec<ReservedPart>,
}

struct ReservedPart {
    place: Place,
    factor: u128,
    taken: Taken,
}

/// One key under one limit, with the question that is put to it.
#[derive(Clone)]
struct Place {
    id: String,
    key: Vec<u8>,
    limit: Limit,
    inherit: Inherit,
    windows: Option<Windows>,
    ask: Ask,
}

/// All items of a call that count the same key under the same limit.
struct Part {
    place: Place,
    /// Units for each unit of the cost, of all the items together.
    factor: u128,
    /// The items, by their position.
    members: Vec<usize>,
    state: Option<State>,
}

impl Part {
    fn units(&self, cost: u64) -> u64 {
        u64::try_from(self.factor.saturating_mul(u128::from(cost))).unwrap_or(u64::MAX)
    }

    fn fits(&self, cost: u64) -> bool {
        let limit = &self.place.limit;
        limit.fits(self.state.as_ref(), &self.place.ask, self.units(cost))
    }

    fn settle(&mut self, cost: u64, action: Action) -> Answer {
        let (limit, ask, units) = (&self.place.limit, &self.place.ask, self.units(cost));
        let decision = limit.settle(&mut self.state, ask, units, action);
        let took = matches!(action, Action::Take | Action::Force) && units > 0;
        let taken = match self.state.as_ref() {
            Some(state) if took => limit.taken(state, ask, units),
            _ => Taken::default(),
        };
        Answer { decision, taken }
    }
}

impl Place {
    fn of(call: &Call<'_>, item: &Item<'_>) -> Self {
        let window = item.windows.map(|windows| windows.around(call.now));
        Self {
            id: item.limit.id().to_owned(),
            key: item.key.to_vec(),
            limit: item.limit.limit().clone(),
            inherit: item.limit.inherit(),
            windows: item.windows,
            ask: Ask { at: Moment { now: call.now, window }, holder: call.holder },
        }
    }

    /// The same place at another time.
    fn at(&self, now: Timestamp) -> Self {
        let window = self.windows.map(|windows| windows.around(now));
        let ask = Ask { at: Moment { now, window }, ..self.ask };
        Self { ask, ..self.clone() }
    }
}

impl Oracle {
    /// Decides a call.
    pub(super) fn apply(&mut self, call: &Call<'_>) -> (Outcome, Vec<Answer>) {
        self.latest = self.latest.max(call.now);
        let mut parts = self.parts(call);
        let (outcome, per_part) = match call.op {
            Op::Check => decide(&mut parts, call.items, call.cost, true),
            Op::Peek => decide(&mut parts, call.items, call.cost, false),
            Op::UpTo => up_to(&mut parts, call),
            Op::Force => {
                let force = |part: &mut Part| part.settle(call.cost, Action::Force);
                (admitted(call.cost), parts.iter_mut().map(force).collect())
            }
            Op::Refund => {
                let refund = |part: &mut Part| {
                    let (limit, ask, units) =
                        (&part.place.limit, &part.place.ask, part.units(call.cost));
                    // Nothing is a peek, as everywhere; but permits go by holder, not by number.
                    answer(match units {
                        0 if !limit.is_concurrency() => limit.peek(part.state.as_ref(), ask, 0),
                        _ => limit.refund(&mut part.state, ask, units),
                    })
                };
                (admitted(call.cost), parts.iter_mut().map(refund).collect())
            }
            Op::Reset => {
                let reset = |part: &mut Part| {
                    part.state = None;
                    answer(part.place.limit.peek(None, &part.place.ask, 0))
                };
                (admitted(call.cost), parts.iter_mut().map(reset).collect())
            }
            Op::GiveBack(takings) => {
                let give_back = |part: &mut Part| {
                    let (limit, ask) = (&part.place.limit, &part.place.ask);
                    let takings = part.members.iter().map(|member| &takings[*member]);
                    for taken in takings.filter(|taken| taken.cost > 0) {
                        let _ = limit.give_back(&mut part.state, ask, taken);
                    }
                    answer(limit.peek(part.state.as_ref(), ask, 0))
                };
                (admitted(call.cost), parts.iter_mut().map(give_back).collect())
            }
        };
        let answers = spread(&parts, &per_part, call.items);
        // Also after a peek: it changes nothing, but it carries a key over to a changed limit.
        // A limit that blocks remembers nothing, and leaves alone what an earlier one remembers.
        let is_kept = |part: &Part| part.place.limit.limit() > 0 || call.op == Op::Reset;
        parts.into_iter().filter(is_kept).for_each(|part| self.keep(part));
        (outcome, answers)
    }

    /// Decides a reservation; a repeated one says again what became of it, and where its limits
    /// stand.
    pub(super) fn reserve(
        &mut self,
        call: &Call<'_>,
        id: u128,
        ttl: Duration,
    ) -> (Outcome, Vec<Answer>) {
        self.latest = self.latest.max(call.now);
        if let Some(known) = self.reserved.get(&id).filter(|known| call.now < known.ends) {
            let outcome = known.outcome;
            let (_, answers) = self.apply(&Call { op: Op::Peek, cost: 0, ..*call });
            return (outcome, answers);
        }
        let parts = self.parts(call);
        let (outcome, answers) = self.apply(&Call { op: Op::Check, ..*call });
        if outcome.allowed {
            // A limit that did not admit took nothing, and is none of the reservation's business.
            let parts = parts.into_iter().filter(|part| part.fits(call.cost));
            let parts = parts.map(|part| ReservedPart {
                taken: answers[part.members[0]].taken,
                place: part.place,
                factor: part.factor,
            });
            let parts = parts.collect();
            let reserved = Reserved { ends: call.now + ttl, cost: call.cost, outcome, parts };
            self.reserved.insert(id, reserved);
        }
        (outcome, answers)
    }

    /// Ends a reservation.
    pub(super) fn settle(&mut self, id: u128, cost: u64, now: Timestamp) -> bool {
        self.latest = self.latest.max(now);
        let Some(reserved) = self.reserved.remove(&id).filter(|known| now < known.ends) else {
            return false;
        };
        if cost == reserved.cost {
            return true;
        }
        for ReservedPart { place, factor, taken } in reserved.parts {
            let kept = self.kept.get(&(place.id.clone(), place.key.clone())).cloned();
            // A key that a changed limit has taken over stays there.
            let limit = kept.as_ref().map_or(&place.limit, |kept| &kept.limit).clone();
            let alike = limit == place.limit || limit.counts_like(&place.limit);
            let state = kept.map(|kept| kept.state);
            let place = Place { limit: limit.clone(), ..place.at(now) };
            let mut part = Part { place, factor, members: Vec::new(), state };
            if cost > reserved.cost {
                // A holder has a number of permits; of everything else, more is used.
                let held = if limit.is_concurrency() { 0 } else { reserved.cost };
                part.settle(cost - held, Action::Force);
            } else if alike {
                let taken = Taken { cost: part.units(reserved.cost - cost), ..taken };
                let _ = limit.give_back(&mut part.state, &part.place.ask, &taken);
            }
            self.keep(part);
        }
        true
    }

    /// Whether there is one right answer to a call.
    ///
    /// A store may drop state that is spent, at any time. A clock that goes back to before that
    /// moment may then find the key as it was, or new; and what a changed limit inherits may be
    /// the old state, or nothing.
    pub(super) fn is_certain(&self, call: &Call<'_>) -> bool {
        call.items.iter().all(|item| self.is_certain_at(&Place::of(call, item)))
    }

    /// Whether a reservation is certainly open, or certainly not.
    pub(super) fn is_certain_about(&self, id: u128, now: Timestamp) -> bool {
        self.reserved.get(&id).is_none_or(|known| {
            let open = now < known.ends && self.latest < known.ends;
            open || now > known.ends
        })
    }

    /// Whether there is one right way to settle a reservation.
    pub(super) fn is_certain_of_parts(&self, id: u128, now: Timestamp) -> bool {
        let Some(reserved) = self.reserved.get(&id) else { return true };
        reserved.parts.iter().all(|part| self.is_certain_at(&part.place.at(now)))
    }

    fn is_certain_at(&self, place: &Place) -> bool {
        self.kept.get(&(place.id.clone(), place.key.clone())).is_none_or(|kept| {
            let is_spent_at = |now| kept.limit.is_spent(&kept.state, &place.at(now).ask);
            let changes = kept.limit != place.limit;
            !is_spent_at(self.latest) || (!changes && is_spent_at(place.ask.at.now))
        })
    }

    fn parts(&self, call: &Call<'_>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (index, item) in call.items.iter().enumerate() {
            let place = Place::of(call, item);
            let same = parts
                .iter_mut()
                .find(|part| (&part.place.id, &part.place.key) == (&place.id, &place.key));
            match same {
                Some(part) => {
                    part.factor += u128::from(item.factor);
                    part.members.push(index);
                }
                None => {
                    let state = self.state(&place);
                    let (factor, members) = (u128::from(item.factor), vec![index]);
                    parts.push(Part { place, factor, members, state });
                }
            }
        }
        parts
    }

    /// The state of a key, carried over if it was counted under another limit.
    fn state(&self, place: &Place) -> Option<State> {
        let kept = self.kept.get(&(place.id.clone(), place.key.clone()))?;
        if kept.limit == place.limit {
            return Some(kept.state.clone());
        }
        place.limit.inherit(&kept.limit, &kept.state, &place.ask, place.inherit)
    }

    fn keep(&mut self, part: Part) {
        let name = (part.place.id, part.place.key);
        match part.state {
            None => self.kept.remove(&name),
            Some(state) => self.kept.insert(name, Kept { limit: part.place.limit, state }),
        };
    }
}

fn admitted(granted: u64) -> Outcome {
    Outcome { allowed: true, granted }
}

fn answer(decision: Decision) -> Answer {
    Answer { decision, taken: Taken::default() }
}

/// Whether a request of this cost is admitted: no enforced limit refuses, and of the quotas, if
/// there are any, not all; a quota refuses if one of its limits does.
fn is_allowed(parts: &[Part], items: &[Item<'_>], cost: u64) -> bool {
    let fits: Vec<bool> = parts.iter().map(|part| part.fits(cost)).collect();
    let mut quotas: BTreeMap<u32, bool> = BTreeMap::new();
    let mut enforced = true;
    for (part, fits) in parts.iter().zip(&fits) {
        for member in &part.members {
            match items[*member].mode {
                Mode::Enforce => enforced &= fits,
                Mode::Quota(number) => *quotas.entry(number).or_insert(true) &= fits,
                Mode::Shadow => {}
            }
        }
    }
    enforced && (quotas.is_empty() || quotas.values().any(|admits| *admits))
}

/// Overall first; then each limit consumes that itself admits, or none does.
fn decide(parts: &mut [Part], items: &[Item<'_>], cost: u64, acts: bool) -> (Outcome, Vec<Answer>) {
    let allowed = is_allowed(parts, items, cost);
    let act = |part: &mut Part| {
        let (fits, counts) = (part.fits(cost), part.place.limit.counts_rejected());
        match (acts, allowed) {
            (false, _) => part.settle(cost, Action::Look),
            (true, true) if fits => part.settle(cost, Action::Take),
            // Counted, and admitted as far as this limit is concerned.
            (true, false) if counts && fits => part.settle(cost, Action::Take),
            (true, false) if counts => part.settle(cost, Action::Count),
            (true, _) => part.settle(cost, Action::Refuse),
        }
    };
    let answers = parts.iter_mut().map(act).collect();
    (Outcome { allowed, granted: if allowed { cost } else { 0 } }, answers)
}

/// Checks the largest cost that is admitted; if that is none, a cost of one, which is refused.
fn up_to(parts: &mut [Part], call: &Call<'_>) -> (Outcome, Vec<Answer>) {
    let (mut granted, mut most) = (0, call.cost);
    while granted < most {
        let middle = most - (most - granted) / 2;
        if is_allowed(parts, call.items, middle) {
            granted = middle;
        } else {
            most = middle - 1;
        }
    }
    decide(parts, call.items, granted.max(call.cost.min(1)), true)
}

/// The answer of each item, from the answers of the keys that they count.
fn spread(parts: &[Part], per_part: &[Answer], items: &[Item<'_>]) -> Vec<Answer> {
    let mut answers = vec![Answer::default(); items.len()];
    for (part, answer) in parts.iter().zip(per_part) {
        for (place, member) in part.members.iter().enumerate() {
            let mut answer = *answer;
            answer.decision.rule = u32::try_from(*member).unwrap_or(u32::MAX);
            if items[*member].mode == Mode::Shadow {
                answer.decision.source = Source::Shadow;
            }
            if place > 0 {
                // What was taken from the key stands with the first.
                answer.taken = Taken::default();
            }
            answers[*member] = answer;
        }
    }
    answers
}
