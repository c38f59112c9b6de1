//! Units given back as of the time they were taken: what others took in the meantime, and what
//! time has paid since, is never paid a second time.

use proptest::prelude::*;
use tidegate_core::{Align, Limit, LimitSpec, Rate, Taken};

use crate::model::Act;
use crate::support::ledger::Ledger;
use crate::support::{Key, Step, config, limits, nanos, ns, requests, start, unsteady_history};

/// Requests, and which of the takings that still stand is called off after each, if one is.
type Life = Vec<(Step, Option<prop::sample::Index>)>;

fn life() -> impl Strategy<Value = Life> {
    let choices = proptest::collection::vec(proptest::option::of(any::<prop::sample::Index>()), 40);
    (requests(), choices).prop_map(|(steps, choices)| steps.into_iter().zip(choices).collect())
}

/// A taking that may still be called off.
#[derive(Clone, Copy)]
struct Standing {
    id: usize,
    taken: Taken,
}

/// A key with all that it has taken and not given back.
struct Account {
    key: Key,
    standing: Vec<Standing>,
}

impl Account {
    fn new(spec: LimitSpec, start: u64) -> Self {
        Self { key: Key::new(spec, start), standing: Vec::new() }
    }

    /// Asks, and says what was admitted and how long it was told to wait.
    fn ask(&mut self, id: usize, step: &Step) -> Option<(u64, u64)> {
        let (act, decision) = self.key.step(step);
        let Act::Check(cost) = act else { return None };
        if cost == 0 || !decision.allowed {
            return None;
        }
        let state = self.key.state.as_ref().unwrap();
        let taken = self.key.limit.taken(state, &self.key.ask(), cost);
        self.standing.push(Standing { id, taken });
        Some((cost, decision.delay.as_nanos() as u64))
    }

    fn call_off(&mut self, choice: Option<prop::sample::Index>) -> Option<usize> {
        let choice = choice.filter(|_| !self.standing.is_empty())?;
        let gone = self.standing.remove(choice.index(self.standing.len()));
        let ask = self.key.ask();
        let decision = self.key.limit.give_back(&mut self.key.state, &ask, &gone.taken);
        self.key.last = Some(decision);
        Some(gone.id)
    }
}

/// What was kept is within the definition, as if the rest had never been.
fn keeps_within(spec: LimitSpec, start: u64, life: &Life) -> Result<(), TestCaseError> {
    let mut account = Account::new(spec, start);
    let mut ledger = Ledger::new(spec);
    for (id, (step, choice)) in life.iter().enumerate() {
        if let Some((cost, _)) = account.ask(id, step) {
            ledger.admit(id, account.key.now, cost);
            ledger.is_within_definition().map_err(TestCaseError::fail)?;
        } else if spec.count_rejected && account.key.last.is_some_and(|last| !last.allowed) {
            ledger.count(account.key.now);
        }
        if let Some(gone) = account.call_off(*choice) {
            ledger.call_off(gone);
        }
    }
    Ok(())
}

/// Shapers tell a request when to go: those that went keep the distance of the rate, whoever
/// was called off between them.
fn keeps_distance(spec: LimitSpec, start: u64, life: &Life) -> Result<(), TestCaseError> {
    let mut account = Account::new(spec, start);
    let (units, period) = (u128::from(spec.rate.units), spec.rate.period.as_nanos());
    let mut going: Vec<(usize, u64, u64)> = Vec::new();
    for (id, (step, choice)) in life.iter().enumerate() {
        if let Some((cost, delay)) = account.ask(id, step) {
            going.push((id, account.key.now + delay, cost));
        }
        if let Some(gone) = account.call_off(*choice) {
            going.retain(|(id, ..)| *id != gone);
        }
        for pair in going.windows(2) {
            let [(_, first, cost), (_, second, _)] = pair else { continue };
            // Times are rounded up, which makes up less than a nanosecond of the distance.
            let distance = u128::from(second.saturating_sub(*first));
            prop_assert!(
                (distance + 1) * units > u128::from(*cost) * period,
                "{}: {} units go at {}, the next at {}",
                spec,
                cost,
                first,
                second
            );
        }
    }
    Ok(())
}

/// Windows that begin at a time of their own, logs and counters know exactly what was whose.
fn exact() -> impl Strategy<Value = LimitSpec> {
    let specs = prop_oneof![limits::fixed_windows(), limits::logs(), limits::counters()];
    specs.prop_map(|mut spec| {
        if spec.align == Align::FirstRequest {
            spec.align = Align::Epoch;
        }
        spec.count_rejected = false;
        spec
    })
}

/// After some takings were called off, the key is as one that never took them.
fn leaves_no_trace(spec: LimitSpec, start: u64, life: &Life) -> Result<(), TestCaseError> {
    let mut account = Account::new(spec, start);
    let mut kept: Vec<(usize, u64, u64)> = Vec::new();
    for (id, (step, choice)) in life.iter().enumerate() {
        if let Some((cost, _)) = account.ask(id, step) {
            kept.push((id, account.key.now, cost));
        }
        if let Some(gone) = account.call_off(*choice) {
            kept.retain(|(id, ..)| *id != gone);
        }
    }
    let mut twin = Key::new(spec, start);
    for (_, now, cost) in kept {
        twin.now = now;
        let _ = twin.run(Act::Force(cost));
    }
    twin.now = account.key.now;
    prop_assert_eq!(account.key.peek(1), twin.peek(1), "{}", spec);
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_kept_stays_within_the_definition(
        spec in limits::plain(), start in start(), life in life(),
    ) {
        keeps_within(spec, start, &life)?;
    }

    #[test]
    fn what_is_kept_under_a_soft_limit_stays_within_its_capacity(
        spec in limits::any_soft(), start in start(), life in life(),
    ) {
        keeps_within(spec, start, &life)?;
    }

    #[test]
    fn windows_logs_and_counters_forget_it_wholly(
        spec in exact(), start in start(), life in life(),
    ) {
        leaves_no_trace(spec, start, &life)?;
    }

    /// A bucket gives back what time would have left of the taking if it had been alone.
    #[test]
    fn buckets_give_back_what_time_has_not_paid(
        period in 1..1_000u64, before in 0..50u64, cost in 1..50u64, after in 0..50u64,
        later in 0..60_000u64,
    ) {
        let rate = Rate::new(1, ns(period));
        let mut key = Key::new(Limit::gcra(rate).burst(150), 1_000_000);
        let used = |key: &Key| nanos(key.peek(0).reset_after.unwrap());
        let _ = key.check(before);
        let _ = key.check(cost);
        let taken = key.limit.taken(key.state.as_ref().unwrap(), &key.ask(), cost);
        let _ = key.check(after);
        key.now += later;
        let all = used(&key);
        let ask = key.ask();
        let _ = key.limit.give_back(&mut key.state, &ask, &taken);
        // One unit per period: what is used and what is left of it are times.
        let outstanding = (cost * period).saturating_sub(later);
        prop_assert_eq!(used(&key), all - outstanding);
    }

    #[test]
    fn requests_of_a_queue_keep_their_distance(
        spec in limits::short_queues(), start in start(), life in life(),
    ) {
        keeps_distance(spec, start, &life)?;
    }

    #[test]
    fn requests_of_a_warm_up_keep_their_distance(
        spec in limits::warm_ups(), start in start(), life in life(),
    ) {
        keeps_distance(spec, start, &life)?;
    }

    /// Taken and given back in the same moment is never taken.
    #[test]
    fn giving_back_at_once_leaves_no_trace(
        spec in limits::plain(), start in start(), past in unsteady_history(),
        part in any::<u16>(),
    ) {
        let mut key = Key::after(spec, start, &past);
        let before = key.peek(1);
        let cost = (u128::from(key.room()) * u128::from(part) / 65_535) as u64;
        if cost > 0 {
            let _ = key.check(cost);
            let taken = key.limit.taken(key.state.as_ref().unwrap(), &key.ask(), cost);
            let ask = key.ask();
            let after = key.limit.give_back(&mut key.state, &ask, &taken);
            prop_assert_eq!(after.remaining, before.remaining);
            prop_assert_eq!(key.peek(1), before);
        }
    }
}
