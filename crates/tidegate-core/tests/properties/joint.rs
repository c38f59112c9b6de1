//! Several limits on one request: all or nothing, and one answer that can be relied upon.

use proptest::prelude::*;
use tidegate_core::{Action, Admissions, Decision, LimitSpec, Retry, join};

use crate::support::{Cost, Gap, Key, Op, Step, config, cost, limits, nanos, requests, start};

/// The keys of one request under each of its limits.
struct Request {
    keys: Vec<Key>,
}

impl Request {
    fn new(specs: &[LimitSpec], start: u64) -> Self {
        Self { keys: specs.iter().map(|spec| Key::new(*spec, start)).collect() }
    }

    fn fits(&self, cost: u64) -> bool {
        self.keys.iter().all(|key| key.fits(cost))
    }

    fn settle(&mut self, cost: u64) -> Decision {
        join(self.fits(cost), &self.settle_each(cost)).unwrap()
    }

    fn settle_each(&mut self, cost: u64) -> Vec<Decision> {
        let allowed = self.fits(cost);
        let action = if allowed { Action::Take } else { Action::Refuse };
        let settle = |(rule, key): (u32, &mut Key)| {
            let ask = key.ask();
            Decision { rule, ..key.limit.settle(&mut key.state, &ask, cost, action) }
        };
        (0..).zip(&mut self.keys).map(settle).collect()
    }

    fn peek_at(&self, now: u64, cost: u64) -> bool {
        self.keys.iter().all(|key| key.peek_at(now, cost).allowed)
    }

    /// The first limit's measures of time and cost serve for all.
    fn live(&mut self, history: &[Step]) {
        for step in history {
            let now = self.keys[0].later(step.gap);
            self.keys.iter_mut().for_each(|key| key.now = now);
            if let Op::Check(cost) = step.op {
                let cost = self.keys[0].units(cost);
                self.keys[0].last = Some(self.settle(cost));
            }
        }
    }
}

fn joined_answers_hold(mut request: Request, cost: Cost) -> Result<(), TestCaseError> {
    let cost = request.keys[0].units(cost);
    let parts: Vec<Decision> = request.keys.iter().map(|key| key.peek(cost)).collect();
    let states: Vec<_> = request.keys.iter().map(|key| key.state.clone()).collect();
    let (fits, now) = (request.fits(cost), request.keys[0].now);
    let decision = request.settle(cost);
    prop_assert_eq!(decision.allowed, fits);
    if fits {
        prop_assert_eq!(decision.retry, Retry::Now);
        return Ok(());
    }
    let left: Vec<_> = request.keys.iter().map(|key| key.state.clone()).collect();
    prop_assert_eq!(states, left, "refused by one, consumed by none");
    prop_assert_eq!(Some(decision.remaining), parts.iter().map(|part| part.remaining).min());
    prop_assert_eq!(decision.reset_after, parts.iter().map(|part| part.reset_after).max().unwrap());
    let reported = parts[decision.rule as usize];
    prop_assert_eq!((reported.allowed, reported.retry), (false, decision.retry));
    prop_assert_eq!(reported.limit, decision.limit);
    match decision.retry {
        Retry::Never => prop_assert!(parts.iter().any(|part| part.retry == Retry::Never)),
        retry => {
            let then = now.saturating_add(nanos(retry.after().unwrap()));
            if then < 1 << 63 {
                prop_assert!(request.peek_at(then, cost), "refused at {}", then);
                prop_assert!(!request.peek_at(then - 1, cost), "admitted before {}", then);
            }
        }
    }
    Ok(())
}

/// Where all limits admit there is a shorter way to the same answer.
fn short_way(parts: &[Decision]) -> Decision {
    let mut admissions = Admissions::new();
    for part in parts {
        let reset = nanos(part.reset_after.unwrap());
        admissions.add(part.rule, part.limit, part.remaining, reset, nanos(part.delay));
    }
    admissions.finish()
}

proptest! {
    #![proptest_config(config())]

    /// Coming back after the longest wait of those that refuse is coming back in time for all.
    #[test]
    fn the_joined_answer_is_exact(
        specs in proptest::collection::vec(limits::plain(), 1..4), start in start(),
        history in requests(), gap in 0..4u64, cost in cost(),
    ) {
        let counted = |mut spec: LimitSpec| {
            spec.count_rejected = false;
            spec
        };
        let specs: Vec<LimitSpec> = specs.into_iter().map(counted).collect();
        let mut request = Request::new(&specs, start);
        request.live(&history);
        request.live(&[Step { gap: Gap::Ticks(gap), op: Op::Reset }]);
        joined_answers_hold(request, cost)?;
    }

    #[test]
    fn the_short_way_gives_the_same_answer(
        specs in proptest::collection::vec(limits::plain(), 1..4), start in start(),
        history in requests(),
    ) {
        let mut request = Request::new(&specs, start);
        request.live(&history);
        if request.fits(1) {
            let parts = request.settle_each(1);
            prop_assert_eq!(short_way(&parts), join(true, &parts).unwrap());
        }
    }
}
