//! No numbers make the engine panic, and none overflow into an admission.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests say what they expect by unwrapping it"
)]

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tidegate_core::{
    Action, AlgorithmName, Align, Ask, ColdStart, Compare, Inherit, Lease, Limit, LimitSpec,
    Moment, Queue, Rate, Refill, SoftSpec, State, Timestamp, Window,
};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 4_096,
        // About half of the random limits cannot be built.
        max_local_rejects: u32::MAX,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Small numbers, those at the ends of their types, and any between.
fn number() -> impl Strategy<Value = u64> {
    let ends = vec![u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 62, 1 << 32];
    let middle = any::<u32>().prop_map(u64::from);
    prop_oneof![3 => 0..4u64, 1 => select(ends), 1 => middle, 1 => any::<u64>()]
}

fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        6 => number().prop_map(Duration::from_nanos),
        2 => (1..100u64).prop_map(Duration::from_secs),
        1 => Just(Duration::MAX),
    ]
}

/// Every field at random.
fn wild() -> impl Strategy<Value = LimitSpec> {
    let some = proptest::option::of::<BoxedStrategy<u64>>;
    let lease = prop_oneof![span().prop_map(Lease::For), Just(Lease::Unlimited)];
    let queue = (number(), proptest::option::of(span()))
        .prop_map(|(size, max_delay)| Queue { size, max_delay });
    let cold =
        (span(), number()).prop_map(|(period, cold_factor)| ColdStart { period, cold_factor });
    let over = prop_oneof![any::<u32>(), 0..30_000u32, Just(u32::MAX)];
    let soft = (over, span()).prop_map(|(over_bp, span)| SoftSpec { over_bp, span });
    let numbers = (number(), span(), some(number().boxed()), some(number().boxed()));
    let choices = (
        select(AlgorithmName::ALL.to_vec()),
        select(vec![Refill::Greedy, Refill::Interval, Refill::IntervalAligned]),
        select(vec![Align::Epoch, Align::FirstRequest, Align::Calendar]),
        select(vec![Compare::Floor, Compare::Exact]),
        any::<bool>(),
    );
    let options = (
        proptest::option::of(queue),
        proptest::option::of(lease),
        proptest::option::of(cold),
        proptest::option::of(soft),
    );
    (numbers, choices, options).prop_map(|(numbers, choices, options)| {
        let (units, period, burst, initial) = numbers;
        let (algorithm, refill, align, compare, count_rejected) = choices;
        let (queue, lease, warm_up, soft) = options;
        LimitSpec {
            algorithm,
            rate: Rate::new(units, period),
            burst,
            refill,
            align,
            compare,
            initial,
            queue,
            lease,
            warm_up,
            soft,
            count_rejected,
        }
    })
}

/// Without the parameters that the algorithm does not know: most of these can be built.
fn tamed(mut spec: LimitSpec) -> LimitSpec {
    use AlgorithmName as A;
    let plain = LimitSpec::new(spec.algorithm, spec.rate);
    let is_bucket = matches!(spec.algorithm, A::TokenBucket | A::LeakyBucket | A::Gcra);
    let has_queue = matches!(spec.algorithm, A::LeakyBucket | A::WarmUp) && spec.queue.is_some();
    if !is_bucket || has_queue {
        (spec.burst, spec.initial) = (None, None);
    }
    if !has_queue {
        spec.queue = None;
    }
    if has_queue || matches!(spec.algorithm, A::Concurrency | A::WarmUp) {
        spec.soft = None;
    }
    if spec.algorithm != A::TokenBucket {
        spec.refill = plain.refill;
    }
    if spec.algorithm != A::FixedWindow {
        spec.align = plain.align;
    }
    if spec.algorithm != A::SlidingWindowCounter {
        spec.compare = plain.compare;
    }
    if !matches!(spec.algorithm, A::FixedWindow | A::SlidingWindowLog) {
        spec.count_rejected = false;
    }
    if spec.algorithm == A::Concurrency {
        spec.rate.period = Duration::ZERO;
    } else {
        spec.lease = None;
    }
    match (spec.algorithm, &mut spec.queue) {
        (A::WarmUp, Some(queue)) => queue.size = 0,
        (A::WarmUp, None) => {}
        _ => spec.warm_up = None,
    }
    spec
}

fn built() -> impl Strategy<Value = Limit> {
    wild().prop_filter_map("no such limit", |spec| tamed(spec).build().ok())
}

#[derive(Clone, Copy, Debug)]
struct Step {
    now: u64,
    cost: u64,
    op: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (number(), number(), 0..9u8).prop_map(|(now, cost, op)| Step { now, cost, op });
    proptest::collection::vec(step, 1..20)
}

struct Key {
    limit: Limit,
    state: Option<State>,
    /// Every request has a holder of its own.
    asked: u128,
}

impl Key {
    fn new(limit: Limit) -> Self {
        Self { limit, state: None, asked: 0 }
    }

    fn ask(&mut self, now: u64) -> Ask {
        self.asked += 1;
        let [start, end] = [now, now.saturating_add(1)].map(Timestamp::from_nanos);
        let window = self.limit.needs_calendar().then_some(Window { start, end });
        Ask { at: Moment { now: start, window }, holder: self.asked }
    }

    /// What was admitted of a cost.
    fn check(&mut self, now: u64, cost: u64) -> Result<u64, TestCaseError> {
        let ask = self.ask(now);
        let fits = self.limit.fits(self.state.as_ref(), &ask, cost);
        let room = self.limit.room(self.state.as_ref(), &ask);
        prop_assert_eq!(fits, cost <= room, "{}: {} of {} at {}", self.limit, cost, room, now);
        let action = match (fits, self.limit.counts_rejected()) {
            (true, _) => Action::Take,
            (false, true) => Action::Count,
            (false, false) => Action::Refuse,
        };
        let decision = self.limit.settle(&mut self.state, &ask, cost, action);
        prop_assert_eq!(decision.allowed, fits);
        prop_assert!(decision.remaining <= decision.limit);
        Ok(if fits { cost } else { 0 })
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let Step { now, cost, op } = *step;
        let ask = self.ask(now);
        match op {
            0 => {
                let _ = self.limit.settle(&mut self.state, &ask, cost, Action::Force);
            }
            1 => {
                let _ = self.limit.refund(&mut self.state, &ask, cost);
            }
            2 => self.give_back(&ask, cost),
            3 => self.survives_words(&ask)?,
            _ => {
                self.check(now, cost)?;
            }
        }
        Ok(())
    }

    fn give_back(&mut self, ask: &Ask, cost: u64) {
        if let Some(state) = &self.state {
            let taken = self.limit.taken(state, ask, cost);
            let _ = self.limit.give_back(&mut self.state, ask, &taken);
        }
    }

    fn survives_words(&mut self, ask: &Ask) -> Result<(), TestCaseError> {
        if let Some(state) = &self.state {
            let words = self.limit.encode(state);
            prop_assert_eq!(self.limit.decode(&words), Some(state.clone()));
            prop_assert!(self.limit.inherit(&self.limit, state, ask, Inherit::Used).is_some());
            let _ = self.limit.forget_after(state, ask);
        }
        Ok(())
    }
}

fn largest_cap(limit: &Limit) -> u128 {
    let soft = limit.spec().soft.map_or(0, |soft| u128::from(soft.over_bp));
    let limit = u128::from(limit.limit());
    limit + limit * soft / 10_000
}

proptest! {
    #![proptest_config(config())]

    /// Whatever is written, it is built or refused, and reads back as it was printed.
    #[test]
    fn any_numbers_build_or_are_refused(spec in wild(), tame in any::<bool>()) {
        let spec = if tame { tamed(spec) } else { spec };
        match spec.build() {
            Ok(limit) => prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit)),
            Err(error) => prop_assert!(error.to_string().contains(['`', '1']), "{}", error),
        }
    }

    #[test]
    fn any_text_is_a_limit_or_is_refused(
        text in "(gcra|warm_up|concurrency|x)? ?[0-9/dhmsnu]{0,24}( [a-z_]{1,9}=[0-9a-z]{0,22})*",
    ) {
        if let Ok(spec) = text.parse::<LimitSpec>() {
            let printed = spec.to_string();
            prop_assert_eq!(printed.parse::<LimitSpec>().unwrap(), spec);
        }
    }

    /// From the first moment to the last and back, at any cost.
    #[test]
    fn nothing_panics(limit in built(), steps in steps()) {
        let mut key = Key::new(limit);
        for step in &steps {
            key.step(step)?;
        }
    }

    /// In one instant nothing comes back, so all admissions together stay within the capacity,
    /// at the end of time and with the largest numbers too. (A warm-up delays instead.)
    #[test]
    fn an_instant_admits_no_more_than_the_capacity(
        limit in built(), past in steps(), now in number(),
        costs in proptest::collection::vec(number(), 1..12),
    ) {
        if limit.algorithm() == AlgorithmName::WarmUp {
            return Ok(());
        }
        let mut key = Key::new(limit);
        for step in &past {
            key.step(step)?;
        }
        let mut admitted = 0;
        for cost in costs {
            admitted += u128::from(key.check(now, cost)?);
        }
        let most = largest_cap(&key.limit);
        prop_assert!(admitted <= most, "{}: {} at {}", key.limit, admitted, now);
    }

    /// One limit becomes another, at any moment.
    #[test]
    fn no_change_of_limits_panics(
        old in built(), new in built(), past in steps(), now in number(),
        inherit in select(vec![
            Inherit::Used, Inherit::AsIs, Inherit::Proportional, Inherit::Additive, Inherit::Reset,
        ]),
    ) {
        let mut key = Key::new(old);
        for step in &past {
            key.step(step)?;
        }
        if let Some(state) = &key.state {
            let mut changed = Key::new(new);
            let ask = changed.ask(now);
            changed.state = changed.limit.inherit(&key.limit, state, &ask, inherit);
            let decision = changed.limit.peek(changed.state.as_ref(), &ask, 1);
            prop_assert!(decision.remaining <= changed.limit.limit());
        }
    }
}
