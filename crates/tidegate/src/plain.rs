//! The short way of a request that meets one plain limit, which nearly every request does.
//!
//! It decides what the general way decides; there is only less to carry about.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{Decision, Timestamp, join};
use tidegate_rules::{Found, Met, Reached};
use tidegate_store::{Item, Op};

use crate::armed::Armed;
use crate::rule_limiter::{Modes, Query, Way, at_once, on_error};
use crate::verdict::{Answered, By, Verdict};

/// The limit that a request meets, if it is the only one, and nothing else comes into it: no limit
/// that came along, none that only watches or is a quota, no permits, no cost of zero.
#[inline]
pub(crate) fn only_limit<'f, 'r>(
    modes: Modes,
    op: Op<'_>,
    query: &Query<'_>,
    found: &'f Found<'r>,
) -> Option<&'f Met<'r>> {
    let [met] = &found.limits[..] else { return None };
    let rule = met.rule;
    let is_plain = op == Op::Check
        && modes == Modes::default()
        && cost_of(met, query) > 0
        && !(rule.shadow || rule.quota || rule.limit.is_concurrency())
        && !found.reached.iter().any(|reached| matches!(reached, Reached::Override(_)));
    is_plain.then_some(met)
}

/// What the request costs that limit, but for the rule's own factor.
#[inline]
fn cost_of(met: &Met<'_>, query: &Query<'_>) -> u64 {
    query.descriptors[met.descriptor as usize].cost.unwrap_or(query.cost)
}

/// Checks that limit.
#[inline]
pub(crate) async fn check_only<'r, W: Way>(
    way: &W,
    armed: &Arc<Armed>,
    found: &Found<'r>,
    met: &Met<'r>,
    query: &Query<'_>,
    now: Timestamp,
) -> Result<Verdict, W::Error> {
    let item = item_of(armed, found, met, now);
    let decision = way.check_one(&item, cost_of(met, query), now).await?;
    Ok(conclude(armed, found, met, query, now, &decision))
}

/// [`check_only`] where nobody is waited for: a verdict is large, and is not moved about here.
#[inline(always)]
pub(crate) fn check_only_at_once<'r, W: Way>(
    way: &W,
    armed: &Arc<Armed>,
    found: &Found<'r>,
    met: &Met<'r>,
    query: &Query<'_>,
    now: Timestamp,
) -> Result<Verdict, W::Error> {
    let item = item_of(armed, found, met, now);
    let decision = at_once(way.check_one(&item, cost_of(met, query), now))?;
    Ok(conclude(armed, found, met, query, now, &decision))
}

#[inline]
fn item_of<'a, 'r>(
    armed: &'a Armed,
    found: &'a Found<'r>,
    met: &Met<'r>,
    now: Timestamp,
) -> Item<'a> {
    let calendar = armed.calendars[met.index as usize].as_ref();
    Item {
        factor: met.rule.cost.into(),
        windows: calendar.map(|calendar| calendar.windows(now)),
        on_error: on_error(met.rule),
        ..Item::new(found.key(met), &armed.handles[met.index as usize])
    }
}

#[inline(always)]
fn conclude(
    armed: &Arc<Armed>,
    found: &Found<'_>,
    met: &Met<'_>,
    query: &Query<'_>,
    now: Timestamp,
    decision: &Decision,
) -> Verdict {
    let decision = Decision { rule: 0, ..*decision };
    let limits: SmallVec<[Answered; 4]> =
        smallvec![Answered { descriptor: met.descriptor, decision, by: By::Rule(met.index) }];
    Verdict {
        allowed: decision.allowed,
        granted: if decision.allowed { query.cost } else { 0 },
        decision: join(decision.allowed, [&decision]),
        limits,
        reached: found.reached.clone(),
        knows_domain: found.knows_domain,
        denied_by: None,
        now,
        armed: Arc::clone(armed),
    }
}

/// The short way and the general way of a request decide alike; calendars are among the limits.
#[cfg(all(test, feature = "time-zones"))]
mod tests;
