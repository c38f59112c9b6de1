//! A call to the memory store: lock what it touches, ask all limits, then act on all or none.

use std::sync::MutexGuard;

use smallvec::SmallVec;
use tidegate_core::{Action, Ask, Decision, Moment, Source, State, Taken};

use super::MemoryStore;
use super::shard::Shard;
use crate::fingerprint::Fingerprint;
use crate::registry::Registered;
use crate::store::{Answer, Call, Item, LocalStore, Mode, Op, Outcome};

/// How many items a call may have before it allocates.
const INLINE: usize = 4;

type Plans<'a> = SmallVec<[Plan<'a>; INLINE]>;

/// One item of a call, on its way to an answer.
#[derive(Clone, Copy)]
struct Plan<'a> {
    fingerprint: Fingerprint,
    limit: &'a Registered,
    ask: Ask,
    mode: Mode,
    /// The units asked of this key by the whole call.
    units: u64,
    /// The shard, as a position among those locked.
    shard: usize,
    /// The first item that counts the same key under the same limit; it acts for all of them.
    leader: usize,
    fits: bool,
    /// A new key that finds no room.
    closed: bool,
    /// Where a narrow bucket stood when it was asked.
    hint: usize,
}

/// The shards that a call touches, locked in ascending order so that calls cannot block each
/// other in a circle.
struct Locked<'a> {
    guards: SmallVec<[(usize, MutexGuard<'a, Shard>); INLINE]>,
}

impl<'a> Locked<'a> {
    fn new(store: &'a MemoryStore, keys: &[Fingerprint]) -> Self {
        let mut wanted: SmallVec<[usize; INLINE]> =
            keys.iter().map(|key| store.shard_of(*key)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let guards = wanted.into_iter().map(|shard| (shard, store.shards[shard].lock()));
        Self { guards: guards.collect() }
    }

    fn position(&self, shard: usize) -> usize {
        self.guards.iter().position(|(locked, _)| *locked == shard).unwrap_or(0)
    }

    fn at(&mut self, position: usize) -> &mut Shard {
        &mut self.guards[position].1
    }
}

impl MemoryStore {
    /// Decides a call of any kind.
    pub(super) fn decide(&self, call: &Call<'_>, answers: &mut [Answer]) -> Outcome {
        let keys = self.hash_keys(call.items);
        let mut locked = Locked::new(self, &keys);
        let mut plans = self.plan(call, &keys, &mut locked);
        match call.op {
            Op::Check | Op::Peek => {
                self.ask_all(&mut plans, &mut locked);
                let allowed = is_allowed(&plans);
                let acts = call.op == Op::Check;
                self.settle_all(&mut plans, &mut locked, answers, allowed, acts);
                Outcome { allowed, granted: if allowed { call.cost } else { 0 } }
            }
            Op::UpTo => self.up_to(call, &mut plans, &mut locked, answers),
            Op::Force => {
                self.act_all(&mut plans, &mut locked, answers, Action::Force);
                Outcome { allowed: true, granted: call.cost }
            }
            Op::Refund => {
                self.change_all(&plans, &mut locked, answers, |plan, _, state| {
                    plan.limit.limit().refund(state, &plan.ask, plan.units)
                });
                Outcome { allowed: true, granted: call.cost }
            }
            Op::GiveBack(taken) => {
                self.change_all(&plans, &mut locked, answers, |plan, index, state| {
                    let taken = taken.get(index).copied().unwrap_or_default();
                    plan.limit.limit().give_back(state, &plan.ask, &taken)
                });
                Outcome { allowed: true, granted: 0 }
            }
            Op::Reset => {
                self.change_all(&plans, &mut locked, answers, |plan, _, state| {
                    *state = None;
                    plan.limit.limit().peek(None, &plan.ask, 0)
                });
                Outcome { allowed: true, granted: 0 }
            }
        }
    }

    /// A check of one item of any kind.
    pub(super) fn check_any(
        &self,
        item: &Item<'_>,
        cost: u64,
        now: tidegate_core::Timestamp,
    ) -> Decision {
        let mut answers = [Answer::default()];
        let items = std::slice::from_ref(item);
        self.apply_now(&Call::new(Op::Check, items, cost, now), &mut answers);
        answers[0].decision
    }

    fn hash_keys(&self, items: &[Item<'_>]) -> SmallVec<[Fingerprint; INLINE]> {
        let mut keys = SmallVec::with_capacity(items.len());
        let mut last: Option<(&[u8], Fingerprint)> = None;
        for item in items {
            // Several limits on one key are the rule, so the same bytes are hashed once.
            let key = match last {
                Some((bytes, key)) if std::ptr::eq(bytes, item.key) => key,
                _ => self.seed.hash(item.key),
            };
            last = Some((item.key, key));
            keys.push(key);
        }
        keys
    }

    fn plan<'a>(
        &self,
        call: &Call<'a>,
        keys: &[Fingerprint],
        locked: &mut Locked<'_>,
    ) -> Plans<'a> {
        let mut plans = Plans::with_capacity(call.items.len());
        for (index, (item, key)) in call.items.iter().zip(keys).enumerate() {
            let fingerprint = key.under(item.limit.salt);
            let same = |plan: &Plan<'_>| {
                plan.fingerprint == fingerprint && plan.limit.index == item.limit.index
            };
            let leader = plans.iter().position(same).unwrap_or(index);
            let window = item.windows.map(|windows| windows.around(call.now));
            let ask = Ask { at: Moment { now: call.now, window }, holder: call.holder };
            let units = call.cost.saturating_mul(item.factor);
            let shard = locked.position(self.shard_of(*key));
            plans.push(Plan {
                fingerprint,
                limit: item.limit,
                ask,
                mode: item.mode,
                units,
                shard,
                leader,
                fits: false,
                closed: false,
                hint: usize::MAX,
            });
            if leader == index {
                let shard = locked.at(shard);
                shard.since_origin(call.now, &self.registry);
                if shard.is_inherited(fingerprint, item.limit) {
                    shard.adopt(fingerprint, item.limit, &ask, self.room());
                }
            } else {
                // The costs of those that count the same key add up before anything is decided.
                plans[leader].units = plans[leader].units.saturating_add(units);
            }
        }
        plans
    }

    /// Asks every limit whether it admits.
    fn ask_all(&self, plans: &mut Plans<'_>, locked: &mut Locked<'_>) {
        let mut pending: SmallVec<[usize; INLINE]> = SmallVec::new();
        for index in 0..plans.len() {
            let leader = plans[index].leader;
            if leader != index {
                (plans[index].fits, plans[index].closed) =
                    (plans[leader].fits, plans[leader].closed);
                continue;
            }
            let plan = &mut plans[index];
            let shard = locked.at(plan.shard);
            if let Some(narrow) = plan.limit.limit().as_narrow() {
                let since = shard.since_origin(plan.ask.at.now, &self.registry);
                let position = shard.narrow.find(plan.fingerprint);
                let state = position.map(|position| shard.narrow.at(position).value[0]);
                plan.hint = position.unwrap_or(usize::MAX);
                plan.fits = narrow.fits(state, since, plan.units);
            } else {
                plan.fits = shard.look(plan.fingerprint, plan.limit, |state| {
                    plan.limit.limit().fits(state, &plan.ask, plan.units)
                });
            }
            if !self.room().evicts && plan.units > 0 && !shard.knows(plan.fingerprint, plan.limit) {
                let waiting = pending.iter().filter(|shard| **shard == plan.shard).count();
                plan.closed = shard.is_closed(self.room(), waiting);
                if plan.closed {
                    plan.fits = self.settings.on_full == super::OnFull::Allow;
                } else {
                    pending.push(plan.shard);
                }
            }
        }
    }

    /// Acts on every limit, now that the fate of the request is known.
    fn settle_all(
        &self,
        plans: &mut Plans<'_>,
        locked: &mut Locked<'_>,
        answers: &mut [Answer],
        allowed: bool,
        acts: bool,
    ) {
        for index in 0..plans.len() {
            let plan = plans[index];
            let action = match (acts, allowed, plan.fits) {
                (false, ..) => Action::Look,
                (true, true, true) => Action::Take,
                (true, ..) if plan.limit.limit().counts_rejected() => Action::Count,
                (true, ..) => Action::Refuse,
            };
            self.answer(plans, index, locked, answers, action);
        }
    }

    fn act_all(
        &self,
        plans: &mut Plans<'_>,
        locked: &mut Locked<'_>,
        answers: &mut [Answer],
        action: Action,
    ) {
        for index in 0..plans.len() {
            self.answer(plans, index, locked, answers, action);
        }
    }

    fn answer(
        &self,
        plans: &Plans<'_>,
        index: usize,
        locked: &mut Locked<'_>,
        answers: &mut [Answer],
        action: Action,
    ) {
        let plan = &plans[index];
        let mut answer = if plan.leader != index {
            // What was taken was taken by the leader.
            Answer { taken: Taken::default(), ..answers[plan.leader] }
        } else {
            self.act(plan, locked.at(plan.shard), action)
        };
        answer.decision.rule = u32::try_from(index).unwrap_or(u32::MAX);
        if plan.mode == Mode::Shadow {
            answer.decision.source = Source::Shadow;
        }
        answers[index] = answer;
    }

    fn act(&self, plan: &Plan<'_>, shard: &mut Shard, action: Action) -> Answer {
        let limit = plan.limit.limit();
        if plan.closed {
            return Answer { decision: self.at_bound(shard, limit), taken: Taken::default() };
        }
        if limit.as_narrow().is_some() {
            return self.act_narrow(plan, shard, action);
        }
        let room = self.room();
        let done = shard.change(plan.fingerprint, plan.limit, &plan.ask, room, |state| {
            let decision = limit.settle(state, &plan.ask, plan.units, action);
            let taken = match (action, state.as_ref()) {
                (Action::Take | Action::Force, Some(state)) if plan.units > 0 => {
                    limit.taken(state, &plan.ask, plan.units)
                }
                _ => Taken::default(),
            };
            Answer { decision, taken }
        });
        done.unwrap_or_else(|_| Answer {
            decision: self.at_bound(shard, limit),
            taken: Taken::default(),
        })
    }

    #[inline(always)]
    fn act_narrow(&self, plan: &Plan<'_>, shard: &mut Shard, action: Action) -> Answer {
        let Some(narrow) = plan.limit.limit().as_narrow() else { return Answer::default() };
        let since = shard.since_origin(plan.ask.at.now, &self.registry);
        let position = shard.narrow.find_near(plan.fingerprint, plan.hint);
        let state = position.map(|position| shard.narrow.at(position).value[0]);
        let mut taken = Taken::default();
        let (decision, kept) = if plan.units == 0 {
            (narrow.peek(state, since, 0), None)
        } else {
            match action {
                Action::Look => (narrow.peek(state, since, plan.units), None),
                Action::Refuse => {
                    let kept = narrow.first_sight(state, since);
                    (narrow.peek(state, since, plan.units), kept)
                }
                Action::Take | Action::Force | Action::Count => {
                    let (decision, kept) = narrow.act(state, since, plan.units, action);
                    taken = narrow.taken(kept, shard.origin(), plan.ask.at.now, plan.units);
                    (decision, Some(kept))
                }
            }
        };
        match (position, kept) {
            (_, None) => {}
            (Some(position), Some(kept)) => shard.narrow.at_mut(position).value = [kept],
            (None, Some(kept)) => {
                let added =
                    shard.insert_narrow(plan.fingerprint, plan.limit, kept, &plan.ask, self.room());
                if added.is_err() {
                    let decision = self.at_bound(shard, plan.limit.limit());
                    return Answer { decision, taken: Taken::default() };
                }
            }
        }
        Answer { decision, taken }
    }

    /// Consumes as much as every enforced limit admits.
    fn up_to(
        &self,
        call: &Call<'_>,
        plans: &mut Plans<'_>,
        locked: &mut Locked<'_>,
        answers: &mut [Answer],
    ) -> Outcome {
        let mut granted = call.cost;
        for index in 0..plans.len() {
            let plan = plans[index];
            if plan.leader != index || plan.mode == Mode::Shadow {
                continue;
            }
            let shard = locked.at(plan.shard);
            let room = shard.look(plan.fingerprint, plan.limit, |state| {
                plan.limit.limit().room(state, &plan.ask)
            });
            // A limit that takes `units` for the whole cost takes this much for one of it.
            let weight = plan.units / call.cost.max(1);
            granted = granted.min(room.checked_div(weight).unwrap_or(u64::MAX));
        }
        // Nothing granted is a refusal, and says when one unit would be.
        let asked = if granted == 0 { call.cost.min(1) } else { granted };
        for plan in plans.iter_mut() {
            plan.units = (plan.units / call.cost.max(1)).saturating_mul(asked);
        }
        self.ask_all(plans, locked);
        let allowed = is_allowed(plans);
        self.settle_all(plans, locked, answers, allowed, true);
        Outcome { allowed, granted: if allowed { asked } else { 0 } }
    }

    /// Gives back or forgets, for each different key once.
    fn change_all(
        &self,
        plans: &Plans<'_>,
        locked: &mut Locked<'_>,
        answers: &mut [Answer],
        mut change: impl FnMut(&Plan<'_>, usize, &mut Option<State>) -> Decision,
    ) {
        for (index, plan) in plans.iter().enumerate() {
            if plan.leader != index {
                answers[index] = answers[plan.leader];
            } else {
                let shard = locked.at(plan.shard);
                let room = self.room();
                let changed =
                    shard.change(plan.fingerprint, plan.limit, &plan.ask, room, |state| {
                        change(plan, index, state)
                    });
                let limit = plan.limit.limit();
                let decision =
                    changed.unwrap_or_else(|_| Decision::without_state(true, limit.limit()));
                answers[index] = Answer { decision, taken: Taken::default() };
            }
            answers[index].decision.rule = u32::try_from(index).unwrap_or(u32::MAX);
        }
    }
}

/// Whether the request as a whole is admitted: no enforced limit refuses, and of the quota limits,
/// if there are any, not all.
fn is_allowed(plans: &Plans<'_>) -> bool {
    let mut quotas = plans.iter().filter(|plan| plan.mode == Mode::Quota).peekable();
    let enforced = plans.iter().all(|plan| plan.fits || plan.mode != Mode::Enforce);
    enforced && (quotas.peek().is_none() || quotas.any(|plan| plan.fits))
}
