//! From the limits that a request meets to what the store is asked.

use smallvec::SmallVec;
use tidegate_core::{Limit, Timestamp};
use tidegate_rules::{Found, Met, OnStoreError, Override, Rule};
use tidegate_store::{Item, Mode, OnError, Registered, Store};

use super::overrides::Handles;
use super::{Query, Shared};
use crate::armed::Armed;
use crate::plan::{FREE_QUOTA, NOBODY, Plan, sort_by_descriptor};
use crate::verdict::By;

/// What a rule answers when the store cannot.
pub(crate) fn on_error(rule: &Rule) -> OnError {
    match rule.on_store_error {
        OnStoreError::Allow => OnError::Allow,
        OnStoreError::Deny => OnError::Deny,
        OnStoreError::Local => OnError::Local,
    }
}

/// Which of the limits that a request meets are asked.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    All,
    /// Those that give permits.
    Permits,
}

impl Wanted {
    fn covers(self, limit: &Limit) -> bool {
        match self {
            Self::All => true,
            Self::Permits => limit.is_concurrency(),
        }
    }
}

impl<S: Store, C> Shared<S, C> {
    pub(super) fn plan<'a>(
        &self,
        armed: &'a Armed,
        found: &'a Found<'_>,
        overrides: &'a Handles,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Plan<'a> {
        let handle = |_: usize, met: &Met<'_>| &*armed.handles[met.index as usize];
        self.plan_with(armed, found, overrides, query, now, wanted, handle)
    }

    /// A plan with the limits of the rules as `handle` has them, which is told the position among
    /// those found.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "all that a plan is made of, and who has limits")]
    pub(super) fn plan_with<'a>(
        &self,
        armed: &'a Armed,
        found: &'a Found<'_>,
        overrides: &'a Handles,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
        handle: impl Fn(usize, &Met<'_>) -> &'a Registered,
    ) -> Plan<'a> {
        // Where descriptors have costs of their own, the call costs one and they are factors.
        let has_costs = query.descriptors.iter().any(|descriptor| descriptor.cost.is_some());
        let cost_of = |descriptor: usize| match has_costs {
            true => query.descriptors[descriptor].cost.unwrap_or(query.cost),
            false => 1,
        };
        let mut items: SmallVec<[Item<'a>; 4]> = SmallVec::new();
        let mut by: SmallVec<[(u32, By); 4]> = SmallVec::new();
        let mut unasked: SmallVec<[(u32, Override); 1]> = SmallVec::new();
        for (position, (handle, limit)) in (0u32..).zip(overrides.iter().zip(found.overrides())) {
            let Some(limit) = limit else { continue };
            let Some(handle) = handle else {
                unasked.push((position, limit));
                continue;
            };
            if !wanted.covers(handle.limit()) {
                continue;
            }
            items.push(Item {
                factor: cost_of(position as usize),
                mode: self.mode(false, false, position),
                ..Item::new(found.override_key(position as usize), handle)
            });
            by.push((position, By::Override(limit)));
        }
        for (place, met) in found.limits.iter().enumerate() {
            if !wanted.covers(&met.rule.limit) {
                continue;
            }
            let rule = met.rule;
            let calendar = armed.calendars[met.index as usize].as_ref();
            items.push(Item {
                factor: cost_of(met.descriptor as usize).saturating_mul(rule.cost.into()),
                mode: self.mode(rule.shadow, rule.quota, met.descriptor),
                windows: calendar.map(|calendar| calendar.windows(now)),
                on_error: on_error(rule),
                ..Item::new(found.key(met), handle(place, met))
            });
            by.push((met.descriptor, By::Rule(met.index)));
        }
        if overrides.iter().any(Option::is_some) {
            sort_by_descriptor(&mut items, &mut by);
        }
        // With quotas everywhere, a descriptor without a limit is one that is never over.
        let is_limited = |position: u32| by.iter().any(|(descriptor, _)| *descriptor == position);
        let count = u32::try_from(query.descriptors.len()).unwrap_or(u32::MAX);
        let free_quota = self.modes.quota && !(0..count).all(is_limited);
        if let Some(first) =
            items.first().copied().filter(|_| free_quota && !self.modes.independent)
        {
            let mode = Mode::Quota(FREE_QUOTA);
            items.push(Item {
                factor: 0,
                mode,
                windows: first.windows,
                ..Item::new(NOBODY, first.limit)
            });
        }
        let cost = if has_costs { 1 } else { query.cost };
        let holder = query.holder.unwrap_or_else(|| self.holders.next());
        let independent = self.modes.independent;
        Plan { items, by, unasked, cost, holder, independent, free_quota }
    }

    fn mode(&self, shadow: bool, quota: bool, descriptor: u32) -> Mode {
        match (shadow || self.modes.shadow, quota || self.modes.quota) {
            (true, _) => Mode::Shadow,
            (false, true) => Mode::Quota(descriptor),
            (false, false) => Mode::Enforce,
        }
    }
}
