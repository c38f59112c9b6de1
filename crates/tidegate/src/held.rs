//! What a request took and keeps until it is over: for front ends that see requests end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "rules")]
use tidegate_rules::Settling;
use tidegate_store::{Answer, HeldPart, Holding, Item, Mode, Registered};

use crate::admission::Keep;
use crate::turn::{Going, Room, shapes};

/// Who takes back what somebody holds.
pub(crate) trait GiveBack: Send + Sync {
    /// Brings a holding to its real cost, without being waited for.
    fn give_back(&self, holding: Holding, cost: u64);

    /// Where those stand who wait for their turn.
    fn room(&self) -> &Arc<Room>;
}

/// What a request that was [admitted](crate::Admission) has taken and may give back.
///
/// Dropping it gives back the permits of concurrency limits, and nothing else: what was counted
/// stays counted. So it is kept for as long as the request is under way, and whoever goes away early
/// leaves nothing behind.
pub struct Held {
    giver: Arc<dyn GiveBack>,
    holder: u128,
    parts: Vec<Part>,
}

/// What was taken from one key, and at which cost of the request.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) cost: u64,
    /// How long the limit holds the request back.
    pub(crate) delay: Duration,
    /// Whether those who come after it may have to wait.
    pub(crate) is_shaped: bool,
    /// What the answer changes of it, where the rules say so.
    #[cfg(feature = "rules")]
    pub(crate) settling: Option<Arc<Settling>>,
    pub(crate) held: HeldPart,
}

/// What is kept of a request: all of it, if a limit holds it back, or somebody who is late may, and
/// whoever sent it may not wait so long.
pub(crate) fn kept(keep: Keep, items: &[Item<'_>], answers: &[Answer], room: &Room) -> Keep {
    let mut asked = items.iter().zip(answers).filter(|(item, _)| item.mode != Mode::Shadow);
    let mut is_shaped = false;
    let is_held = asked.any(|(item, answer)| {
        is_shaped |= shapes(item.limit.limit());
        !answer.decision.delay.is_zero()
    });
    match is_held || (is_shaped && room.len() > 0) {
        true => Keep::All,
        false => keep,
    }
}

impl Part {
    /// What was taken from an item, if it is to be kept. `cost` is what the request costs without the
    /// factors of limits.
    pub(crate) fn of(
        item: &Item<'_>,
        handle: &Arc<Registered>,
        answer: &Answer,
        cost: u64,
        keep: Keep,
    ) -> Option<Self> {
        let Answer { decision, taken } = answer;
        let is_shadow = item.mode == Mode::Shadow;
        let delay = if is_shadow { Duration::ZERO } else { decision.delay };
        // Of nothing, everybody takes nothing; the real cost may still turn out to be something.
        let takes_part = if cost == 0 { !is_shadow } else { taken.cost > 0 };
        let is_shaped = shapes(handle.limit()) && !is_shadow;
        let is_permit = handle.limit().is_concurrency();
        if !takes_part || !(is_permit || is_shaped || keep == Keep::All) {
            return None;
        }
        let held = HeldPart {
            key: item.key.into(),
            limit: Arc::clone(handle),
            factor: taken.cost.checked_div(cost).unwrap_or(item.factor),
            windows: item.windows,
            taken: *taken,
        };
        Some(Self {
            cost,
            delay,
            is_shaped,
            #[cfg(feature = "rules")]
            settling: None,
            held,
        })
    }

    pub(crate) fn is_permit(&self) -> bool {
        self.held.limit.limit().is_concurrency()
    }
}

impl Held {
    pub(crate) fn new(giver: Arc<dyn GiveBack>, holder: u128, parts: Vec<Part>) -> Self {
        Self { giver, holder, parts }
    }

    /// Brings what was counted to the real cost of the request: the rest is given back, what is
    /// missing is taken as a debt. Zero gives everything back. Permits stay held, and what has been
    /// settled is not settled again.
    pub fn settle(&mut self, cost: u64) {
        let (permits, counted) =
            std::mem::take(&mut self.parts).into_iter().partition(Part::is_permit);
        self.parts = permits;
        self.give_back(counted, cost);
    }

    /// Brings what was counted to what the answer to the request says: `cost` is told what the rules say
    /// of each part, if anything, and gives its real cost, or `None` if it stays as it is.
    #[cfg(feature = "rules")]
    pub fn settle_each(&mut self, cost: impl Fn(Option<&Settling>) -> Option<u64>) {
        let real = |part: &Part| match part.is_permit() {
            true => None,
            false => cost(part.settling.as_deref()),
        };
        // Mostly everything stays, and then nothing is moved about.
        if !self.parts.iter().any(|part| real(part).is_some()) {
            return;
        }
        let (mut stays, mut settled) = (Vec::new(), Vec::new());
        for part in std::mem::take(&mut self.parts) {
            match real(&part) {
                Some(real) => settled.push((real, part)),
                None => stays.push(part),
            }
        }
        self.parts = stays;
        while let Some((real, _)) = settled.first() {
            let real = *real;
            let (same, rest): (Vec<_>, Vec<_>) =
                settled.into_iter().partition(|(cost, _)| *cost == real);
            settled = rest;
            self.give_back(same.into_iter().map(|(_, part)| part).collect(), real);
        }
    }

    /// Gives back everything that was counted; permits stay held.
    pub fn refund(&mut self) {
        self.settle(0);
    }

    /// Whether there are permits that somebody waits for.
    pub fn has_permits(&self) -> bool {
        self.parts.iter().any(Part::is_permit)
    }

    /// Keeps a request that has no [turn](crate::Turn) to wait for before those that come after it and
    /// may have one, and behind those that have been let go before; `None` if there is no such limit, or
    /// [too many](crate::HELD_MAX) are on their way.
    /// See [`Going`] for what to do with it.
    pub fn going(&self) -> Option<Going> {
        self.shaped().next()?;
        Going::pass(self.giver.room(), self.shaped())
    }

    /// Whether no limit holds the request back.
    pub(crate) fn is_due(&self) -> bool {
        self.parts.iter().all(|part| part.delay.is_zero())
    }

    /// What was taken of limits that may make others wait.
    pub(crate) fn shaped(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.is_shaped)
    }

    /// Takes out those parts that a test is true of.
    pub(crate) fn take(&mut self, is_wanted: impl FnMut(&Part) -> bool) -> Vec<Part> {
        let (wanted, rest) = std::mem::take(&mut self.parts).into_iter().partition(is_wanted);
        self.parts = rest;
        wanted
    }

    /// Puts parts back.
    pub(crate) fn put(&mut self, parts: impl IntoIterator<Item = Part>) {
        self.parts.extend(parts);
    }

    /// Brings parts to their real cost; those that cost the same go together.
    pub(crate) fn give_back(&self, mut parts: Vec<Part>, cost: u64) {
        while let Some(first) = parts.first() {
            let taken = first.cost;
            let (same, rest): (Vec<_>, Vec<_>) =
                parts.into_iter().partition(|part| part.cost == taken);
            parts = rest;
            let held = same.into_iter().map(|part| part.held).collect();
            let holding = Holding { cost: taken, holder: self.holder, parts: held };
            self.giver.give_back(holding, cost);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        parts.retain(Part::is_permit);
        if !parts.is_empty() {
            self.give_back(parts, 0);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = self.parts.iter().map(|part| part.held.limit.id());
        f.debug_list().entries(limits).finish()
    }
}
