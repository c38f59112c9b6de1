//! Random limits, random histories, and a key to run them on.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Action, Ask, Decision, Lease, Limit, LimitSpec, Moment, State, Timestamp, Window,
};

use crate::model::{Act, windows};

pub(crate) mod ledger;
pub(crate) mod limits;

/// Failures are told, not written to a file beside the tests. `PROPTEST_CASES` asks for more.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { cases: 1_024, failure_persistence: None, ..ProptestConfig::default() }
}

pub(crate) fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap()
}

/// How far time goes from one step to the next, in the measures of the limit at hand: decisions
/// change at the ends of retries, resets, units and periods, so these are met to the nanosecond.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gap {
    Ticks(u64),
    Retry(i64),
    Reset(i64),
    Unit(i64),
    Period(i64),
    /// As long as a key is remembered whose first sight matters.
    Day(i64),
    /// So many 16384ths of a period: up to four periods.
    Part(u16),
    /// As many back.
    Back(u16),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cost {
    Units(u64),
    /// So many 32768ths of the limit: up to twice the limit.
    Part(u16),
    Near(i64),
    Huge,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Check(Cost),
    Peek(Cost),
    UpTo(Cost),
    Force(Cost),
    Refund(Cost),
    Reset,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) gap: Gap,
    pub(crate) op: Op,
}

fn gap() -> impl Strategy<Value = Gap> {
    prop_oneof![
        4 => (0..4u64).prop_map(Gap::Ticks),
        2 => (-1..=1i64).prop_map(Gap::Retry),
        1 => (-1..=1i64).prop_map(Gap::Reset),
        2 => (-1..=1i64).prop_map(Gap::Unit),
        1 => (-1..=1i64).prop_map(Gap::Period),
        1 => (-1..=1i64).prop_map(Gap::Day),
        2 => any::<u16>().prop_map(Gap::Part),
    ]
}

fn gap_or_back() -> impl Strategy<Value = Gap> {
    prop_oneof![3 => gap(), 1 => any::<u16>().prop_map(Gap::Back)]
}

/// A cost that a client might ask: mostly small, now and then absurd.
pub(crate) fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        6 => (0..4u64).prop_map(Cost::Units),
        3 => any::<u16>().prop_map(Cost::Part),
        2 => (-1..=1i64).prop_map(Cost::Near),
        1 => Just(Cost::Huge),
    ]
}

/// A cost that a client might force, which then has to be paid off in finite time.
fn debt() -> impl Strategy<Value = Cost> {
    prop_oneof![(0..4u64).prop_map(Cost::Units), any::<u16>().prop_map(Cost::Part)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => cost().prop_map(Op::Check),
        2 => cost().prop_map(Op::Peek),
        2 => cost().prop_map(Op::UpTo),
        1 => debt().prop_map(Op::Force),
        2 => debt().prop_map(Op::Refund),
        1 => Just(Op::Reset),
    ]
}

/// Anything that may be done, while time goes on.
pub(crate) fn history() -> impl Strategy<Value = Vec<Step>> {
    steps(gap().boxed(), op().boxed())
}

/// Anything that may be done, while the clock jumps.
pub(crate) fn unsteady_history() -> impl Strategy<Value = Vec<Step>> {
    steps(gap_or_back().boxed(), op().boxed())
}

/// Requests only, while time goes on.
pub(crate) fn requests() -> impl Strategy<Value = Vec<Step>> {
    steps(gap().boxed(), cost().prop_map(Op::Check).boxed())
}

/// Requests and looks, while the clock jumps.
pub(crate) fn unsteady_requests() -> impl Strategy<Value = Vec<Step>> {
    let op = prop_oneof![
        5 => cost().prop_map(Op::Check),
        1 => cost().prop_map(Op::Peek),
        1 => cost().prop_map(Op::UpTo),
    ];
    steps(gap_or_back().boxed(), op.boxed())
}

fn steps(gap: BoxedStrategy<Gap>, op: BoxedStrategy<Op>) -> impl Strategy<Value = Vec<Step>> {
    let step = (gap, op).prop_map(|(gap, op)| Step { gap, op });
    proptest::collection::vec(step, 1..40)
}

/// The moment of a first request: near the epoch, and in our days.
pub(crate) fn start() -> impl Strategy<Value = u64> {
    prop_oneof![0..50u64, 1_000_000_000..2_000_000_000u64, {
        let today = 1_700_000_000_000_000_000u64;
        today..today + 1_000_000_000_000_000
    }]
}

/// In nanoseconds.
pub(crate) const DAY: u64 = 86_400_000_000_000;

/// Beyond this, answers are cut off at the end of time, which has tests of its own.
const LATEST: u64 = 1 << 62;

/// One key under one limit, with its own clock.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) limit: Limit,
    pub(crate) state: Option<State>,
    pub(crate) now: u64,
    pub(crate) last: Option<Decision>,
}

impl Key {
    pub(crate) fn new(spec: LimitSpec, now: u64) -> Self {
        let limit = spec.build().unwrap_or_else(|error| panic!("{spec}: {error}"));
        Self { limit, state: None, now, last: None }
    }

    /// The same, after a history.
    pub(crate) fn after(spec: LimitSpec, now: u64, history: &[Step]) -> Self {
        let mut key = Self::new(spec, now);
        for step in history {
            let _ = key.step(step);
        }
        key
    }

    /// Moves the clock and acts.
    pub(crate) fn step(&mut self, step: &Step) -> (Act, Decision) {
        self.now = self.later(step.gap);
        let act = self.act(step.op);
        (act, self.run(act))
    }

    pub(crate) fn run(&mut self, act: Act) -> Decision {
        let ask = self.ask();
        let (limit, state) = (&self.limit, &mut self.state);
        let decision = match act {
            Act::Check(cost) => self.check(cost),
            Act::Peek(cost) => limit.peek(state.as_ref(), &ask, cost),
            Act::UpTo(cost) => self.check(cost.min(self.room())),
            Act::Force(cost) => limit.settle(state, &ask, cost, Action::Force),
            Act::Refund(n) => limit.refund(state, &ask, n),
            Act::Reset => {
                *state = None;
                limit.peek(None, &ask, 0)
            }
        };
        self.last = Some(decision);
        decision
    }

    pub(crate) fn check(&mut self, cost: u64) -> Decision {
        let ask = self.ask();
        let action = match (self.fits(cost), self.limit.counts_rejected()) {
            (true, _) => Action::Take,
            (false, true) => Action::Count,
            (false, false) => Action::Refuse,
        };
        self.limit.settle(&mut self.state, &ask, cost, action)
    }

    pub(crate) fn fits(&self, cost: u64) -> bool {
        self.limit.fits(self.state.as_ref(), &self.ask(), cost)
    }

    pub(crate) fn room(&self) -> u64 {
        self.limit.room(self.state.as_ref(), &self.ask())
    }

    pub(crate) fn peek_at(&self, now: u64, cost: u64) -> Decision {
        self.limit.peek(self.state.as_ref(), &ask_at(&self.limit, now), cost)
    }

    pub(crate) fn peek(&self, cost: u64) -> Decision {
        self.peek_at(self.now, cost)
    }

    pub(crate) fn ask(&self) -> Ask {
        ask_at(&self.limit, self.now)
    }

    pub(crate) fn later(&self, gap: Gap) -> u64 {
        let units = self.limit.spec().rate.units.max(1);
        let period = period(&self.limit);
        let wait = self.last.and_then(|decision| decision.retry.after()).unwrap_or_default();
        let reset = self.last.and_then(|decision| decision.reset_after).unwrap_or_default();
        let part = |part: u16| i128::from(period) * i128::from(part) / 16_384;
        let distance = match gap {
            Gap::Ticks(ticks) => i128::from(ticks),
            Gap::Retry(off) => i128::from(nanos(wait)) + i128::from(off),
            Gap::Reset(off) => i128::from(nanos(reset)) + i128::from(off),
            Gap::Unit(off) => i128::from(period.div_ceil(units)) + i128::from(off),
            Gap::Period(off) => i128::from(period) + i128::from(off),
            Gap::Day(off) => i128::from(DAY) + i128::from(off),
            Gap::Part(parts) => part(parts),
            Gap::Back(parts) => return self.now.saturating_sub(part(parts) as u64),
        };
        let now = i128::from(self.now) + distance.max(0);
        if now < i128::from(LATEST) { now as u64 } else { self.now }
    }

    pub(crate) fn act(&self, op: Op) -> Act {
        match op {
            Op::Check(cost) => Act::Check(self.units(cost)),
            Op::Peek(cost) => Act::Peek(self.units(cost)),
            Op::UpTo(cost) => Act::UpTo(self.units(cost)),
            Op::Force(cost) => Act::Force(self.units(cost)),
            Op::Refund(cost) => Act::Refund(self.units(cost)),
            Op::Reset => Act::Reset,
        }
    }

    pub(crate) fn units(&self, cost: Cost) -> u64 {
        let limit = self.limit.limit();
        match cost {
            Cost::Units(units) => units,
            Cost::Part(part) => (u128::from(limit) * u128::from(part) / 32_768) as u64,
            Cost::Near(off) => limit.saturating_add_signed(off),
            Cost::Huge => u64::MAX,
        }
    }
}

/// A question at a moment, with the window of the tests' own calendar where one is needed.
pub(crate) fn ask_at(limit: &Limit, now: u64) -> Ask {
    let mut moment = Moment::at(Timestamp::from_nanos(now));
    if limit.needs_calendar() {
        let (start, end) = windows::month(i128::from(now), i128::from(period(limit)));
        let [start, end] = [start, end].map(|at| Timestamp::from_nanos(at as u64));
        moment.window = Some(Window { start, end });
    }
    Ask::at(moment)
}

/// The time in which things happen under a limit.
pub(crate) fn period(limit: &Limit) -> u64 {
    match limit.spec().lease {
        Some(Lease::For(lease)) => nanos(lease),
        _ => nanos(limit.spec().rate.period),
    }
}
