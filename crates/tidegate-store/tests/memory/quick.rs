//! The short ways, `check_one` and `check_all`, against the long one.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{Inherit, Limit, LimitSpec, Rate, join};
use tidegate_store::{
    Item, LocalStore, MemoryBuilder, MemoryStore, Mode, OnFull, Op, Registered, Store,
};

use crate::support::{HOUR, SECOND, START, ask, register};

fn specs(period: Duration) -> [LimitSpec; 7] {
    let rate = |units| Rate::new(units, period);
    [
        Limit::token_bucket(rate(5)),
        Limit::token_bucket(rate(7)).burst(9),
        Limit::token_bucket(rate(3)).burst(6).initial(1),
        Limit::leaky_queue(rate(2), 4),
        Limit::fixed_window(rate(6)),
        Limit::sliding_log(rate(6)),
        Limit::fixed_window(rate(0)),
    ]
}

/// What is asked: of which key, under which limits, how much, and how much later.
#[derive(Clone, Debug)]
struct Step {
    key: u8,
    limits: Vec<usize>,
    cost: u64,
    factor: u64,
    shadow: bool,
    millis: u64,
    back: bool,
    changes: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let limits = prop::collection::vec(0..specs(SECOND).len(), 1..4);
    (0..4_u8, limits, 0..5_u64, 0..3_u64, prop::bool::weighted(0.1), 0..400_u64, any::<u8>())
        .prop_map(|(key, limits, cost, factor, shadow, millis, dice)| Step {
            key,
            limits,
            cost,
            factor,
            shadow,
            millis,
            back: dice < 20,
            changes: dice > 245,
        })
}

/// The same limits in two stores: one for the short ways, one for the long one.
struct Pair {
    stores: [MemoryStore; 2],
    limits: [Vec<Arc<Registered>>; 2],
}

impl Pair {
    fn new(builder: MemoryBuilder, period: Duration) -> Self {
        let stores = [builder.build(), builder.build()];
        let limits = stores.each_ref().map(|store| {
            let specs = specs(period).into_iter().enumerate();
            specs.map(|(number, spec)| register(store, &number.to_string(), spec)).collect()
        });
        Self { stores, limits }
    }

    /// Registers a limit with other numbers.
    fn change(&mut self, which: usize, units: u64) {
        for (store, limits) in self.stores.iter().zip(&mut self.limits) {
            let mut spec = *limits[which].limit().spec();
            spec.rate.units = units;
            spec.burst = spec.burst.map(|_| units + 1);
            let limit = spec.build().unwrap();
            limits[which] = store.register(&which.to_string(), limit, Inherit::Used).unwrap();
        }
    }

    fn play(&mut self, steps: &[Step]) {
        let mut millis = 100_000_u64;
        for (number, step) in steps.iter().enumerate() {
            millis = if step.back { millis - step.millis } else { millis + step.millis };
            let (now, key) = (START + Duration::from_millis(millis), [step.key]);
            if step.changes {
                self.change(step.limits[0], 2 + step.cost);
            }
            let mode = if step.shadow { Mode::Shadow } else { Mode::Enforce };
            if let [which] = step.limits[..] {
                let [short, long] = self.limits.each_ref().map(|limits| Item {
                    factor: step.factor,
                    mode,
                    ..Item::new(&key, &limits[which])
                });
                let found = self.stores[0].check_one_now(&short, step.cost, now);
                let (_, answers) = ask(&self.stores[1], Op::Check, &[long], step.cost, now);
                assert_eq!(found, answers[0].decision, "step {number}: {step:?}");
            } else {
                let [short, long] = self.limits.each_ref().map(|limits| -> Vec<_> {
                    step.limits.iter().map(|which| Arc::clone(&limits[*which])).collect()
                });
                let found = self.stores[0].check_all(&key, &short, step.cost, now);
                let items: Vec<_> = long.iter().map(|limit| Item::new(&key, limit)).collect();
                let (outcome, answers) = ask(&self.stores[1], Op::Check, &items, step.cost, now);
                let decisions = answers.iter().map(|answer| &answer.decision);
                let expected = join(outcome.allowed, decisions).unwrap();
                assert_eq!(found, expected, "step {number}: {step:?}");
            }
            assert_eq!(self.stores[0].len(), self.stores[1].len(), "step {number}: {step:?}");
        }
        let counts = self.stores.each_ref().map(|store| {
            let stats = store.stats();
            (stats.denied_full, stats.allowed_full)
        });
        assert_eq!(counts[0], counts[1]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..Default::default() })]

    #[test]
    fn short_and_long_ways_decide_alike(steps in prop::collection::vec(step(), 1..80)) {
        Pair::new(MemoryStore::builder().shards(1), SECOND).play(&steps);
    }

    /// Also where there is no room. Nothing is spent within these hours, so that nothing depends on
    /// when spent keys are found; and nobody is evicted, which is a matter of chance.
    #[test]
    fn short_and_long_ways_meet_the_bound_alike(
        steps in prop::collection::vec(step(), 1..60),
        max_keys in 1..10_usize,
        denies in any::<bool>(),
    ) {
        let on_full = if denies { OnFull::Deny } else { OnFull::Allow };
        let builder = MemoryStore::builder().shards(1).max_keys(max_keys).on_full(on_full);
        Pair::new(builder, HOUR).play(&steps);
    }
}

/// Two limits of one request that are the same limit add up, the short way too.
#[test]
fn the_same_limit_twice_is_not_admitted_twice() {
    let store = MemoryStore::new();
    let limit = register(&store, "limit", Limit::per_minute(10));
    let twice = [Arc::clone(&limit), Arc::clone(&limit)];
    assert!(store.check_one_now(&Item::new(b"k", &limit), 7, START).allowed);
    assert!(!store.check_all(b"k", &twice, 2, START).allowed);
    assert!(store.check_all(b"k", &twice, 1, START).allowed);
    assert!(store.check_one_now(&Item::new(b"k", &limit), 1, START).allowed);
    assert!(!store.check_one_now(&Item::new(b"k", &limit), 1, START).allowed);
}

#[test]
fn no_limit_at_all_admits() {
    let store = MemoryStore::new();
    assert!(store.check_all(b"k", &[], 5, START).allowed);
}
