//! Random histories: the same calls to the store and to the oracle, all answers equal.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Align, Compare, Inherit, Limit, LimitSpec, Rate, Refill, Timestamp, Windows};

use super::random::Random;
use super::referee::{Referee, Reply, START, Taking, ms, secs};
use crate::registry::Registered;
use crate::store::{Call, Item, Mode, Op, Store};

/// Every algorithm by itself, in all its variants, through a random history of every operation.
pub async fn each_algorithm<S: Store>(store: &S, seed: u64) {
    for (name, spec) in algorithms() {
        let case = format!("each_algorithm {name}, seed {seed}");
        let mut history = History::new(store, case, seed, &[(name, spec)]);
        history.play(250).await;
    }
}

/// Calls with several limits of different algorithms over few keys, so that items meet, repeat and
/// contradict each other.
pub async fn several_limits<S: Store>(store: &S, seed: u64) {
    let case = format!("several_limits, seed {seed}");
    let mut history = History::new(store, case, seed, &algorithms());
    history.items_max = 5;
    history.play(3000).await;
}

/// Limits whose numbers and algorithms change while their keys are in use.
pub async fn changing_limits<S: Store>(store: &S, seed: u64) {
    let case = format!("changing_limits, seed {seed}");
    let all = algorithms();
    let mut history = History::new(store, case, seed, &all[..3]);
    history.items_max = 2;
    history.holds = false;
    for _ in 0..300 {
        history.play(5).await;
        history.change_a_limit(&all);
    }
}

/// One of each kind of state and of each variant of the arithmetic.
fn algorithms() -> Vec<(&'static str, LimitSpec)> {
    let per_second = Rate::per_second;
    let per_10s = |units| Rate::new(units, secs(10));
    vec![
        ("token bucket", Limit::token_bucket(per_second(5)).burst(10)),
        ("token bucket of uneven rate", Limit::token_bucket(per_second(7)).burst(3)),
        // More units than a second has whole divisors for: states need more than 64 bits.
        ("token bucket of wide state", Limit::token_bucket(per_second(997)).burst(6)),
        ("token bucket with initial level", Limit::token_bucket(per_10s(10)).burst(8).initial(2)),
        ("interval bucket", Limit::token_bucket(per_10s(3)).burst(7).refill(Refill::Interval)),
        (
            "aligned interval bucket",
            Limit::token_bucket(per_10s(4)).refill(Refill::IntervalAligned),
        ),
        (
            "interval bucket with initial level",
            Limit::token_bucket(per_10s(2)).burst(6).initial(1).refill(Refill::Interval),
        ),
        ("leaky bucket", Limit::leaky_bucket(per_second(3)).burst(6)),
        ("leaky queue", Limit::leaky_queue(per_second(2), 5)),
        ("leaky queue with max delay", Limit::leaky_queue(per_second(3), 9).max_delay(ms(1500))),
        ("gcra", Limit::gcra(per_second(10)).burst(5)),
        ("fixed window", Limit::fixed_window(per_10s(5))),
        (
            "fixed window from the first request",
            Limit::fixed_window(per_10s(5)).align(Align::FirstRequest),
        ),
        ("fixed window by calendar", Limit::fixed_window(per_10s(5)).align(Align::Calendar)),
        ("fixed window that counts refusals", Limit::fixed_window(per_10s(4)).count_rejected()),
        ("sliding log", Limit::sliding_log(per_10s(6))),
        ("sliding log that counts refusals", Limit::sliding_log(per_10s(4)).count_rejected()),
        ("sliding counter", Limit::sliding_counter(per_10s(7))),
        ("sliding counter, exact", Limit::sliding_counter(per_10s(7)).compare(Compare::Exact)),
        ("concurrency", Limit::concurrency(4).lease(secs(2))),
        ("concurrency without lease", Limit::concurrency(4).without_lease()),
        ("warm-up", Limit::warm_up(per_second(5), secs(4))),
        ("warm-up with max delay", Limit::warm_up(per_second(4), secs(2)).max_delay(ms(900))),
        ("soft token bucket", Limit::token_bucket(per_10s(10)).soft(30, secs(4))),
        (
            "soft interval bucket",
            Limit::token_bucket(per_10s(5)).refill(Refill::Interval).soft(40, secs(7)),
        ),
        ("soft fixed window", Limit::fixed_window(per_10s(5)).soft(20, secs(3))),
        ("soft sliding log", Limit::sliding_log(per_10s(5)).soft(40, secs(6))),
        ("soft sliding counter", Limit::sliding_counter(per_10s(5)).soft(40, secs(6))),
        ("a limit that blocks", Limit::fixed_window(per_10s(0))),
    ]
}

/// One item of a call, by the positions of its limit and key.
#[derive(Clone, Copy)]
struct Pick {
    limit: usize,
    key: usize,
    factor: u64,
    mode: Mode,
}

/// A call whose takings may still be given back.
struct Past {
    picks: Vec<Pick>,
    takings: Vec<Taking>,
}

/// A history in the making.
struct History<'a, S> {
    referee: Referee<'a, S>,
    random: Random,
    limits: Vec<(&'static str, Arc<Registered>)>,
    keys: Vec<Vec<u8>>,
    /// How many items a call has at the most.
    items_max: u64,
    /// Whether units are reserved and given back.
    holds: bool,
    /// The time that matters to the limits.
    period: Duration,
    /// Microseconds since the beginning.
    now: u64,
    /// How long the last refusal said to wait.
    wait: Option<Duration>,
    pasts: Vec<Past>,
    reservations: u64,
}

impl<'a, S: Store> History<'a, S> {
    fn new(store: &'a S, case: String, seed: u64, specs: &[(&'static str, LimitSpec)]) -> Self {
        let referee = Referee::new(store, case);
        let limits = specs.iter().map(|(name, spec)| (*name, referee.limit(name, *spec)));
        let period = specs[0].1.rate.period;
        Self {
            limits: limits.collect(),
            keys: (0..3).map(|number| referee.key(number)).collect(),
            referee,
            random: Random::new(seed),
            items_max: 1,
            holds: true,
            period: if period.is_zero() { secs(2) } else { period },
            // Room to go back.
            now: 1_000_000_000,
            wait: None,
            pasts: Vec::new(),
            reservations: 0,
        }
    }

    async fn play(&mut self, steps: usize) {
        for _ in 0..steps {
            self.let_time_pass();
            match self.random.below(20) {
                0 if self.holds => self.give_back().await,
                1..=2 if self.holds => self.reserve().await,
                3..=4 if self.holds => self.settle().await,
                _ => self.call().await,
            }
        }
    }

    /// Registers one of the limits anew, as something else.
    fn change_a_limit(&mut self, specs: &[(&'static str, LimitSpec)]) {
        const WAYS: [Inherit; 5] = [
            Inherit::Used,
            Inherit::AsIs,
            Inherit::Proportional,
            Inherit::Additive,
            Inherit::Reset,
        ];
        let inherit = WAYS[self.random.index(WAYS.len())];
        let spec = specs[self.random.index(specs.len())].1;
        let which = self.random.index(self.limits.len());
        let (name, limit) = &mut self.limits[which];
        *limit = self.referee.change(name, spec, inherit);
    }

    fn let_time_pass(&mut self) {
        let random = &mut self.random;
        let period = micros(self.period);
        match random.below(20) {
            0..=7 => {}
            8..=11 => self.now += random.below(period / 8),
            12..=13 => self.now += random.below(period),
            // Just in time, or a microsecond early.
            14..=15 => {
                let wait = self.wait.take().map_or(0, micros);
                // A wait of years would leave all other limits behind.
                if wait < 10 * period {
                    self.now += wait.saturating_sub(random.below(2));
                }
            }
            16 => self.now += period - 1 + random.below(3),
            17 => self.now += random.below(4 * period),
            _ => self.now -= random.small(period).min(self.now),
        }
    }

    fn time(&self) -> Timestamp {
        START + Duration::from_micros(self.now)
    }

    fn pick(&mut self) -> Vec<Pick> {
        let count = 1 + self.random.below(self.items_max);
        let mut picks: Vec<Pick> = Vec::new();
        for _ in 0..count {
            let random = &mut self.random;
            // The same key under the same limit comes up now and then, also in another mode.
            let again = if random.one_in(6) { picks.last().copied() } else { None };
            let limit = again.map_or_else(|| random.index(self.limits.len()), |pick| pick.limit);
            let counts_rejected = self.limits[limit].1.limit().counts_rejected();
            let mode = match random.below(8) {
                // What a limit that counts refusals counts in these modes is its own affair.
                _ if self.items_max == 1 || counts_rejected => Mode::Enforce,
                0 => Mode::Shadow,
                1 | 2 => Mode::Quota(u32::from(random.one_in(2))),
                _ => Mode::Enforce,
            };
            picks.push(Pick {
                limit,
                key: again.map_or_else(|| random.index(self.keys.len()), |pick| pick.key),
                factor: if random.one_in(4) { random.below(4) } else { 1 },
                mode,
            });
        }
        picks
    }

    async fn call(&mut self) {
        let (picks, now) = (self.pick(), self.time());
        let (mut op, cost, holder) = self.question(&picks);
        let has = |test: fn(&Registered) -> bool| {
            picks.iter().any(|pick| test(&self.limits[pick.limit].1))
        };
        // Nobody has said how much of a request that is granted nothing counts as refused.
        if op == Op::UpTo && has(|limit| limit.limit().counts_rejected()) {
            op = Op::Check;
        }
        let (limits, keys) = (&self.limits, &self.keys);
        let items: Vec<Item<'_>> = items(limits, keys, &picks, now);
        let call = Call::new(op, &items, cost, now).held_by(holder);
        if !self.referee.oracle.is_certain(&call) {
            return;
        }
        let reply = self.referee.apply(&call).await;
        self.remember(picks, &reply);
    }

    fn question(&mut self, picks: &[Pick]) -> (Op<'static>, u64, u128) {
        let random = &mut self.random;
        let op = match random.below(40) {
            0..=21 => Op::Check,
            22..=26 => Op::Peek,
            27..=32 => Op::UpTo,
            33..=35 => Op::Force,
            36..=38 => Op::Refund,
            _ => Op::Reset,
        };
        let limit = picks.iter().map(|pick| self.limits[pick.limit].1.limit().limit()).min();
        let cost = match random.one_in(12) {
            true => 0,
            false => 1 + random.small(limit.unwrap_or(0) + 1),
        };
        (op, cost, u128::from(random.below(3)))
    }

    /// Keeps what a later step may need.
    fn remember(&mut self, picks: Vec<Pick>, reply: &Reply) {
        let waits = reply.decisions.iter().filter(|decision| !decision.allowed);
        self.wait = waits.filter_map(|decision| decision.retry.after()).max().or(self.wait);
        if self.holds && reply.takings.iter().any(|taking| taking.store.cost > 0) {
            self.pasts.push(Past { picks, takings: reply.takings.clone() });
        }
    }

    async fn give_back(&mut self) {
        if self.pasts.is_empty() {
            return;
        }
        let which = self.random.index(self.pasts.len());
        let Past { picks, takings } = self.pasts.swap_remove(which);
        let now = self.time();
        let items = items(&self.limits, &self.keys, &picks, now);
        if self.referee.oracle.is_certain(&Call::new(Op::Reset, &items, 1, now)) {
            self.referee.give_back(&items, &takings, now).await;
        }
    }

    async fn reserve(&mut self) {
        let (picks, now) = (self.pick(), self.time());
        let (_, cost, holder) = self.question(&picks);
        // What limits in shadow have to do with a reservation of nothing, nobody has said.
        let cost = if self.items_max > 1 { cost.max(1) } else { cost };
        // One of the last ones again, sometimes.
        let id = if self.random.one_in(5) {
            self.random.below(self.reservations + 1)
        } else {
            self.reservations += 1;
            self.reservations
        };
        let id = self.referee.id(id);
        let ttl = Duration::from_micros(1 + self.random.below(20 * micros(self.period)));
        let items = items(&self.limits, &self.keys, &picks, now);
        let call = Call::new(Op::Check, &items, cost, now).held_by(holder);
        let oracle = &self.referee.oracle;
        if oracle.is_certain(&call) && oracle.is_certain_about(id, now) {
            self.referee.reserve(&call, id, ttl).await;
        }
    }

    async fn settle(&mut self) {
        // One of the last few, some of which are open.
        let back = self.random.below(5).min(self.reservations);
        let id = self.referee.id(self.reservations - back);
        let (cost, now) = (self.random.below(6), self.time());
        let oracle = &self.referee.oracle;
        if oracle.is_certain_about(id, now) && oracle.is_certain_of_parts(id, now) {
            self.referee.settle(id, cost, now).await;
        }
    }
}

fn items<'a>(
    limits: &'a [(&'static str, Arc<Registered>)],
    keys: &'a [Vec<u8>],
    picks: &[Pick],
    now: Timestamp,
) -> Vec<Item<'a>> {
    let item = |pick: &Pick| {
        let limit: &Registered = &limits[pick.limit].1;
        let windows = limit.limit().needs_calendar().then(|| calendar(now));
        Item { factor: pick.factor, mode: pick.mode, windows, ..Item::new(&keys[pick.key], limit) }
    };
    picks.iter().map(item).collect()
}

/// A calendar of months, so to speak: windows of 9, 10 and 11 seconds in turn.
fn calendar(now: Timestamp) -> Windows {
    let since = now.since(START).as_secs();
    let (turn, rest) = (since / 30, since % 30);
    let third = match rest {
        0..9 => 0,
        9..19 => 1,
        _ => 2,
    };
    let edge = |number: u64| START + secs(30 * (number / 3) + [0, 9, 19][(number % 3) as usize]);
    let number = 3 * turn + third;
    Windows {
        edges: [edge(number.saturating_sub(1)), edge(number), edge(number + 1), edge(number + 2)],
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX)
}
