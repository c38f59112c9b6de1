//! What is counted, and where: one call for each decision, from one place.
//!
//! Labels are bounded by the rules and never hold what a client sent. Each rule has its own cells,
//! found by its position, so that counting is a few additions; how it all reads is in `render`.

mod cells;
mod gateway;
mod histogram;
mod lyft;
mod render;
mod store;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate::rules::{Descriptor, Reached, Rule, Rules};
use tidegate::{Answered, Decision, Op, Query, Source, Verdict};

use self::cells::{Outcome, RuleCells};
pub use self::gateway::{GatewayStats, UpstreamStats};
use self::histogram::Histogram;
use self::lyft::LyftCells;
pub(crate) use self::render::METRICS_TYPE;
use crate::front_end::FrontEnd;

/// What rules are called that nobody wrote.
const OVERRIDE: &str = "override";
const BLOCK: &str = "block";
const MISSING_VALUE: &str = "missing_value";
/// The domain of those that the rules do not know.
const UNKNOWN: &str = "unknown";

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    near_limit_ratio: f32,
    /// Whether each descriptor is decided by itself, as at Lyft's.
    is_independent: bool,
    table: ArcSwap<Table>,
    unknown: Arc<Domain>,
    lyft: LyftCells,
    /// What is counted by names that come with commands.
    named: [(&'static str, RuleCells); 2],
    front_ends: [FrontEndCells; FrontEnd::ALL.len()],
    reloads: [AtomicU64; 2],
}

/// Where the rules of one generation are counted.
#[derive(Debug, Default)]
struct Table {
    generation: u64,
    rules: Vec<Arc<Counted>>,
    domains: HashMap<Box<str>, Arc<Domain>>,
}

/// A rule and where it is counted.
#[derive(Debug)]
struct Counted {
    domain: Box<str>,
    id: Box<str>,
    counter: Box<str>,
    cells: RuleCells,
    lyft: lyft::Key,
}

/// What is counted of a domain beside its rules.
#[derive(Debug, Default)]
struct Domain {
    no_match: AtomicU64,
    overrides: RuleCells,
    blocks: RuleCells,
    missing: RuleCells,
}

/// What is counted of a front end.
#[derive(Debug, Default)]
struct FrontEndCells {
    seconds: Histogram,
    bad_requests: AtomicU64,
    connections: AtomicI64,
    turned_away: AtomicU64,
    accept_errors: AtomicU64,
}

impl FrontEndCells {
    /// Takes over what a gateway has counted by itself.
    fn copy(&self, stats: &GatewayStats) {
        self.connections.store(i64::try_from(stats.connections).unwrap_or(i64::MAX), Relaxed);
        self.turned_away.store(stats.connections_refused, Relaxed);
        self.bad_requests.store(stats.bad_requests, Relaxed);
        self.accept_errors.store(stats.accept_errors, Relaxed);
    }
}

impl Metrics {
    pub(crate) fn new(near_limit_ratio: f32, is_independent: bool) -> Self {
        Self {
            near_limit_ratio,
            is_independent,
            table: ArcSwap::default(),
            unknown: Arc::default(),
            lyft: LyftCells::default(),
            named: ["CL.THROTTLE", "GCRA"].map(|name| (name, RuleCells::default())),
            front_ends: Default::default(),
            reloads: Default::default(),
        }
    }

    /// Makes ready to count what these rules decide. What rules that are still there have counted
    /// stays; those that are gone are forgotten.
    pub(crate) fn follow(&self, generation: u64, rules: &Rules) {
        let old = self.table.load();
        let known: HashMap<&str, &Arc<Counted>> =
            old.rules.iter().map(|counted| (&*counted.counter, counted)).collect();
        let counted = rules.ways().into_iter().zip(rules.all()).map(|(way, rule)| {
            let lyft = self.lyft.key(&way);
            match known.get(&*rule.counter) {
                Some(same) if same.id == rule.id && same.lyft == lyft => Arc::clone(same),
                _ => Arc::new(Counted {
                    domain: way.domain.into(),
                    id: rule.id.clone(),
                    counter: rule.counter.clone(),
                    cells: RuleCells::default(),
                    lyft,
                }),
            }
        });
        let rules_counted = counted.collect();
        let domains = rules
            .domains()
            .map(|domain| (domain.into(), old.domains.get(domain).cloned().unwrap_or_default()));
        let domains = domains.collect();
        self.table.store(Arc::new(Table { generation, rules: rules_counted, domains }));
        drop(known);
        drop(old);
        let dynamic = rules.ways().into_iter().filter(|way| way.is_dynamic);
        let dynamic: HashSet<&str> = dynamic.map(|way| way.domain).collect();
        self.lyft.forget(|domain| dynamic.contains(domain));
    }

    /// Counts a decision by rules. Only what may consume is one: not a look, and not a refund.
    pub(crate) fn decided(
        &self,
        front_end: FrontEnd,
        op: Op<'_>,
        query: &Query<'_>,
        verdict: &Verdict,
    ) {
        if !matches!(op, Op::Check | Op::UpTo | Op::Force) {
            return;
        }
        let table = self.table.load();
        for answered in &verdict.limits {
            self.answered(&table, front_end, query, verdict, answered);
        }
        let nowhere = verdict.reached.iter().filter(|reached| **reached == Reached::Nothing);
        let nowhere = nowhere.count() as u64;
        if nowhere > 0 {
            self.domain(&table, query.domain).no_match.fetch_add(nowhere, Relaxed);
        }
        if verdict.denied_by.is_some() {
            let cells = &self.domain(&table, query.domain).missing;
            cells.add(front_end, Outcome::Refused, Source::Store, query.cost);
        }
    }

    fn answered(
        &self,
        table: &Table,
        front_end: FrontEnd,
        query: &Query<'_>,
        verdict: &Verdict,
        answered: &Answered,
    ) {
        let decision = &answered.decision;
        let cost = cost_of(query, answered);
        let source = decision.source;
        // Where each is decided by itself, one that admits has taken, whatever the others say.
        let was_admitted = verdict.allowed || (self.is_independent && decision.allowed);
        let outcome = Outcome::of(was_admitted, decision);
        let rule = verdict.rule_index(answered).and_then(|index| verdict.rules().all().get(index));
        let (Some(index), Some(rule)) = (verdict.rule_index(answered), rule) else {
            let domain = self.domain(table, query.domain);
            let cells = if answered.is_block() { &domain.blocks } else { &domain.overrides };
            if let Some(outcome) = outcome {
                cells.add(front_end, outcome, source, cost);
            }
            return;
        };
        // A request that began before a reload may end after it.
        let same = || table.rules.iter().find(|counted| counted.counter == rule.counter);
        let counted = match table.generation == verdict.generation() {
            true => table.rules.get(index),
            false => same(),
        };
        let Some(counted) = counted else { return };
        if let Some(outcome) = outcome {
            let units = cost.saturating_mul(rule.cost.into());
            counted.cells.add(front_end, outcome, source, units);
        }
        self.count_as_lyft(counted, rule, query, verdict, answered, cost);
    }

    fn count_as_lyft(
        &self,
        counted: &Counted,
        rule: &Rule,
        query: &Query<'_>,
        verdict: &Verdict,
        answered: &Answered,
        hits: u64,
    ) {
        let tell = || {
            let descriptor = query.descriptors.get(answered.descriptor as usize);
            let descriptor = descriptor.map(|descriptor: &Descriptor<'_>| descriptor.entries);
            (query.domain, descriptor.unwrap_or_default())
        };
        self.lyft.count(&counted.lyft, verdict.rules(), tell, |cell| {
            let ratio = self.near_limit_ratio;
            let was_admitted = verdict.allowed || self.is_independent;
            cell.add(&answered.decision, was_admitted, hits, rule.cost, ratio);
        });
    }

    fn domain<'t>(&'t self, table: &'t Table, domain: &str) -> &'t Domain {
        table.domains.get(domain).unwrap_or(&self.unknown)
    }

    /// Counts a decision by a limit that came with a command.
    pub(crate) fn decided_with(
        &self,
        front_end: FrontEnd,
        name: &'static str,
        cost: u64,
        decision: &Decision,
    ) {
        let cells = self.named.iter().find(|(known, _)| *known == name).map(|(_, cells)| cells);
        let Some(cells) = cells.filter(|_| cost > 0) else { return };
        let outcome = if decision.allowed { Outcome::Allowed } else { Outcome::Refused };
        cells.add(front_end, outcome, decision.source, cost);
    }

    /// How long a decision took.
    pub(crate) fn took(&self, front_end: FrontEnd, time: Duration) {
        self.cells(front_end).seconds.observe(time);
    }

    /// Counts a request that was not understood.
    pub(crate) fn bad_request(&self, front_end: FrontEnd) {
        self.cells(front_end).bad_requests.fetch_add(1, Relaxed);
    }

    /// Counts rules that were loaded, or were not because something is wrong with them.
    pub(crate) fn reloaded(&self, is_good: bool) {
        self.reloads[usize::from(is_good)].fetch_add(1, Relaxed);
    }

    pub(crate) fn accept_failed(&self, front_end: FrontEnd) {
        self.cells(front_end).accept_errors.fetch_add(1, Relaxed);
    }

    /// Counts a connection that was closed because there are too many.
    pub(crate) fn turned_away(&self, front_end: FrontEnd) {
        self.cells(front_end).turned_away.fetch_add(1, Relaxed);
    }

    pub(crate) fn connected(&self, front_end: FrontEnd) {
        self.cells(front_end).connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn disconnected(&self, front_end: FrontEnd) {
        self.cells(front_end).connections.fetch_sub(1, Relaxed);
    }

    /// How many decisions a front end has asked for.
    pub(crate) fn decisions(&self, front_end: FrontEnd) -> u64 {
        self.cells(front_end).seconds.count()
    }

    fn cells(&self, front_end: FrontEnd) -> &FrontEndCells {
        &self.front_ends[front_end as usize]
    }
}

/// What a request costs where a limit stands, before the rule's own factor.
fn cost_of(query: &Query<'_>, answered: &Answered) -> u64 {
    let descriptor = query.descriptors.get(answered.descriptor as usize);
    descriptor.and_then(|descriptor| descriptor.cost).unwrap_or(query.cost)
}
