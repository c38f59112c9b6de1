//! A node's share of a limit.

use tidegate_core::{AlgorithmName, Compare, Limit, LimitSpec, Queue, Rate};

/// Which share: that of one of so many nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) nodes: u64,
    /// From zero; the lowest get what does not divide evenly.
    pub(crate) rank: u64,
}

impl Part {
    /// The whole units of a capacity. All parts together are the capacity.
    fn of(self, capacity: u64) -> u64 {
        let nodes = self.nodes.max(1);
        capacity / nodes + u64::from(self.rank < capacity % nodes)
    }
}

/// The limit that one node keeps by itself, so that all nodes together keep the whole: rates divided
/// exactly, by a longer period, capacities in whole units. A share of nothing refuses.
pub(crate) fn share_of(limit: &Limit, part: Part) -> Limit {
    if part.nodes <= 1 {
        return limit.clone();
    }
    let capacity = part.of(limit.limit());
    let spec = LimitSpec { ..*limit.spec() };
    let built = if capacity == 0 { None } else { shared(spec, part, capacity).build().ok() };
    built.unwrap_or_else(nothing)
}

fn shared(spec: LimitSpec, part: Part, capacity: u64) -> LimitSpec {
    let Rate { units, period } = spec.rate;
    let nodes = u32::try_from(part.nodes).unwrap_or(u32::MAX);
    let slower = Rate::new(units, period.saturating_mul(nodes));
    match spec.algorithm {
        AlgorithmName::LeakyBucket if spec.queue.is_some() => {
            let queue = spec.queue.map(|queue| Queue { size: capacity - 1, ..queue });
            LimitSpec { rate: slower, queue, ..spec }
        }
        AlgorithmName::TokenBucket | AlgorithmName::LeakyBucket | AlgorithmName::Gcra => {
            let initial = spec.initial.map(|initial| part.of(initial).min(capacity));
            LimitSpec { rate: slower, burst: Some(capacity), initial, ..spec }
        }
        AlgorithmName::SlidingWindowCounter => {
            // Several shares would each round down.
            LimitSpec { rate: Rate::new(capacity, period), compare: Compare::Exact, ..spec }
        }
        AlgorithmName::WarmUp => LimitSpec { rate: slower, ..spec },
        // Counts in windows, and permits.
        _ => LimitSpec { rate: Rate::new(capacity, period), ..spec },
    }
}

fn nothing() -> Limit {
    let limit = Limit::fixed_window(Rate::per_second(0)).build();
    limit.expect("a limit that blocks can be built")
}

/// What counts as used of a share, if so much of the whole is: the same part of it, rounded to the
/// favour of the limit.
pub(crate) fn used_of_share(used: u64, whole: u64, share: u64) -> u64 {
    if whole == 0 {
        return 0;
    }
    let left = u128::from(whole.saturating_sub(used)) * u128::from(share) / u128::from(whole);
    // A part of `share` at the most.
    share - left as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use tidegate_core::{Action, Ask, Timestamp};

    use super::*;

    #[test]
    fn shares_are_exact_parts_of_the_whole() {
        let part = |rank| Part { nodes: 3, rank };
        let bucket = Limit::token_bucket(Rate::per_second(10)).burst(20).build().expect("a limit");
        let shares: Vec<_> = (0..3).map(|rank| share_of(&bucket, part(rank))).collect();
        assert_eq!(shares.iter().map(Limit::limit).collect::<Vec<_>>(), [7, 7, 6]);
        assert_eq!(shares[0].spec().rate, Rate::new(10, Duration::from_secs(3)));
        let window = Limit::fixed_window(Rate::per_minute(2)).build().expect("a limit");
        let shares: Vec<_> = (0..3).map(|rank| share_of(&window, part(rank))).collect();
        assert_eq!(shares.iter().map(Limit::limit).collect::<Vec<_>>(), [1, 1, 0]);
        assert_eq!(shares[0].spec().rate.period, Duration::from_secs(60));
        let queue = Limit::leaky_queue(Rate::per_second(1), 4).build().expect("a limit");
        assert_eq!(share_of(&queue, part(2)).limit(), 1);
        assert_eq!(share_of(&queue, Part { nodes: 1, rank: 0 }), queue);
    }

    #[test]
    fn what_is_left_is_divided_and_never_more_than_there_is() {
        assert_eq!(used_of_share(80, 100, 25), 20);
        assert_eq!(used_of_share(81, 100, 25), 21);
        assert_eq!(used_of_share(0, 100, 25), 0);
        assert_eq!(used_of_share(500, 100, 25), 25);
    }

    fn specs() -> impl Strategy<Value = LimitSpec> {
        let rate = (1u64..500, 1u64..100).prop_map(|(u, s)| Rate::new(u, Duration::from_secs(s)));
        (rate, 0usize..6, 1u64..500).prop_map(|(rate, which, size)| match which {
            0 => Limit::token_bucket(rate).burst(size),
            1 => Limit::gcra(rate),
            2 => Limit::leaky_queue(rate, size),
            3 => Limit::fixed_window(rate),
            4 => Limit::sliding_counter(rate),
            _ => Limit::sliding_log(rate),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// All nodes together admit at once what the whole does, and in the long run no more.
        #[test]
        fn together_they_are_no_more_than_the_whole(spec in specs(), nodes in 1u64..9, later in 0u64..1000) {
            let whole = spec.build().expect("a limit");
            let taken = |limit: &Limit| {
                let (mut state, mut sum) = (None, 0);
                for seconds in [1_000_000, 1_000_000 + later] {
                    let ask = Ask::at(Timestamp::from_secs(seconds));
                    let room = limit.room(state.as_ref(), &ask);
                    sum += room;
                    if room > 0 {
                        let _ = limit.settle(&mut state, &ask, room, Action::Take);
                    }
                }
                sum
            };
            let parts = (0..nodes).map(|rank| share_of(&whole, Part { nodes, rank }));
            let together: u64 = parts.map(|part| taken(&part)).sum();
            prop_assert!(together <= taken(&whole), "{together} of {}", taken(&whole));
        }
    }
}
