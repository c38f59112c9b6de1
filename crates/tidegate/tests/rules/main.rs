//! Limits by rules, from the text of a file to the decision.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod admitting;
mod awaited;
mod corpus;
mod deciding;
mod reload;

use tidegate::rules::{Descriptor, Entry, File, Options, Rules};
use tidegate::{ManualClock, MemoryStore, Modes, Op, Query, RuleLimiter, Timestamp, Verdict};

/// A limiter on a clock that the test moves.
pub(crate) type TestLimiter = RuleLimiter<MemoryStore, ManualClock>;

/// The rules of one file.
pub(crate) fn rules(text: &str) -> Rules {
    rules_with(text, &Options::default())
}

pub(crate) fn rules_with(text: &str, options: &Options) -> Rules {
    let loaded = Rules::load(&[File { name: "rules.yaml", text }], options);
    assert!(loaded.report.is_ok(), "{}", loaded.report);
    loaded.rules.unwrap()
}

pub(crate) fn limiter(text: &str) -> TestLimiter {
    limiter_with(text, Modes::default())
}

pub(crate) fn limiter_with(text: &str, modes: Modes) -> TestLimiter {
    let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
    RuleLimiter::build(MemoryStore::new(), clock, rules(text), modes).unwrap()
}

/// A request with descriptors written as `user=ada path=/`, each with a cost of its own or not.
pub(crate) struct Ask<'a> {
    pub(crate) limiter: &'a TestLimiter,
    pub(crate) op: Op<'static>,
    pub(crate) cost: u64,
    pub(crate) costs: &'a [Option<u64>],
    pub(crate) holder: Option<u128>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(limiter: &'a TestLimiter) -> Self {
        Self { limiter, op: Op::Check, cost: 1, costs: &[], holder: None }
    }

    pub(crate) fn descriptors(&self, written: &[&str]) -> Verdict {
        let entries: Vec<Vec<Entry<'_>>> = written
            .iter()
            .map(|one| {
                let pairs = one.split(' ').map(|pair| pair.split_once('=').unwrap());
                pairs.map(|(key, value)| Entry::new(key, value)).collect()
            })
            .collect();
        let costs = self.costs.iter().copied().chain(std::iter::repeat(None));
        let descriptors: Vec<_> = entries
            .iter()
            .zip(costs)
            .map(|(entries, cost)| Descriptor { cost, ..Descriptor::new(entries) })
            .collect();
        let mut query = Query::new("d", &descriptors).cost(self.cost);
        query.holder = self.holder;
        self.limiter.ask(self.op, &query)
    }
}

/// One check.
pub(crate) fn check(limiter: &TestLimiter, written: &[&str]) -> Verdict {
    Ask::new(limiter).descriptors(written)
}

/// What remains of each limit.
pub(crate) fn remaining(verdict: &Verdict) -> Vec<u64> {
    verdict.limits.iter().map(|answered| answered.decision.remaining).collect()
}

/// What each limit thinks of the request.
pub(crate) fn opinions(verdict: &Verdict) -> Vec<bool> {
    verdict.limits.iter().map(|answered| answered.decision.allowed).collect()
}
