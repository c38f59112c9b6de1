//! A call to the memory store: lock what it touches, ask all limits, then act on all or none.

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use tidegate_core::{Action, Ask, Decision, Moment, Source, State, Taken};

use super::shard::{Room, Shard};
use super::{MemoryStore, OnFull};
use crate::fingerprint::Fingerprint;
use crate::registry::Registered;
use crate::store::{Answer, Call, Item, Mode, Op, Outcome};

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
    /// Units of this key for each unit of the cost, by all items of the call that count it.
    weight: u64,
    /// The units asked of this key by the whole call.
    units: u64,
    /// The shard, as a position among those locked.
    shard: usize,
    /// The first item that counts the same key under the same id; it acts for all of them.
    leader: usize,
    fits: bool,
    /// A new key that finds no room.
    closed: bool,
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
                self.settle_all(&plans, &mut locked, answers, allowed, call.op == Op::Check);
                Outcome { allowed, granted: if allowed { call.cost } else { 0 } }
            }
            Op::UpTo => self.up_to(call, &mut plans, &mut locked, answers),
            Op::Force => {
                for index in 0..plans.len() {
                    self.answer(&plans, index, &mut locked, answers, Action::Force);
                }
                Outcome { allowed: true, granted: call.cost }
            }
            Op::Refund | Op::GiveBack(_) | Op::Reset => {
                self.undo_all(call, &plans, &mut locked, answers);
                Outcome { allowed: true, granted: call.cost }
            }
        }
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
            // Two handles of one id are one limit: the first is the one that counts.
            let same = |plan: &Plan<'_>| plan.fingerprint == fingerprint;
            let leader = plans.iter().position(same).unwrap_or(index);
            let window = item.windows.map(|windows| windows.around(call.now));
            let plan = Plan {
                fingerprint,
                limit: item.limit,
                ask: Ask { at: Moment { now: call.now, window }, holder: call.holder },
                mode: item.mode,
                weight: item.factor,
                units: call.cost.saturating_mul(item.factor),
                shard: locked.position(self.shard_of(*key)),
                leader,
                fits: false,
                closed: false,
            };
            plans.push(plan);
            if leader == index {
                self.receive(&plan, locked.at(plan.shard));
            } else {
                // The costs of those that count the same key add up before anything is decided.
                plans[leader].weight = plans[leader].weight.saturating_add(plan.weight);
                plans[leader].units = plans[leader].units.saturating_add(plan.units);
            }
        }
        plans
    }

    /// Makes a shard ready for a key: its clock near, its state that of the limit in force.
    fn receive(&self, plan: &Plan<'_>, shard: &mut Shard) {
        shard.since_origin(plan.ask.at.now, &self.registry);
        if shard.is_inherited(plan.fingerprint, plan.limit) {
            shard.adopt(plan.fingerprint, plan.limit, &plan.ask, self.room());
        }
    }

    /// Asks every limit whether it admits.
    fn ask_all(&self, plans: &mut Plans<'_>, locked: &mut Locked<'_>) {
        let mut coming: SmallVec<[usize; INLINE]> = SmallVec::new();
        for index in 0..plans.len() {
            let leader = plans[index].leader;
            if leader != index {
                (plans[index].fits, plans[index].closed) =
                    (plans[leader].fits, plans[leader].closed);
                continue;
            }
            let plan = &mut plans[index];
            let shard = locked.at(plan.shard);
            plan.fits = shard.look(plan.fingerprint, plan.limit, |state| {
                plan.limit.limit().fits(state, &plan.ask, plan.units)
            });
            // Only what would be counted needs a place.
            if self.settings.on_full == OnFull::Evict
                || !plan.fits
                || plan.units == 0
                || shard.knows(plan.fingerprint, plan.limit)
            {
                continue;
            }
            let expected = coming.iter().filter(|shard| **shard == plan.shard).count();
            if shard.is_closed(&plan.ask, self.room(), expected) {
                plan.closed = true;
                plan.fits = self.settings.on_full == OnFull::Allow;
            } else {
                coming.push(plan.shard);
            }
        }
    }

    /// Acts on every limit, now that the fate of the request is known.
    fn settle_all(
        &self,
        plans: &Plans<'_>,
        locked: &mut Locked<'_>,
        answers: &mut [Answer],
        allowed: bool,
        acts: bool,
    ) {
        for (index, plan) in plans.iter().enumerate() {
            let counts = plan.limit.limit().counts_rejected();
            let action = match plan.fits {
                _ if !acts => Action::Look,
                true if allowed || counts => Action::Take,
                false if counts => Action::Count,
                _ => Action::Refuse,
            };
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
        answers[index] = if plan.leader == index {
            self.act(plan, locked.at(plan.shard), action)
        } else {
            // What was taken was taken by the leader.
            Answer { taken: Taken::default(), ..answers[plan.leader] }
        };
        self.sign(plan, index, answers);
    }

    /// Says which item speaks, and whether it only watches.
    fn sign(&self, plan: &Plan<'_>, index: usize, answers: &mut [Answer]) {
        let decision = &mut answers[index].decision;
        decision.rule = u32::try_from(index).unwrap_or(u32::MAX);
        decision.source = match (plan.mode, decision.source) {
            (Mode::Shadow, _) => Source::Shadow,
            // Copied from a leader that only watches.
            (_, Source::Shadow) => Source::Store,
            (_, source) => source,
        };
    }

    fn act(&self, plan: &Plan<'_>, shard: &mut Shard, action: Action) -> Answer {
        let limit = plan.limit.limit();
        if plan.closed {
            return self.turn_away(shard, plan, action);
        }
        if limit.state_words() == Some(0) {
            let decision = limit.peek(None, &plan.ask, plan.units);
            return Answer { decision, taken: Taken::default() };
        }
        // What is forced has to be remembered, if need be at the expense of somebody else.
        let evicts = self.room().evicts || action == Action::Force;
        let room = Room { evicts, ..self.room() };
        let (answer, kept) = shard.change(plan.fingerprint, plan.limit, &plan.ask, room, |state| {
            let decision = limit.settle(state, &plan.ask, plan.units, action);
            let taken = match (action, state.as_ref()) {
                (Action::Take | Action::Force, Some(state)) if plan.units > 0 => {
                    limit.taken(state, &plan.ask, plan.units)
                }
                _ => Taken::default(),
            };
            Answer { decision, taken }
        });
        // A refusal that could not be remembered is a refusal all the same.
        if kept.is_err() && answer.decision.allowed {
            return self.turn_away(shard, plan, action);
        }
        answer
    }

    fn turn_away(&self, shard: &mut Shard, plan: &Plan<'_>, action: Action) -> Answer {
        let counted = action != Action::Look;
        let decision = self.at_bound(shard, plan.limit.limit(), counted);
        Answer { decision, taken: Taken::default() }
    }

    /// Consumes as much as every enforced limit, and the most generous quota, admits.
    fn up_to(
        &self,
        call: &Call<'_>,
        plans: &mut Plans<'_>,
        locked: &mut Locked<'_>,
        answers: &mut [Answer],
    ) -> Outcome {
        let mut enforced = call.cost;
        let mut quotas: SmallVec<[(u32, u64); INLINE]> = SmallVec::new();
        for index in 0..plans.len() {
            let plan = plans[plans[index].leader];
            let room = locked.at(plan.shard).look(plan.fingerprint, plan.limit, |state| {
                plan.limit.limit().room(state, &plan.ask)
            });
            let most = room.checked_div(plan.weight).unwrap_or(u64::MAX);
            match plans[index].mode {
                Mode::Enforce => enforced = enforced.min(most),
                Mode::Quota(number) => match quotas.iter_mut().find(|quota| quota.0 == number) {
                    Some((_, least)) => *least = most.min(*least),
                    None => quotas.push((number, most)),
                },
                Mode::Shadow => {}
            }
        }
        let quota = quotas.iter().map(|(_, most)| *most).max();
        let granted = enforced.min(quota.unwrap_or(u64::MAX));
        // Nothing granted is a refusal, and says when one unit would be.
        let asked = granted.max(call.cost.min(1));
        for plan in plans.iter_mut() {
            plan.units = plan.weight.saturating_mul(asked);
        }
        self.ask_all(plans, locked);
        let allowed = is_allowed(plans);
        self.settle_all(plans, locked, answers, allowed, true);
        Outcome { allowed, granted: if allowed { asked } else { 0 } }
    }

    /// Gives back or forgets.
    fn undo_all(
        &self,
        call: &Call<'_>,
        plans: &Plans<'_>,
        locked: &mut Locked<'_>,
        answers: &mut [Answer],
    ) {
        for (index, plan) in plans.iter().enumerate() {
            // Costs were added up at the leader, but each taking goes back by itself.
            let by_leader = !matches!(call.op, Op::GiveBack(_));
            if by_leader && plan.leader != index {
                answers[index] = answers[plan.leader];
            } else {
                if plan.limit.limit().state_words() == Some(0) {
                    if call.op == Op::Reset {
                        locked.at(plan.shard).forget(plan.fingerprint);
                    }
                    let decision = plan.limit.limit().peek(None, &plan.ask, 0);
                    answers[index] = Answer { decision, taken: Taken::default() };
                    self.sign(plan, index, answers);
                    continue;
                }
                let room = self.room();
                let shard = locked.at(plan.shard);
                let (decision, _) =
                    shard.change(plan.fingerprint, plan.limit, &plan.ask, room, |state| {
                        undo(call, plan, index, state)
                    });
                answers[index] = Answer { decision, taken: Taken::default() };
            }
            self.sign(plan, index, answers);
        }
        // What was answered before the last of several takings went back is not true any more.
        for index in (0..plans.len()).rev() {
            let last = plans.iter().rposition(|plan| plan.leader == plans[index].leader);
            if let Some(last) = last.filter(|last| *last != index) {
                answers[index] = answers[last];
                self.sign(&plans[index], index, answers);
            }
        }
    }
}

fn undo(call: &Call<'_>, plan: &Plan<'_>, index: usize, state: &mut Option<State>) -> Decision {
    let limit = plan.limit.limit();
    match call.op {
        Op::GiveBack(taken) => {
            let taken = taken.get(index).copied().unwrap_or_default();
            limit.give_back(state, &plan.ask, &taken)
        }
        Op::Refund => limit.refund(state, &plan.ask, plan.units),
        _ => {
            *state = None;
            limit.peek(None, &plan.ask, 0)
        }
    }
}

/// Whether the request as a whole is admitted: no enforced limit refuses, and of the quotas, if
/// there are any, not all.
fn is_allowed(plans: &Plans<'_>) -> bool {
    let admits = |mode: Mode| plans.iter().filter(|plan| plan.mode == mode).all(|plan| plan.fits);
    let mut quotas = plans.iter().map(|plan| plan.mode).filter(is_quota).peekable();
    admits(Mode::Enforce) && (quotas.peek().is_none() || quotas.any(admits))
}

fn is_quota(mode: &Mode) -> bool {
    matches!(mode, Mode::Quota(_))
}
