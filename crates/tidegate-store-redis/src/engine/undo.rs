//! Calls whose keys are in several slots: one call of the script per slot, side by side.
//!
//! Each slot takes what fits there, unless one of its own enforced limits refuses. If the request as
//! a whole is refused, what the other slots took is taken back: a key that nobody has changed in
//! between is put back exactly as it was, any other gets back what is left of the taking, which
//! is never more. In between, others may see these units used, and be refused because of it; who
//! stops in between leaves them used until time has paid for them.

use smallvec::SmallVec;
use tidegate_core::{Action, State, Taken, Timestamp};
use tokio::task::JoinHandle;

use super::answer::action_of;
use super::carry::till;
use super::join::join_all;
use super::plan::{Part, Plan};
use super::reply::{Found, open};
use super::request::{ONLY_IF_ALLOWED, Question, Restoring};
use super::{Engine, Finds, Members};
use crate::client::{ClientError, Command};
use crate::script::ScriptOp;
use crate::store::RedisError;
use crate::terms::{Terms, lists};

/// What the script says when it did what it was asked to.
const DONE: u8 = 1;

/// What one slot found, by part.
type OfSlot = Result<Vec<(usize, Found)>, RedisError>;

impl Engine {
    /// Asks every slot for itself.
    pub(super) async fn ask_apart(
        &self,
        plan: &Plan<'_>,
        slots: &[Members],
        op: ScriptOp,
        flags: u8,
        now: Timestamp,
    ) -> Vec<OfSlot> {
        let ask = async |members: &Members| {
            let mut found = self.blocked(plan, now);
            let question = Question { op, flags, members, now, restoring: &[] };
            self.ask(plan, &question, &mut found).await?;
            Ok(members.iter().map(|member| (*member, found[*member].clone())).collect())
        };
        join_all(slots.iter().map(ask)).await
    }

    /// A check over several slots.
    pub(super) async fn check_apart(
        &self,
        plan: &Plan<'_>,
        slots: &[Members],
        now: Timestamp,
        flags: u8,
    ) -> Result<Finds, RedisError> {
        let mut found = self.blocked(plan, now);
        let mut error = None;
        let mut asked: Members = SmallVec::new();
        for of_slot in self.ask_apart(plan, slots, ScriptOp::Check, flags, now).await {
            match of_slot {
                Ok(all) => {
                    for (member, one) in all {
                        found[member] = one;
                        asked.push(member);
                    }
                }
                Err(why) => {
                    // It may have taken something, and nobody will ever know.
                    if matches!(
                        why,
                        RedisError::Client(ClientError::Deadline | ClientError::Lost(_))
                    ) {
                        self.stats.given_up.add(1);
                    }
                    error = Some(why);
                }
            }
        }
        let allowed = error.is_none() && plan.is_allowed(|place| found[place].fits);
        let undoing = match allowed {
            true => None,
            false => self.take_back(plan, slots, &found, &asked, now, flags),
        };
        if let Some(why) = error {
            // The caller has waited long enough.
            return Err(why);
        }
        if let Some(undoing) = undoing
            && undoing.await.is_err()
        {
            self.stats.given_up.add(1);
        }
        Ok(found)
    }

    /// Takes back what slots took of a request that is refused as a whole, also if nobody waits
    /// for it.
    pub(super) fn take_back(
        &self,
        plan: &Plan<'_>,
        slots: &[Members],
        found: &[Found],
        asked: &[usize],
        now: Timestamp,
        flags: u8,
    ) -> Option<JoinHandle<()>> {
        let mut commands = Vec::new();
        for members in slots {
            let took = |member: &&usize| {
                let (part, found) = (&plan.parts[**member], &found[**member]);
                let keeps = part.limit.counts_rejected() && flags & ONLY_IF_ALLOWED == 0;
                let took = found.fits && found.admitted_there && part.units > 0;
                asked.contains(member) && took && !keeps
            };
            let members: Members = members.iter().filter(took).copied().collect();
            if !members.is_empty() {
                commands.push(self.undoing(plan, &members, found, now));
            }
        }
        if commands.is_empty() {
            return None;
        }
        self.stats.compensations.add(1);
        let (client, stats) = (self.client.clone(), self.stats.clone());
        let all = async move {
            for done in join_all(commands.into_iter().map(|command| client.run(command))).await {
                // A key that has moved on to another limit took along what was used.
                let told = done.map_err(RedisError::from).and_then(open);
                if !matches!(told, Ok((DONE, _, _))) {
                    stats.given_up.add(1);
                    tracing::debug!(?told, "units of a refused request could not be taken back");
                }
            }
        };
        Some(tokio::spawn(all))
    }

    fn undoing(
        &self,
        plan: &Plan<'_>,
        members: &[usize],
        found: &[Found],
        now: Timestamp,
    ) -> Command {
        let holder = plan.holder;
        let mut undone = Plan {
            parts: SmallVec::new(),
            part_of: SmallVec::new(),
            quotas: SmallVec::new(),
            holder,
            until: plan.until,
        };
        let mut restoring = Vec::with_capacity(members.len());
        for member in members {
            let (part, found) = (&plan.parts[*member], &found[*member]);
            let (restored, taken) = restoring_of(part, found, holder);
            restoring.push(restored);
            undone.parts.push(Part {
                takings: SmallVec::from_iter([taken]),
                groups: SmallVec::new(),
                ..*part
            });
        }
        let members: Members = (0..members.len()).collect();
        let question = Question {
            op: ScriptOp::Undo,
            flags: 0,
            members: &members,
            now,
            restoring: &restoring,
        };
        self.encode(&undone, &question).0
    }
}

/// What a part was before and is after it took, and what it took.
fn restoring_of(part: &Part<'_>, found: &Found, holder: u128) -> (Restoring, Taken) {
    let ask = part.ask(found.now, holder);
    let (mut before, mut after) = (found.state.clone(), found.state.clone());
    let own_before = lists_own(part, before.as_ref(), holder);
    let _ = part.limit.settle(&mut after, &ask, part.units, Action::Take);
    let taken = after.as_ref().map(|state| part.limit.taken(state, &ask, part.units));
    // What a refusal leaves behind, which is more than nothing where first sight counts.
    let _ = part.limit.settle(&mut before, &ask, part.units, action_of(part, true, false));
    let till =
        before.as_ref().map_or(0.0, |state| till(part.limit, state, part, found.now, holder));
    let bytes = |state: Option<&State>| match (&part.attached.terms, state) {
        (_, None) | (Terms::SlidingLog, _) => SmallVec::new(),
        (Terms::Concurrency, state) => lists_own(part, state, holder),
        (terms, Some(state)) => terms.write_state(part.limit, state),
    };
    let before = match part.attached.terms {
        Terms::Concurrency => own_before,
        _ => bytes(before.as_ref()),
    };
    (Restoring { after: bytes(after.as_ref()), before, till }, taken.unwrap_or_default())
}

fn lists_own(part: &Part<'_>, state: Option<&State>, holder: u128) -> SmallVec<[u8; 32]> {
    match part.attached.terms {
        Terms::Concurrency => lists::write_holder(part.limit, state, holder).into(),
        _ => SmallVec::new(),
    }
}
