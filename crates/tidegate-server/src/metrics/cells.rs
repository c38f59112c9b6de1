//! The counters of one rule.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate::{Decision, Source};

use crate::front_end::FrontEnd;

/// What became of a request, as far as one rule is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Allowed,
    Refused,
    Delayed,
    Queued,
    Soft,
    ShadowRefused,
}

impl Outcome {
    pub(super) const ALL: [Self; 6] = [
        Self::Allowed,
        Self::Refused,
        Self::Delayed,
        Self::Queued,
        Self::Soft,
        Self::ShadowRefused,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Delayed => "delayed",
            Self::Queued => "queued",
            Self::Soft => "soft",
            Self::ShadowRefused => "shadow_refused",
        }
    }

    /// What to count for a limit; nothing for one that would have admitted a request that another
    /// refused, since it was not asked for anything.
    pub(super) fn of(was_admitted: bool, decision: &Decision) -> Option<Self> {
        let is_shadow = decision.source == Source::Shadow;
        match (was_admitted, decision.allowed) {
            // It would have refused alone: it only watches, or another quota had room.
            (true, false) => Some(Self::ShadowRefused),
            (false, false) if is_shadow => Some(Self::ShadowRefused),
            (false, false) => Some(Self::Refused),
            (false, true) => None,
            (true, true) if decision.soft => Some(Self::Soft),
            (true, true) if !decision.delay.is_zero() => Some(Self::Delayed),
            (true, true) => Some(Self::Allowed),
        }
    }
}

/// The sources, in the order of their cells.
pub(super) const SOURCES: [Source; 5] =
    [Source::Store, Source::DenialCache, Source::Lease, Source::Fallback, Source::Shadow];

/// Decisions and their cost.
#[derive(Debug, Default)]
struct Cell {
    decisions: AtomicU64,
    cost: AtomicU64,
}

type Cells = [[Cell; SOURCES.len()]; Outcome::ALL.len()];

/// The counters of one rule, which take memory once a front end has asked it.
#[derive(Debug, Default)]
pub(super) struct RuleCells {
    front_ends: [OnceLock<Box<Cells>>; FrontEnd::ALL.len()],
}

/// A counter that is not zero.
#[derive(Debug)]
pub(super) struct Count {
    pub(super) front_end: FrontEnd,
    pub(super) outcome: Outcome,
    pub(super) source: Source,
    pub(super) decisions: u64,
    pub(super) cost: u64,
}

impl RuleCells {
    pub(super) fn add(&self, front_end: FrontEnd, outcome: Outcome, source: Source, cost: u64) {
        let cells = self.front_ends[front_end as usize].get_or_init(Box::default);
        let place = SOURCES.iter().position(|known| *known == source).unwrap_or(0);
        let cell = &cells[outcome as usize][place];
        cell.decisions.fetch_add(1, Relaxed);
        cell.cost.fetch_add(cost, Relaxed);
    }

    /// The counters that are not zero.
    pub(super) fn counts(&self) -> impl Iterator<Item = Count> {
        let asked = FrontEnd::ALL.into_iter().zip(&self.front_ends);
        let asked = asked.filter_map(|(front_end, cells)| Some((front_end, cells.get()?)));
        let outcomes = asked.flat_map(|(front_end, cells)| {
            Outcome::ALL
                .into_iter()
                .zip(cells.iter())
                .map(move |(outcome, cells)| (front_end, outcome, cells))
        });
        let all = outcomes.flat_map(|(front_end, outcome, cells)| {
            SOURCES.into_iter().zip(cells).map(move |(source, cell)| Count {
                front_end,
                outcome,
                source,
                decisions: cell.decisions.load(Relaxed),
                cost: cell.cost.load(Relaxed),
            })
        });
        all.filter(|count| count.decisions > 0)
    }
}
