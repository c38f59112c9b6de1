//! From what was found to what is answered: the engine takes the same step that the script took.

use smallvec::SmallVec;
use tidegate_core::{Action, Ask, Source, State, Taken, Timestamp};
use tidegate_store::{Answer, Item, Mode};

use super::plan::{Part, Plan};
use super::reply::Found;
use super::{Engine, Seen};

/// What becomes of each part of a check.
pub(super) fn action_of(part: &Part<'_>, fits: bool, allowed: bool) -> Action {
    let counts = part.limit.counts_rejected();
    match fits {
        true if allowed || counts => Action::Take,
        false if counts => Action::Count,
        _ => Action::Refuse,
    }
}

impl Engine {
    /// Answers every item of a call by what was found and what is done with it.
    pub(super) fn answer_all(
        &self,
        plan: &Plan<'_>,
        items: &[Item<'_>],
        found: &mut [Found],
        answers: &mut [Answer],
        seen: &mut SmallVec<[Seen; 4]>,
        action: impl Fn(&Part<'_>, bool) -> Action,
    ) {
        for (part, found) in plan.parts.iter().zip(found) {
            let ask = part.ask(found.now, plan.holder);
            let mut state = found.state.take();
            self.compare(part, &ask, state.as_ref(), found.fits);
            let action = action(part, found.fits);
            let answer = settle(part, &ask, &mut state, action);
            if let Some(place) = answers.get_mut(part.item) {
                *place = answer;
            }
            if part.is_kept() {
                seen.push(Seen { item: part.item, state, now: found.now });
            }
        }
        spread(plan, items, answers);
    }

    /// Answers every item of a call that gave something back, or that forgets.
    pub(super) fn answer_after(
        &self,
        plan: &Plan<'_>,
        items: &[Item<'_>],
        found: &mut [Found],
        answers: &mut [Answer],
        seen: &mut SmallVec<[Seen; 4]>,
    ) {
        for (part, found) in plan.parts.iter().zip(found) {
            let ask = part.ask(found.now, plan.holder);
            let state = found.state.take();
            let decision = part.limit.peek(state.as_ref(), &ask, 0);
            if let Some(place) = answers.get_mut(part.item) {
                *place = Answer { decision, taken: Taken::default() };
            }
            if part.is_kept() {
                seen.push(Seen { item: part.item, state, now: found.now });
            }
        }
        spread(plan, items, answers);
    }

    /// Counts where the script and the engine do not agree, which they always should.
    fn compare(&self, part: &Part<'_>, ask: &Ask, state: Option<&State>, fits: bool) {
        let expected = part.limit.fits(state, ask, part.units);
        if fits != expected {
            self.stats.disagreements.add(1);
            debug_assert_eq!(fits, expected, "{} of {:?}, {state:?}", part.units, part.limit);
        }
    }

    /// What was found of a part that Redis is not asked about.
    pub(super) fn found_blocked(part: &Part<'_>, now: Timestamp) -> Found {
        Found { fits: part.fits_blocked(), state: None, now, admitted_there: true }
    }
}

fn settle(part: &Part<'_>, ask: &Ask, state: &mut Option<State>, action: Action) -> Answer {
    let decision = match part.is_kept() {
        true => part.limit.settle(state, ask, part.units, action),
        false => part.limit.peek(None, ask, part.units),
    };
    let taken = match (action, state.as_ref()) {
        (Action::Take | Action::Force, Some(state)) if part.units > 0 => {
            part.limit.taken(state, ask, part.units)
        }
        _ => Taken::default(),
    };
    Answer { decision, taken }
}

/// The answer of each item, from those of the items that lead. What was taken was taken by the leader.
fn spread(plan: &Plan<'_>, items: &[Item<'_>], answers: &mut [Answer]) {
    for (index, (item, part)) in items.iter().zip(&plan.part_of).enumerate() {
        let leader = plan.parts.get(*part as usize).map_or(index, |part| part.item);
        let mut answer = answers.get(leader).copied().unwrap_or_default();
        if leader != index {
            answer.taken = Taken::default();
        }
        answer.decision.rule = u32::try_from(index).unwrap_or(u32::MAX);
        let watches = item.mode == Mode::Shadow;
        answer.decision.source = if watches { Source::Shadow } else { Source::Store };
        if let Some(place) = answers.get_mut(index) {
            *place = answer;
        }
    }
}
