//! A request on its way to the store, and from the store's answers to a verdict.

use std::ops::Range;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{Decision, Timestamp, join};
use tidegate_rules::{Found, Override};
use tidegate_store::{Answer, Call, Item, Mode, Op, Outcome};

use crate::armed::Armed;
use crate::rule_limiter::Query;
use crate::verdict::{Answered, By, Verdict};

/// The key of nobody, for an item that only says that a quota is not over.
pub(crate) const NOBODY: &[u8] = b"";
/// The number of that quota.
pub(crate) const FREE_QUOTA: u32 = u32::MAX;

/// A request on its way to the store.
pub(crate) struct Plan<'a> {
    pub(crate) items: SmallVec<[Item<'a>; 4]>,
    /// Which descriptor and rule each item is for; one less than items where one is for nobody.
    pub(crate) by: SmallVec<[(u32, By); 4]>,
    /// Limits that came with the request and that the store had no room to know. They admit, as a
    /// store that cannot answer does, and say so.
    pub(crate) unasked: SmallVec<[(u32, Override); 1]>,
    pub(crate) cost: u64,
    pub(crate) holder: u128,
    pub(crate) independent: bool,
    /// Quotas are not over, because a descriptor has no limit at all.
    pub(crate) free_quota: bool,
}

impl<'a> Plan<'a> {
    /// The items that are decided together: all, or those of a descriptor.
    pub(crate) fn parts(&self) -> SmallVec<[Range<usize>; 4]> {
        if self.items.is_empty() {
            return SmallVec::new();
        }
        if !self.independent {
            return smallvec![0..self.items.len()];
        }
        let mut parts: SmallVec<[Range<usize>; 4]> = SmallVec::new();
        for (index, (descriptor, _)) in self.by.iter().enumerate() {
            match parts.last_mut() {
                Some(part) if self.by[part.start].0 == *descriptor => part.end = index + 1,
                _ => parts.push(index..index + 1),
            }
        }
        parts
    }

    pub(crate) fn places(&self) -> SmallVec<[Answer; 4]> {
        smallvec![Answer::default(); self.items.len()]
    }

    pub(crate) fn call<'c>(&'c self, op: Op<'c>, part: Range<usize>, now: Timestamp) -> Call<'c> {
        Call::new(op, &self.items[part], self.cost, now).held_by(self.holder)
    }

    pub(crate) fn conclude(
        &self,
        outcomes: &Outcomes,
        answers: &[Answer],
        found: &Found<'_>,
        armed: &Arc<Armed>,
        query: &Query<'_>,
        now: Timestamp,
    ) -> Verdict {
        let allowed = self.is_allowed(outcomes);
        let answered = self.by.iter().zip(answers).zip(0u32..);
        let mut limits: SmallVec<[Answered; 4]> = answered
            .map(|(((descriptor, by), answer), index)| Answered {
                descriptor: *descriptor,
                // Its place among all limits, also where each descriptor was asked by itself.
                decision: Decision { rule: index, ..answer.decision },
                by: *by,
            })
            .collect();
        for (descriptor, limit) in &self.unasked {
            let rule = u32::try_from(limits.len()).unwrap_or(u32::MAX);
            let decision = Decision::without_state(true, limit.requests_per_unit.into());
            limits.push(Answered {
                descriptor: *descriptor,
                decision: Decision { rule, ..decision },
                by: By::Override(*limit),
            });
        }
        let decision = join(allowed, limits.iter().map(|answered| &answered.decision));
        let granted = match allowed {
            true if self.cost == query.cost => self.granted(outcomes),
            true => query.cost,
            false => 0,
        };
        Verdict {
            allowed,
            granted,
            decision,
            limits,
            reached: found.reached.clone(),
            knows_domain: found.knows_domain,
            denied_by: None,
            now,
            armed: Arc::clone(armed),
        }
    }

    /// How much all admit, and of the quotas the most generous.
    fn granted(&self, outcomes: &Outcomes) -> u64 {
        if let [(outcome, _)] = &outcomes.parts[..] {
            return outcome.granted;
        }
        let (mut least, mut quota) = (self.cost, None);
        for (outcome, part) in &outcomes.parts {
            match self.is_quota(part) {
                true => quota = quota.max(Some(outcome.granted)),
                false => least = least.min(outcome.granted),
            }
        }
        quota.filter(|_| !self.free_quota).map_or(least, |quota| least.min(quota))
    }

    /// Whether the items of a descriptor are a quota; those of its limits that only watch do not
    /// say.
    fn is_quota(&self, part: &Range<usize>) -> bool {
        self.items[part.clone()].iter().any(|item| matches!(item.mode, Mode::Quota(_)))
    }

    /// Whether the request as a whole is admitted: nobody refuses, and of the quotas not all.
    fn is_allowed(&self, outcomes: &Outcomes) -> bool {
        let parts = || outcomes.parts.iter();
        if !self.independent {
            return parts().all(|(outcome, _)| outcome.allowed);
        }
        let mut quotas = parts().filter(|(_, part)| self.is_quota(part)).peekable();
        parts().filter(|(_, part)| !self.is_quota(part)).all(|(outcome, _)| outcome.allowed)
            && (self.free_quota
                || quotas.peek().is_none()
                || quotas.any(|(outcome, _)| outcome.allowed))
    }
}

/// What the store said to each part.
#[derive(Default)]
pub(crate) struct Outcomes {
    parts: SmallVec<[(Outcome, Range<usize>); 4]>,
}

impl Outcomes {
    pub(crate) fn add(&mut self, outcome: Outcome, part: Range<usize>) {
        self.parts.push((outcome, part));
    }
}

/// Puts limits that requests bring along among those of the rules.
pub(crate) fn sort_by_descriptor(
    items: &mut SmallVec<[Item<'_>; 4]>,
    by: &mut SmallVec<[(u32, By); 4]>,
) {
    let mut order: SmallVec<[usize; 4]> = (0..by.len()).collect();
    order.sort_by_key(|index| by[*index].0);
    *items = order.iter().map(|index| items[*index]).collect();
    *by = order.iter().map(|index| by[*index]).collect();
}
