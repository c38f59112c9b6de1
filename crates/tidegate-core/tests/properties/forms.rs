//! One limit in all its forms: narrow and wide, in memory and as words, in use and as text.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Action, Admissions, Decision, Limit, LimitSpec, NARROW_HORIZON, Narrow, Rate, Refill, State,
    Timestamp, WORDS_MAX,
};

use crate::model::Act;
use crate::support::{Key, Step, config, limits, start, unsteady_history};

/// A wide key beside its narrow twin, which counts from an origin of its own.
struct Twins {
    wide: Key,
    narrow: Option<u64>,
    origin: u64,
}

impl Twins {
    fn bucket<'a>(&self, limit: &'a Limit) -> Narrow<'a> {
        limit.as_narrow().unwrap()
    }

    fn widened(&self, limit: &Limit) -> Option<State> {
        let origin = Timestamp::from_nanos(self.origin);
        self.narrow.map(|state| self.bucket(limit).widen(state, origin))
    }

    /// The same act on both, and the same answer and state.
    fn step(&mut self, limit: &Limit, step: &Step) -> Result<(), TestCaseError> {
        self.wide.now = self.wide.later(step.gap).clamp(self.origin, self.origin + NARROW_HORIZON);
        let act = self.wide.act(step.op);
        let bucket = self.bucket(limit);
        let (state, now) = (self.narrow, self.wide.now - self.origin);
        let narrow = match act {
            Act::Peek(cost) => bucket.peek(state, now, cost),
            Act::Check(cost) => {
                let quick = self.quick_check(&bucket, cost);
                let decision = self.narrow_check(&bucket, cost);
                prop_assert_eq!(quick.is_some(), cost > 0 && decision.allowed);
                if let Some((quick, state)) = quick {
                    prop_assert_eq!((quick, Some(state)), (decision, self.narrow));
                }
                decision
            }
            Act::UpTo(cost) => {
                let room = bucket.room(state, now);
                prop_assert_eq!(room, self.wide.room());
                self.narrow_check(&bucket, cost.min(room))
            }
            Act::Force(cost) if cost > 0 && self.has_no_great_debt() => {
                let (decision, state) = bucket.act(state, now, cost, Action::Force);
                self.narrow = Some(state);
                decision
            }
            // Refunds are made wide.
            Act::Refund(_) | Act::Reset => {
                let decision = self.wide.run(act);
                let origin = Timestamp::from_nanos(self.origin);
                self.narrow = self.wide.state.as_ref().map(|state| bucket.narrow(state, origin));
                prop_assert!(decision.allowed);
                return Ok(());
            }
            Act::Force(_) => return Ok(()),
        };
        prop_assert_eq!(narrow, self.wide.run(act), "{}: {:?} at {}", limit, act, self.wide.now);
        prop_assert_eq!(self.widened(limit), self.wide.state.clone());
        self.forget_alike(limit)
    }

    /// The short way where there is a state, and step by step where there is none.
    fn narrow_check(&mut self, bucket: &Narrow<'_>, cost: u64) -> Decision {
        let now = self.wide.now - self.origin;
        match (cost, &mut self.narrow) {
            (0, state) => bucket.peek(*state, now, 0),
            (_, Some(state)) => bucket.check(state, now, cost),
            (_, state) if bucket.fits(None, now, cost) => {
                let (decision, new) = bucket.act(None, now, cost, Action::Take);
                *state = Some(new);
                decision
            }
            (_, None) => bucket.peek(None, now, cost),
        }
    }

    /// By the level alone, the way for requests that all their limits admit.
    fn quick_check(&self, bucket: &Narrow<'_>, cost: u64) -> Option<(Decision, u64)> {
        let now = self.wide.now - self.origin;
        let level = bucket.level(self.narrow.unwrap_or_else(|| bucket.fresh(now)), now);
        (cost > 0 && bucket.level_fits(level, cost)).then(|| {
            let mut admissions = Admissions::new();
            bucket.answer_to(level, cost, 0, &mut admissions);
            let state = bucket.level_after(level, cost);
            (admissions.finish(), state)
        })
    }

    /// Debts of decades end at the largest number, sooner where numbers are narrow.
    fn has_no_great_debt(&self) -> bool {
        let reset = self.wide.peek(0).reset_after.unwrap().as_nanos();
        reset * u128::from(self.wide.limit.spec().rate.units) < 1 << 60
    }

    fn forget_alike(&self, limit: &Limit) -> Result<(), TestCaseError> {
        let (Some(narrow), Some(wide)) = (self.narrow, &self.wide.state) else { return Ok(()) };
        let (bucket, now) = (self.bucket(limit), self.wide.now - self.origin);
        let ask = self.wide.ask();
        prop_assert_eq!(Some(bucket.forget_after(narrow, now)), limit.forget_after(wide, &ask));
        prop_assert_eq!(bucket.is_spent(narrow, now), limit.is_spent(wide, &ask));
        Ok(())
    }
}

fn buckets_and_queues() -> impl Strategy<Value = LimitSpec> {
    prop_oneof![limits::buckets(), limits::queues()]
}

fn twins_agree(
    spec: LimitSpec,
    start: u64,
    before: u64,
    history: &[Step],
) -> Result<Option<Twins>, TestCaseError> {
    let limit = spec.build().unwrap();
    if limit.as_narrow().is_none() {
        return Ok(None);
    }
    let origin = start.saturating_sub(before);
    let mut twins = Twins { wide: Key::new(spec, start), narrow: None, origin };
    for step in history {
        twins.step(&limit, step)?;
    }
    Ok(Some(twins))
}

fn any_limit() -> impl Strategy<Value = LimitSpec> {
    prop_oneof![
        6 => limits::plain(),
        3 => limits::any_soft(),
        1 => limits::any_cautious(),
        1 => limits::warm_ups(),
        1 => limits::permits(),
    ]
}

/// What a limit of another algorithm remembers means nothing to this one: it once blocked.
#[test]
fn the_state_of_another_algorithm_is_none() {
    let rate = Rate::per_second(5);
    let specs = [
        Limit::gcra(rate),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::fixed_window(rate),
        Limit::sliding_log(rate),
        Limit::sliding_counter(rate),
        Limit::concurrency(5),
        Limit::warm_up(rate, Duration::from_secs(1)),
    ];
    let now = 1_700_000_000_000_000_000;
    for (own, other) in specs.iter().flat_map(|own| specs.iter().map(move |other| (own, other))) {
        let (mut key, mut foreign) = (Key::new(*own, now), Key::new(*other, now));
        if own == other {
            continue;
        }
        assert!(foreign.check(3).allowed);
        let unknown = key.peek(2);
        key.state = foreign.state;
        assert_eq!(key.peek(2), unknown, "{other} to {own}");
        assert_eq!(key.room(), 5, "{other} to {own}");
        assert!(key.check(5).allowed, "{other} to {own}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn narrow_decides_as_wide_does(
        spec in buckets_and_queues(), start in start(), before in 0..1_000_000u64,
        history in unsteady_history(),
    ) {
        twins_agree(spec, start, before, &history)?;
    }

    /// Moving the origin changes no later decision.
    #[test]
    fn the_origin_does_not_matter(
        spec in buckets_and_queues(), start in start(), before in 0..1_000_000u64,
        past in unsteady_history(), shift in any::<u64>(), future in unsteady_history(),
    ) {
        let Some(mut twins) = twins_agree(spec, start, before, &past)? else { return Ok(()) };
        let limit = spec.build().unwrap();
        let to = shift % (twins.wide.now + 1);
        if twins.wide.now - to > NARROW_HORIZON / 2 {
            return Ok(());
        }
        let [from, to_origin, now] =
            [twins.origin, to, twins.wide.now].map(Timestamp::from_nanos);
        let bucket = limit.as_narrow().unwrap();
        twins.narrow = twins.narrow.map(|state| bucket.rebase(state, from, to_origin, now));
        twins.origin = to;
        for step in &future {
            twins.wide.now = twins.wide.later(step.gap).clamp(to, to + NARROW_HORIZON);
            let narrow = bucket.peek(twins.narrow, twins.wide.now - to, 1);
            prop_assert_eq!(narrow, twins.wide.peek(1), "{} at {}", spec, twins.wide.now);
        }
    }

    /// One word holds a moment of payment and nothing else: no episode, no first sight.
    #[test]
    fn what_remembers_more_is_never_narrow(
        soft in limits::soft(limits::buckets()), cautious in limits::cautious(limits::buckets()),
    ) {
        prop_assert!(soft.build().unwrap().as_narrow().is_none());
        prop_assert!(cautious.build().unwrap().as_narrow().is_none());
    }

    #[test]
    fn states_survive_as_words(
        spec in any_limit(), start in start(), history in unsteady_history(),
    ) {
        let key = Key::after(spec, start, &history);
        if let Some(state) = &key.state {
            let words = key.limit.encode(state);
            prop_assert_eq!(key.limit.decode(&words), Some(state.clone()));
            if let Some(count) = key.limit.state_words() {
                prop_assert!(count <= WORDS_MAX);
                prop_assert_eq!(words.len(), count);
                let packed = key.limit.pack(state);
                prop_assert_eq!(key.limit.unpack(&packed[..count]), Some(state.clone()));
                prop_assert_eq!(key.limit.unpack(&packed[..count - 1]), None);
            }
        }
    }

    /// Words from a damaged file may be any: they are refused, or are some state.
    #[test]
    fn any_words_are_a_state_or_none(
        spec in any_limit(), words in proptest::collection::vec(any::<u64>(), 0..9),
        now in any::<u64>(), future in unsteady_history(),
    ) {
        let mut key = Key::new(spec, now);
        key.state = key.limit.decode(&words);
        let known = key.state.is_some();
        for step in &future {
            let _ = key.step(step);
        }
        prop_assert!(known || key.limit.state_words() != Some(words.len()));
    }

    #[test]
    fn limits_survive_as_text(spec in any_limit()) {
        let limit = spec.build().unwrap();
        let text = limit.to_string();
        prop_assert_eq!(text.parse::<Limit>().unwrap(), limit, "{}", &text);
        prop_assert_eq!(text.parse::<LimitSpec>().unwrap(), spec, "{}", &text);
    }
}
