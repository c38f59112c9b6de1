//! The counters that Lyft's service keeps, under its names.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate::lyft::Hits;
use tidegate::rules::{Descriptor, Entry, Found, Rules, Way};
use tidegate::{Decision, Source};

/// How many series rules may make that tell apart what requests have; beyond it they are one.
const SERIES_MAX: usize = 10_000;
/// How long what a request has may be to be told apart.
const LEVEL_BYTES_MAX: usize = 256;
/// What the rest is called.
const OTHER: &str = "other";

/// The labels of a series.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Labels {
    pub(super) domain: Box<str>,
    /// The first two levels; what is below them is counted with them.
    pub(super) key1: Box<str>,
    pub(super) key2: Box<str>,
}

impl Labels {
    fn new(domain: &str, levels: &[String]) -> Self {
        let level = |index: usize| levels.get(index).map_or("", |level| level).into();
        Self { domain: domain.into(), key1: level(0), key2: level(1) }
    }
}

/// All series.
#[derive(Debug, Default)]
pub(super) struct LyftCells {
    series: Mutex<HashMap<Labels, Arc<LyftCell>>>,
}

/// Where a rule is counted.
#[derive(Clone, Debug)]
pub(super) enum Key {
    /// Always here.
    One(Labels, Arc<LyftCell>),
    /// That depends on what a request has.
    Dynamic,
    /// Nowhere: of several limits on one descriptor, the first counts.
    None,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::One(one, _), Self::One(other, _)) => one == other,
            (Self::Dynamic, Self::Dynamic) | (Self::None, Self::None) => true,
            _ => false,
        }
    }
}

/// The counters of a series, in units of cost.
#[derive(Debug, Default)]
pub(super) struct LyftCell {
    pub(super) total_hits: AtomicU64,
    pub(super) over_limit: AtomicU64,
    pub(super) near_limit: AtomicU64,
    pub(super) within_limit: AtomicU64,
    pub(super) shadow_mode: AtomicU64,
    pub(super) over_limit_with_local_cache: AtomicU64,
}

impl LyftCells {
    /// Where a rule is to be counted.
    pub(super) fn key(&self, way: &Way<'_>) -> Key {
        if way.position > 0 {
            return Key::None;
        }
        if way.is_dynamic {
            return Key::Dynamic;
        }
        let labels = Labels::new(way.domain, &way.levels);
        let cell = self.series(labels.clone(), usize::MAX);
        Key::One(labels, cell)
    }

    fn series(&self, labels: Labels, most: usize) -> Arc<LyftCell> {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let labels = match series.len() >= most && !series.contains_key(&labels) {
            true => Labels { key1: OTHER.into(), key2: "".into(), ..labels },
            false => labels,
        };
        Arc::clone(series.entry(labels).or_default())
    }

    /// Gives `add` the cell for a request; `tell` says its domain and the entries of the descriptor.
    pub(super) fn count<'a>(
        &self,
        key: &Key,
        rules: &Rules,
        tell: impl FnOnce() -> (&'a str, &'a [Entry<'a>]),
        add: impl FnOnce(&LyftCell),
    ) {
        match key {
            Key::One(_, cell) => add(cell),
            Key::None => {}
            Key::Dynamic => {
                let (domain, entries) = tell();
                let mut found = Found::new();
                rules.find(domain, &[Descriptor::new(entries)], &mut found);
                if let Some(levels) = rules.stats_levels(&found, 0, entries) {
                    let is_long = levels.iter().any(|level| level.len() > LEVEL_BYTES_MAX);
                    let most = if is_long { 0 } else { SERIES_MAX };
                    add(&self.series(Labels::new(domain, &levels), most));
                }
            }
        }
    }

    /// Forgets the series that no rule is counted in, unless their domain is to be kept.
    pub(super) fn forget(&self, keep: impl Fn(&str) -> bool) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        series.retain(|labels, cell| Arc::strong_count(cell) > 1 || keep(&labels.domain));
    }

    /// All series, in order.
    pub(super) fn all(&self) -> Vec<(Labels, Arc<LyftCell>)> {
        let series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            series.iter().map(|(labels, cell)| (labels.clone(), Arc::clone(cell))).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

impl LyftCell {
    /// Counts what a limit said to a cost of `hits`, of which each takes `factor` units.
    pub(super) fn add(
        &self,
        decision: &Decision,
        was_admitted: bool,
        hits: u64,
        factor: u32,
        near_limit_ratio: f32,
    ) {
        self.total_hits.fetch_add(hits, Relaxed);
        let units = hits.saturating_mul(factor.into());
        let used = decision.limit.saturating_sub(decision.remaining);
        // What was taken is among what is used; of a request that was refused nothing was taken.
        let was_taken = was_admitted && decision.allowed;
        let before = if was_taken { used.saturating_sub(units) } else { used };
        let counted = Hits::count(decision.limit, before, units, near_limit_ratio);
        let per_hit = |units: u64| units / u64::from(factor.max(1));
        let add = |cell: &AtomicU64, units: u64| {
            if units > 0 {
                cell.fetch_add(per_hit(units), Relaxed);
            }
        };
        match decision.allowed {
            true => {
                add(&self.near_limit, counted.near);
                add(&self.within_limit, counted.within);
            }
            false => {
                add(&self.over_limit, counted.over);
                add(&self.near_limit, counted.near);
                if decision.source == Source::Shadow {
                    add(&self.shadow_mode, units);
                }
                if decision.source == Source::DenialCache {
                    add(&self.over_limit_with_local_cache, units);
                }
            }
        }
    }
}
