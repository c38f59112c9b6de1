//! Long random histories through memory and Redis side by side, by injected time: every field of
//! every answer has to be the same.
//!
//! `TIDEGATE_HISTORIES` says how many histories to play instead of a few; `TIDEGATE_SEED` which to
//! begin with.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use support::Server;
use tidegate_core::{
    Align, Compare, Inherit, Limit, LimitSpec, Rate, Refill, Taken, Timestamp, Windows,
};
use tidegate_store::{Answer, Call, Item, MemoryStore, Mode, Op, Outcome, Registered, Store};
use tidegate_store_redis::{RedisOptions, RedisStore, TimeSource};

const DAY: Duration = Duration::from_secs(86_400);
const STEPS: usize = 400;

/// SplitMix64: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound.max(1))) >> 64) as u64
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Rates that are even and odd, small and as large as they can be.
fn rates() -> Vec<Rate> {
    vec![
        Rate::per_second(5),
        Rate::per_second(997),
        Rate::new(7, Duration::from_secs(13)),
        Rate::per_minute(10),
        Rate::per_hour(999_983),
        Rate::per_day(100_000),
        Rate::new(3_500, 30 * DAY),
        Rate::new(u64::from(u32::MAX), 400 * DAY),
        Rate::new(1, Duration::from_micros(1)),
        Rate::new(3, Duration::from_micros(7)),
    ]
}

/// Every algorithm and variant at a rate.
fn variants(rate: Rate, random: &mut Random) -> Vec<LimitSpec> {
    let burst = 1 + random.below(2 * rate.units.min(1 << 31));
    let span = Duration::from_micros(1 + random.below(rate.period.as_micros() as u64));
    let mut all = vec![
        Limit::token_bucket(rate),
        Limit::token_bucket(rate).burst(burst),
        Limit::token_bucket(rate).burst(burst).initial(random.below(burst)),
        Limit::gcra(rate).burst(burst),
        Limit::leaky_bucket(rate),
        Limit::leaky_queue(rate, burst),
        Limit::leaky_queue(rate, burst).max_delay(span),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::token_bucket(rate).refill(Refill::Interval).burst(burst).initial(burst / 3),
        Limit::token_bucket(rate).refill(Refill::IntervalAligned).burst(burst),
        Limit::fixed_window(rate),
        Limit::fixed_window(rate).align(Align::FirstRequest),
        Limit::fixed_window(rate).align(Align::Calendar),
        Limit::fixed_window(rate).count_rejected(),
        Limit::sliding_counter(rate),
        Limit::sliding_counter(rate).compare(Compare::Exact),
        Limit::concurrency(1 + burst.min(50)).lease(span),
        Limit::concurrency(1 + burst.min(50)).without_lease(),
        Limit::warm_up(rate, span).max_delay(span),
        Limit::warm_up(rate, span).cold_factor(2 + random.below(9)),
        Limit::token_bucket(rate).soft(30, span),
        Limit::token_bucket(rate).refill(Refill::Interval).soft(50, span),
        Limit::token_bucket(rate).burst(burst).initial(burst / 2).soft(30, span),
        Limit::fixed_window(rate).soft(20, span),
        Limit::sliding_counter(rate).soft(40, span),
        Limit::sliding_counter(rate).compare(Compare::Exact).soft(40, span),
        Limit::fixed_window(Rate::new(0, rate.period)),
    ];
    if rate.units < 1_000_000 {
        all.extend([
            Limit::sliding_log(rate),
            Limit::sliding_log(rate).count_rejected(),
            Limit::sliding_log(rate).soft(40, span),
        ]);
    }
    // What a core cannot build, or Redis cannot count, is not part of the comparison.
    all.retain(|spec| spec.build().is_ok());
    all
}

struct Both<'a> {
    seed: u64,
    step: usize,
    random: Random,
    memory: MemoryStore,
    redis: &'a RedisStore,
    limits: Vec<[Arc<Registered>; 2]>,
    keys: Vec<Vec<u8>>,
    /// In microseconds; and the latest that was told.
    now: u64,
    latest: u64,
    period: u64,
    /// How long the last refusal said to wait, in microseconds.
    wait: Option<u64>,
    /// When each key will be spent: a store may have dropped it from then on, so that a clock
    /// that goes back to before may find it, or not.
    spent_at: HashMap<(usize, usize), Option<u64>>,
    taken: Vec<(Vec<Pick>, Vec<Taken>)>,
    reservations: HashMap<u128, (u64, Vec<Pick>)>,
    compared: usize,
    trace: Vec<String>,
}

#[derive(Clone, Copy)]
struct Pick {
    limit: usize,
    key: usize,
    factor: u64,
    mode: Mode,
}

impl<'a> Both<'a> {
    fn new(seed: u64, redis: &'a RedisStore) -> Self {
        let mut random = Random(seed);
        let rate = random.pick(&rates());
        let mut specs = variants(rate, &mut random);
        // Sometimes one limit by itself, sometimes all of them together.
        if random.one_in(2) {
            specs = vec![random.pick(&specs)];
        }
        let memory = MemoryStore::new();
        let register = |(index, spec): (usize, LimitSpec)| {
            let limit = spec.build().unwrap();
            let id = format!("{seed}/{index}");
            let redis = redis.register(&id, limit.clone(), Inherit::Used).ok()?;
            Some([memory.register(&id, limit, Inherit::Used).unwrap(), redis])
        };
        let limits: Vec<_> = specs.into_iter().enumerate().filter_map(register).collect();
        assert!(!limits.is_empty(), "seed {seed}: none of the limits can be registered");
        let start = random.pick(&[0, 1_000_000_007, 1_700_000_000_000_000, 4_000_000_000_000_000]);
        Self {
            seed,
            step: 0,
            memory,
            redis,
            limits,
            keys: (0..3).map(|key| format!("{seed}:{key}").into_bytes()).collect(),
            now: start + 1_000_000,
            latest: 0,
            period: (rate.period.as_micros() as u64).max(2),
            wait: None,
            spent_at: HashMap::new(),
            taken: Vec::new(),
            reservations: HashMap::new(),
            compared: 0,
            trace: Vec::new(),
            random,
        }
    }

    async fn play(&mut self) {
        for step in 0..STEPS {
            self.step = step;
            self.let_time_pass();
            match self.random.below(20) {
                0 | 1 => self.give_back().await,
                2 => self.reserve().await,
                3 => self.settle().await,
                _ => self.call().await,
            }
        }
        assert!(self.compared > STEPS / 4, "seed {}: too little was compared", self.seed);
    }

    fn let_time_pass(&mut self) {
        let (random, period) = (&mut self.random, self.period);
        match random.below(18) {
            0..=5 => {}
            6..=8 => self.now += random.below(period / 50 + 2),
            9..=10 => self.now += random.below(period),
            11 => self.now += period - 1 + random.below(3),
            12 => self.now += random.below(4 * period),
            13 if self.wait.is_none() => self.now += 1,
            // Just in time, or a microsecond early: where numbers are nearest to each other.
            13..=15 if self.wait.is_some() => {
                let wait = self.wait.take().unwrap_or(0);
                self.now += wait.saturating_sub(random.below(2));
            }
            16 => self.now -= random.below(period / 10 + 2).min(self.now),
            17 => self.now -= random.below(3 * period).min(self.now),
            _ => self.now += 1,
        }
        // Far enough from where microseconds in doubles end.
        self.now = self.now.min(5_400_000_000_000_000);
    }

    fn picks(&mut self) -> Vec<Pick> {
        let count = 1 + self.random.below(if self.limits.len() > 1 { 5 } else { 2 });
        let random = &mut self.random;
        (0..count)
            .map(|_| Pick {
                limit: random.below(self.limits.len() as u64) as usize,
                key: random.below(self.keys.len() as u64) as usize,
                factor: if random.one_in(5) { random.below(4) } else { 1 },
                mode: match random.below(10) {
                    0 => Mode::Shadow,
                    1 | 2 => Mode::Quota(random.below(2) as u32),
                    _ => Mode::Enforce,
                },
            })
            .collect()
    }

    fn cost(&mut self, picks: &[Pick]) -> u64 {
        let limits = picks.iter().map(|pick| self.limits[pick.limit][0].limit().limit());
        let limit = limits.min().unwrap_or(1).max(1);
        let random = &mut self.random;
        match random.below(12) {
            0 => 0,
            1..=5 => 1 + random.below(3),
            6..=8 => 1 + random.below(limit),
            9 => limit,
            10 => limit + random.below(2),
            _ => 1 + random.below(limit / 10 + 1),
        }
    }

    /// Whether memory and Redis have to know the same of these keys.
    fn is_certain(&self, picks: &[Pick]) -> bool {
        picks.iter().all(|pick| match self.spent_at.get(&(pick.limit, pick.key)) {
            // Of a key that is new, or counts as new, answers do not tell which.
            _ if self.limits[pick.limit][0].limit().remembers_first_sight() => {
                self.now >= self.latest
            }
            Some(Some(spent)) => *spent > self.latest.max(self.now) || self.now >= *spent,
            _ => true,
        })
    }

    fn items<'b>(&'b self, store: usize, picks: &[Pick]) -> Vec<Item<'b>> {
        let item = |pick: &Pick| {
            let limit: &Registered = &self.limits[pick.limit][store];
            let windows = limit.limit().needs_calendar().then(|| self.calendar());
            let item = Item::new(&self.keys[pick.key], limit);
            Item { factor: pick.factor, mode: pick.mode, windows, ..item }
        };
        picks.iter().map(item).collect()
    }

    /// Windows that are a little longer than the limit's own, in a row.
    fn calendar(&self) -> Windows {
        let length = self.period + self.period / 7 + 1;
        let edge = |number: u64| Timestamp::from_nanos(number * length * 1000);
        let number = self.now / length;
        let edges = [number.saturating_sub(1), number, number + 1, number + 2].map(edge);
        Windows { edges }
    }

    fn time(&mut self) -> Timestamp {
        self.latest = self.latest.max(self.now);
        Timestamp::from_nanos(self.now * 1000)
    }

    async fn call(&mut self) {
        let picks = self.picks();
        if !self.is_certain(&picks) {
            self.now = self.latest;
        }
        let ops = [
            Op::Check,
            Op::Check,
            Op::Check,
            Op::Check,
            Op::Peek,
            Op::UpTo,
            Op::Force,
            Op::Refund,
            Op::Reset,
        ];
        let op = if self.random.one_in(3) { Op::Check } else { self.random.pick(&ops) };
        let (cost, holder) = (self.cost(&picks), u128::from(self.random.below(4)));
        self.ask(&picks, op, cost, holder).await;
    }

    async fn ask(&mut self, picks: &[Pick], op: Op<'_>, cost: u64, holder: u128) {
        let now = self.time();
        self.trace.push(format!("{op:?} {cost} at {now} by {holder}"));
        let mut expected = vec![Answer::default(); picks.len()];
        let mut found = expected.clone();
        let items = self.items(0, picks);
        let call = Call::new(op, &items, cost, now).held_by(holder);
        let expected_outcome = self.memory.apply(&call, &mut expected).await.unwrap();
        let items = self.items(1, picks);
        let call = Call::new(op, &items, cost, now).held_by(holder);
        let outcome = self.redis.apply(&call, &mut found).await;
        let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", self.place(&call)));
        self.compare(&call, (outcome, &found), (expected_outcome, &expected));
        self.remember(picks, &found);
    }

    fn remember(&mut self, picks: &[Pick], found: &[Answer]) {
        self.compared += 1;
        let waits = found.iter().filter(|answer| !answer.decision.allowed);
        let waits = waits.filter_map(|answer| answer.decision.retry.after());
        let wait = waits.map(|wait| wait.as_nanos().div_ceil(1000) as u64).max();
        // A wait of years would leave everything else behind.
        self.wait = wait.filter(|wait| *wait < 20 * self.period);
        for (pick, answer) in picks.iter().zip(found) {
            let spent = answer.decision.reset_after;
            let spent = spent.map(|reset| self.now + reset.as_nanos().div_ceil(1000) as u64);
            self.spent_at.insert((pick.limit, pick.key), spent);
        }
        if found.iter().any(|answer| answer.taken.cost > 0) {
            let takings = found.iter().map(|answer| answer.taken).collect();
            self.taken.push((picks.to_vec(), takings));
        }
    }

    async fn give_back(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let which = self.random.below(self.taken.len() as u64) as usize;
        let (picks, takings) = self.taken.swap_remove(which);
        if self.is_certain(&picks) {
            self.ask(&picks, Op::GiveBack(&takings), 0, 0).await;
        }
    }

    async fn reserve(&mut self) {
        let picks = self.picks();
        let id = u128::from(self.seed) << 64 | u128::from(self.random.below(6));
        let over = self
            .reservations
            .get(&id)
            .is_some_and(|(ends, _)| *ends <= self.latest.max(self.now) && self.now < *ends);
        if !self.is_certain(&picks) || over {
            return;
        }
        let (cost, holder) = (self.cost(&picks), u128::from(self.random.below(4)));
        let ttl = Duration::from_micros(1 + self.random.below(3 * self.period));
        let now = self.time();
        self.trace.push(format!("reserve {id} {cost} at {now} by {holder} for {ttl:?}"));
        let mut expected = vec![Answer::default(); picks.len()];
        let mut found = expected.clone();
        let items = self.items(0, &picks);
        let call = Call::new(Op::Check, &items, cost, now).held_by(holder);
        let expected_outcome = self.memory.reserve(&call, &mut expected, id, ttl).await.unwrap();
        let items = self.items(1, &picks);
        let call = Call::new(Op::Check, &items, cost, now).held_by(holder);
        let outcome = self.redis.reserve(&call, &mut found, id, ttl).await.unwrap();
        self.compare(&call, (outcome, &found), (expected_outcome, &expected));
        self.remember(&picks, &found);
        let open = self.reservations.get(&id).is_some_and(|(ends, _)| self.now < *ends);
        if outcome.allowed && !open {
            let ends = self.now + ttl.as_micros() as u64;
            self.reservations.insert(id, (ends, picks));
        }
    }

    async fn settle(&mut self) {
        let Some(id) = self.reservations.keys().copied().min() else { return };
        let (ends, picks) = self.reservations[&id].clone();
        if !self.is_certain(&picks) || (ends <= self.latest && self.now < ends) {
            return;
        }
        self.reservations.remove(&id);
        let (cost, now) = (self.random.below(5), self.time());
        self.trace.push(format!("settle {id} at {cost}, {now}"));
        let expected = self.memory.settle(id, cost, now).await.unwrap();
        let found = self.redis.settle(id, cost, now).await.unwrap();
        assert_eq!(found, expected, "seed {}, step {}: settled", self.seed, self.step);
        self.ask(&picks, Op::Peek, 0, 0).await;
    }

    fn compare(
        &self,
        call: &Call<'_>,
        (outcome, found): (Outcome, &[Answer]),
        (expected_outcome, expected): (Outcome, &[Answer]),
    ) {
        for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
            let place = || format!("{}\nitem {index}", self.place(call));
            assert_eq!(found.decision, expected.decision, "{}", place());
            assert_eq!(found.taken, expected.taken, "{}", place());
        }
        assert_eq!(outcome, expected_outcome, "{}", self.place(call));
    }

    fn place(&self, call: &Call<'_>) -> String {
        let items = call.items.iter().map(|item| {
            let key = String::from_utf8_lossy(item.key);
            format!("\n  {key} {:?} {:?} x{}", item.limit, item.mode, item.factor)
        });
        let trace = self.trace.iter().rev().take(12).rev().cloned().collect::<Vec<_>>().join("\n");
        format!(
            "TIDEGATE_SEED={} step {}:{}\n{trace}",
            self.seed,
            self.step,
            items.collect::<String>()
        )
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

async fn open(server: &Server) -> RedisStore {
    let mut options = RedisOptions::new(server.url().parse().unwrap());
    options.time = TimeSource::Caller;
    options.strict = true;
    options.deadline = Duration::from_secs(5);
    RedisStore::open(options).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_redis_answer_the_same() {
    let server = Server::redis();
    let store = open(&server).await;
    let first = number("TIDEGATE_SEED").unwrap_or(1);
    let count = number("TIDEGATE_HISTORIES").unwrap_or(60);
    println!("seeds {first} to {}", first + count - 1);
    let mut compared = 0;
    for seed in first..first + count {
        let mut both = Both::new(seed, &store);
        both.play().await;
        compared += both.compared;
    }
    println!("{compared} calls compared");
    assert_eq!(store.stats().disagreements, 0);
}

/// Long logs, whose beginning is cut off now and then, and whose running totals begin anew before they
/// pass 2^53: here they are pushed there.
#[tokio::test(flavor = "multi_thread")]
async fn long_logs_stay_exact() {
    let server = Server::redis();
    let store = open(&server).await;
    for (seed, spec) in [
        (1, Limit::sliding_log(Rate::new(300, Duration::from_secs(10)))),
        (2, Limit::sliding_log(Rate::new(400, Duration::from_secs(10))).count_rejected()),
    ] {
        let mut both = Both::new(u64::MAX - seed, &store);
        let id = format!("long log {seed}");
        let limit = spec.build().unwrap();
        let redis = store.register(&id, limit.clone(), Inherit::Used).unwrap();
        both.limits = vec![[both.memory.register(&id, limit, Inherit::Used).unwrap(), redis]];
        let pick = [Pick { limit: 0, key: 0, factor: 1, mode: Mode::Enforce }];
        for step in 0..4000 {
            both.step = step;
            both.now += both.random.below(60_000);
            let cost = 1 + both.random.below(3);
            match both.random.below(12) {
                0 => both.ask(&pick, Op::Refund, cost, 0).await,
                1 if both.is_certain(&pick) => both.give_back().await,
                2 => both.ask(&pick, Op::Peek, 50, 0).await,
                _ => both.ask(&pick, Op::Check, cost, 0).await,
            }
            if step == 500 {
                push_totals(&server, &both.keys[0], &id);
            }
        }
    }
    assert_eq!(store.stats().disagreements, 0);
}

/// Products of a count and a time that pass 2^53 are compared in full: here they differ by one from a
/// multiple of the window, which doubles take for that multiple.
#[tokio::test(flavor = "multi_thread")]
async fn counters_are_exact_where_products_are_large() {
    let server = Server::redis();
    let store = open(&server).await;
    let rate = Rate::new(u64::from(u32::MAX), 400 * DAY);
    let length = 400 * 86_400_000_000_u64;
    for compare in [Compare::Floor, Compare::Exact] {
        let mut both = Both::new(u64::MAX - 9, &store);
        let limit = Limit::sliding_counter(rate).compare(compare).build().unwrap();
        let id = format!("large {compare:?}");
        let redis = store.register(&id, limit.clone(), Inherit::Used).unwrap();
        both.limits = vec![[both.memory.register(&id, limit, Inherit::Used).unwrap(), redis]];
        for trial in 0..300 {
            both.step = trial;
            both.keys = vec![format!("{compare:?} {trial}").into_bytes()];
            let pick = [Pick { limit: 0, key: 0, factor: 1, mode: Mode::Enforce }];
            // A previous count, and the time left for which their product is 1 beyond whole windows.
            let previous = 4_294_967_291 - 2 * both.random.below(1 << 30);
            let Some(inverse) = inverse(previous, length) else { continue };
            for left in [inverse, length - inverse] {
                let start = 20 * length;
                let room = (u128::from(previous) * u128::from(left) / u128::from(length)) as u64;
                both.now = start - length;
                both.ask(&pick, Op::Reset, 0, 0).await;
                both.ask(&pick, Op::Check, previous, 0).await;
                both.now = start + length - left;
                for cost in [room.saturating_sub(1), room, room + 1, room + 2] {
                    let cost = u64::from(u32::MAX) - cost;
                    both.ask(&pick, Op::Peek, cost, 0).await;
                }
            }
        }
    }
    assert_eq!(store.stats().disagreements, 0);
}

/// What `a` has to be multiplied by to be one more than a multiple of `of`.
fn inverse(a: u64, of: u64) -> Option<u64> {
    let (mut r, mut next_r) = (i128::from(of), i128::from(a % of));
    let (mut t, mut next_t) = (0i128, 1i128);
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (t, next_t) = (next_t, t - quotient * next_t);
    }
    (r == 1).then(|| t.rem_euclid(i128::from(of)) as u64)
}

/// Adds nearly 2^53 to all running totals of a log.
fn push_totals(server: &Server, key: &[u8], id: &str) {
    let name = format!("tg1:{{{}:{}}}s{id}", key.len(), String::from_utf8_lossy(key));
    let script = "local v = redis.call('GET', KEYS[1]) \
        local base = 2 + string.byte(v, 2) \
        local out = { string.sub(v, 1, base) } \
        local h, b, c, n, t, e, pos = struct.unpack('<dddddd', v, base + 1) \
        out[2] = struct.pack('<dddddd', h, b + (2^53 - 3000), c, n, t + (2^53 - 3000), e) \
        while pos <= #v do \
            local at, total \
            at, total, pos = struct.unpack('<dd', v, pos) \
            out[#out + 1] = struct.pack('<dd', at, total + (2^53 - 3000)) \
        end \
        redis.call('SET', KEYS[1], table.concat(out)) \
        return 'OK'";
    assert_eq!(server.ask(&["EVAL", script, "1", &name]), "OK");
}
