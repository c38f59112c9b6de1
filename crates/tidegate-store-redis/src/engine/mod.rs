//! From a call to commands, and from replies to answers.
//!
//! The script decides on state that it keeps in its own numbers, and replies with the state that it
//! found. The engine of `tidegate-core` then takes the same step on that state, and so every field
//! of an answer is the one that the memory store would give.

mod answer;
mod carry;
mod join;
mod plan;
mod remove;
mod reply;
mod request;
mod reservation;
#[cfg(test)]
mod tests;
mod undo;

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{Action, Limit, State, Timestamp};
use tidegate_store::{Answer, Call, Op, Outcome};

use self::answer::action_of;
use self::plan::{INLINE, Plan};
use self::reply::{Found, Told};
use self::request::{APART, ONLY_IF_ALLOWED, Question};
use crate::client::Client;
use crate::script::ScriptOp;
use crate::stats::Stats;
use crate::store::{RedisError, TimeSource};
use crate::terms::Attached;

/// The last moment that a caller may tell: far enough from 2^53 for the longest limit.
const ONLY_MICROS: u64 = 5_500_000_000_000_000;
/// How often a call begins anew because somebody else changed its keys.
const TRIES_MAX: usize = 16;

/// Decides calls in Redis.
#[derive(Debug)]
pub(crate) struct Engine {
    client: Arc<Client>,
    prefix: String,
    time: TimeSource,
    stats: Arc<Stats>,
    /// Treats every part of a call as if it were in a slot of its own, so that what a cluster
    /// needs can be tried without one.
    #[cfg(test)]
    apart: bool,
}

/// What was seen of a key while it was decided upon: the leading item's index, the state after the
/// step as far as the reply told, and the time that counted.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) item: usize,
    pub(crate) state: Option<State>,
    pub(crate) now: Timestamp,
}

type Finds = SmallVec<[Found; INLINE]>;
type Members = SmallVec<[usize; INLINE]>;

impl Engine {
    pub(crate) fn new(
        client: Arc<Client>,
        prefix: String,
        time: TimeSource,
        stats: Arc<Stats>,
    ) -> Self {
        Self {
            client,
            prefix,
            time,
            stats,
            #[cfg(test)]
            apart: false,
        }
    }

    /// What a handle of this store carries; why not, if the limit does not fit.
    pub(crate) fn attach(limit: &Limit) -> Result<Attached, String> {
        Attached::new(limit)
    }

    /// Decides a call.
    pub(crate) async fn apply(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        seen: &mut SmallVec<[Seen; 4]>,
    ) -> Result<Outcome, RedisError> {
        let mut plan = Plan::new(call, self.is_by_slot(), self.client.deadline())?;
        match call.op {
            Op::Check => {
                let allowed = self.check(&plan, call, answers, seen, 0).await?;
                Ok(Outcome { allowed, granted: if allowed { call.cost } else { 0 } })
            }
            Op::Peek => {
                let mut found = self.ask_all(&plan, ScriptOp::Peek, call.now).await?;
                let allowed = plan.is_allowed(|place| found[place].fits);
                self.answer_all(&plan, call.items, &mut found, answers, seen, |_, _| Action::Look);
                Ok(Outcome { allowed, granted: if allowed { call.cost } else { 0 } })
            }
            Op::UpTo => self.up_to(&mut plan, call, answers, seen).await,
            Op::Force => {
                let mut found = self.ask_all(&plan, ScriptOp::Force, call.now).await?;
                self.answer_forced(&plan, call, &mut found, answers, seen);
                Ok(Outcome { allowed: true, granted: call.cost })
            }
            Op::Refund | Op::GiveBack(_) | Op::Reset => {
                let op = match call.op {
                    Op::Refund => ScriptOp::Refund,
                    Op::GiveBack(_) => ScriptOp::GiveBack,
                    _ => ScriptOp::Reset,
                };
                let mut found = self.ask_all(&plan, op, call.now).await?;
                self.answer_after(&plan, call.items, &mut found, answers, seen);
                Ok(Outcome { allowed: true, granted: call.cost })
            }
        }
    }

    fn answer_forced(
        &self,
        plan: &Plan<'_>,
        call: &Call<'_>,
        found: &mut [Found],
        answers: &mut [Answer],
        seen: &mut SmallVec<[Seen; 4]>,
    ) {
        // Whether it fits was not asked.
        for (part, found) in plan.parts.iter().zip(found.iter_mut()) {
            let ask = part.ask(found.now, plan.holder);
            found.fits = part.limit.fits(found.state.as_ref(), &ask, part.units);
        }
        self.answer_all(plan, call.items, found, answers, seen, |_, _| Action::Force);
    }

    /// Consumes from all limits if the request is admitted, from none otherwise; whether it is.
    async fn check(
        &self,
        plan: &Plan<'_>,
        call: &Call<'_>,
        answers: &mut [Answer],
        seen: &mut SmallVec<[Seen; 4]>,
        flags: u8,
    ) -> Result<bool, RedisError> {
        let slots = self.slots(plan, ScriptOp::Check);
        let mut found = match &*slots {
            [] => self.blocked(plan, call.now),
            [members] => {
                let mut found = self.blocked(plan, call.now);
                let question =
                    Question { op: ScriptOp::Check, flags, members, now: call.now, restoring: &[] };
                self.ask(plan, &question, &mut found).await?;
                found
            }
            _ => self.check_apart(plan, &slots, call.now, flags | APART).await?,
        };
        let allowed = plan.is_allowed(|place| found[place].fits);
        self.answer_all(plan, call.items, &mut found, answers, seen, |part, fits| {
            action_of(part, fits, allowed)
        });
        Ok(allowed)
    }

    /// Consumes as much as every enforced limit, and the most generous quota, admits: looks, and
    /// checks what it saw; again if somebody came in between.
    async fn up_to(
        &self,
        plan: &mut Plan<'_>,
        call: &Call<'_>,
        answers: &mut [Answer],
        seen: &mut SmallVec<[Seen; 4]>,
    ) -> Result<Outcome, RedisError> {
        for tries in 1.. {
            let found = self.ask_all(plan, ScriptOp::Peek, call.now).await?;
            let granted = grantable(plan, call, &found);
            // Nothing granted is a refusal, and says when one unit would be.
            let asked = granted.max(call.cost.min(1));
            for part in &mut plan.parts {
                part.units = part.weight.saturating_mul(asked);
            }
            seen.clear();
            let flags = if granted > 0 { ONLY_IF_ALLOWED } else { 0 };
            let allowed = self.check(plan, call, answers, seen, flags).await?;
            if allowed || granted == 0 || tries == TRIES_MAX {
                return Ok(Outcome { allowed, granted: if allowed { asked } else { 0 } });
            }
        }
        Err(RedisError::Contended)
    }

    /// Asks about all parts, whatever their slots.
    async fn ask_all(
        &self,
        plan: &Plan<'_>,
        op: ScriptOp,
        now: Timestamp,
    ) -> Result<Finds, RedisError> {
        let slots = self.slots(plan, op);
        let mut found = self.blocked(plan, now);
        match &*slots {
            [] => {}
            [members] => {
                let question = Question { op, flags: APART, members, now, restoring: &[] };
                self.ask(plan, &question, &mut found).await?;
            }
            _ => {
                for part in self.ask_apart(plan, &slots, op, APART, now).await {
                    for (place, one) in part? {
                        found[place] = one;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Asks about parts of one slot, and carries keys over to their limits where they have
    /// others.
    async fn ask(
        &self,
        plan: &Plan<'_>,
        question: &Question<'_>,
        found: &mut [Found],
    ) -> Result<(), RedisError> {
        for _ in 0..TRIES_MAX {
            match self.ask_once(plan, question).await? {
                Told::Found(all) => {
                    for (member, one) in question.members.iter().zip(all) {
                        found[*member] = one;
                    }
                    return Ok(());
                }
                Told::Stale { member, value, now } => {
                    let member = question.members.get(member).ok_or(reply::GARBLED)?;
                    self.carry_over(plan, *member, &value, now).await?;
                }
            }
        }
        Err(RedisError::Contended)
    }

    async fn ask_once(&self, plan: &Plan<'_>, question: &Question<'_>) -> Result<Told, RedisError> {
        let (command, is_quick) = self.encode(plan, question);
        let reply = self.client.run_by(command, plan.until).await?;
        let parts = question.members.iter().map(|member| &plan.parts[*member]);
        reply::read(reply, question.op, parts, plan.holder, is_quick)
    }

    /// The parts that Redis has to be asked about, by slot.
    fn slots(&self, plan: &Plan<'_>, op: ScriptOp) -> SmallVec<[Members; 1]> {
        let mut slots: SmallVec<[Members; 1]> = SmallVec::new();
        for (place, part) in plan.parts.iter().enumerate() {
            if !part.is_kept() && op != ScriptOp::Reset {
                continue;
            }
            let same =
                |members: &Members| !self.is_apart() && plan.parts[members[0]].slot == part.slot;
            match slots.iter_mut().find(|members| same(members)) {
                Some(members) => members.push(place),
                None => slots.push(smallvec![place]),
            }
        }
        slots
    }

    /// What is known of parts before Redis is asked.
    fn blocked(&self, plan: &Plan<'_>, now: Timestamp) -> Finds {
        plan.parts.iter().map(|part| Self::found_blocked(part, now)).collect()
    }

    fn is_by_slot(&self) -> bool {
        self.client.is_cluster()
    }

    #[cfg(test)]
    fn is_apart(&self) -> bool {
        self.apart
    }

    #[cfg(not(test))]
    fn is_apart(&self) -> bool {
        false
    }
}

/// How much every enforced limit, and the most generous quota, admits of the call's cost.
fn grantable(plan: &Plan<'_>, call: &Call<'_>, found: &[Found]) -> u64 {
    let mut enforced = call.cost;
    let mut quotas: SmallVec<[u64; INLINE]> = smallvec![u64::MAX; plan.quotas.len()];
    for (part, found) in plan.parts.iter().zip(found) {
        let ask = part.ask(found.now, plan.holder);
        let room = part.limit.room(found.state.as_ref(), &ask);
        let most = room.checked_div(part.weight).unwrap_or(u64::MAX);
        for group in &part.groups {
            match quotas.get_mut(usize::from(*group).wrapping_sub(1)) {
                Some(quota) => *quota = most.min(*quota),
                None => enforced = enforced.min(most),
            }
        }
    }
    enforced.min(quotas.into_iter().max().unwrap_or(u64::MAX))
}
