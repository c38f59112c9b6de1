//! What is counted, and how it reads.

use std::time::Duration;

use tidegate::rules::Rules;
use tidegate::{Decision, Op, Query, Verdict};

use crate::front_end::FrontEnd;

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    near_limit_ratio: f32,
}

impl Metrics {
    pub(crate) fn new(near_limit_ratio: f32) -> Self {
        Self { near_limit_ratio }
    }

    /// Makes ready to count what these rules decide.
    pub(crate) fn follow(&self, rules: &Rules) {
        let _ = (rules, self.near_limit_ratio);
    }

    /// Counts a decision by rules.
    pub(crate) fn decided(
        &self,
        front_end: FrontEnd,
        op: Op<'_>,
        query: &Query<'_>,
        verdict: &Verdict,
    ) {
        let _ = (front_end, op, query, verdict);
    }

    /// Counts a decision by a limit that came with the request.
    pub(crate) fn decided_with(
        &self,
        front_end: FrontEnd,
        name: &'static str,
        cost: u64,
        decision: &Decision,
    ) {
        let _ = (front_end, name, cost, decision);
    }

    /// How long a decision took.
    pub(crate) fn took(&self, front_end: FrontEnd, time: Duration) {
        let _ = (front_end, time);
    }

    /// Counts a request that was not understood.
    pub(crate) fn bad_request(&self, front_end: FrontEnd) {
        let _ = front_end;
    }

    /// Everything, as Prometheus reads it.
    pub(crate) fn render(&self) -> String {
        String::new()
    }

    pub(crate) fn reloaded(&self, is_good: bool) {
        let _ = is_good;
    }

    pub(crate) fn accept_failed(&self, front_end: FrontEnd) {
        let _ = front_end;
    }

    pub(crate) fn turned_away(&self, front_end: FrontEnd) {
        let _ = front_end;
    }

    pub(crate) fn connected(&self, front_end: FrontEnd) {
        let _ = front_end;
    }

    pub(crate) fn disconnected(&self, front_end: FrontEnd) {
        let _ = front_end;
    }
}
