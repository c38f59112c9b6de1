//! Who is measured. Every rival decides the same: so many per second for each key.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tidegate::{Limit, Limiter, MemoryStore, Rate};

use crate::workload::KeyBuffer;

/// A limiter that can be asked for a key.
pub trait Rival: Sync {
    fn ask(&self, key: &mut KeyBuffer, number: u32) -> bool;
}

/// Whether requests are admitted or, after the first few, refused.
#[derive(Clone, Copy, PartialEq)]
pub enum Path {
    Allow,
    Deny,
}

/// The rivals by name; the second is what the others are compared with.
pub const NAMES: [&str; 12] = [
    "harness (build the key)",
    "governor String",
    "governor u64",
    "atomic array by index",
    "atomic array by hash",
    "mutexed sharded map",
    "tidegate token bucket",
    "tidegate u64 key",
    "tidegate three limits",
    "tidegate fixed window",
    "tidegate sliding counter",
    "tidegate sliding log of 10",
];

pub const BASE: &str = "governor String";

pub fn build(name: &str, keys: u32, path: Path) -> Box<dyn Rival> {
    // Admitted: one a minute out of a bucket that nobody empties, so that keys stay in use between
    // two visits and nobody gains by forgetting them. Refused: one a day.
    let (units, burst) = match path {
        Path::Allow => (1_440, 50_000_000),
        Path::Deny => (1, 1),
    };
    let rate = Rate::per_day(units);
    let interval = 86_400_000_000_000 / units;
    let quota = Quota::with_period(Duration::from_nanos(interval))
        .expect("a period")
        .allow_burst(NonZeroU32::new(burst).expect("not zero"));
    let burst = u64::from(burst);
    let window = Rate { units: burst, ..rate };
    let limiter = |spec| {
        let store = MemoryStore::builder().max_keys(16_000_000).build();
        Limiter::builder().limit(spec).store(store).build().expect("a possible limit")
    };
    match name {
        "harness (build the key)" => Box::new(Harness),
        "governor String" => Box::new(GovernorString(RateLimiter::keyed(quota))),
        "governor u64" => Box::new(GovernorNumber(RateLimiter::keyed(quota))),
        "atomic array by index" => Box::new(Slots::new(keys, interval, burst, false)),
        "atomic array by hash" => Box::new(Slots::new(keys, interval, burst, true)),
        "mutexed sharded map" => Box::new(Map::new(interval, burst)),
        "tidegate token bucket" => {
            Box::new(ByName(limiter(Limit::token_bucket(rate).burst(burst))))
        }
        "tidegate u64 key" => Box::new(ByNumber(limiter(Limit::token_bucket(rate).burst(burst)))),
        "tidegate three limits" => Box::new(ByName(
            Limiter::builder()
                .limit(Limit::token_bucket(rate).burst(burst))
                .limit(Limit::gcra(rate).burst(burst))
                .limit(Limit::leaky_bucket(rate).burst(burst))
                .build()
                .expect("possible limits"),
        )),
        "tidegate fixed window" => Box::new(ByName(limiter(Limit::fixed_window(window)))),
        "tidegate sliding counter" => Box::new(ByName(limiter(Limit::sliding_counter(window)))),
        "tidegate sliding log of 10" => {
            Box::new(ByName(limiter(Limit::sliding_log(Rate { units: burst.min(10), ..rate }))))
        }
        other => panic!("no rival is called {other}"),
    }
}

struct Harness;

impl Rival for Harness {
    #[inline(always)]
    fn ask(&self, key: &mut KeyBuffer, number: u32) -> bool {
        black_box(key.set(number));
        true
    }
}

struct GovernorString(DefaultKeyedRateLimiter<String>);

impl Rival for GovernorString {
    fn ask(&self, key: &mut KeyBuffer, number: u32) -> bool {
        self.0.check_key(key.set(number)).is_ok()
    }
}

struct GovernorNumber(DefaultKeyedRateLimiter<u64>);

impl Rival for GovernorNumber {
    fn ask(&self, _key: &mut KeyBuffer, number: u32) -> bool {
        self.0.check_key(&u64::from(number)).is_ok()
    }
}

struct ByName(Limiter);

impl Rival for ByName {
    fn ask(&self, key: &mut KeyBuffer, number: u32) -> bool {
        self.0.check(key.set(number).as_str()).allowed
    }
}

struct ByNumber(Limiter);

impl Rival for ByNumber {
    fn ask(&self, _key: &mut KeyBuffer, number: u32) -> bool {
        self.0.check(&u64::from(number)).allowed
    }
}

/// A theoretical arrival time in an array: the least that a limiter could do. It knows no keys, so
/// two of them may share a slot; it is a lower bound and not a limiter.
struct Slots {
    slots: Vec<AtomicU64>,
    start: Instant,
    interval: u64,
    tolerance: u64,
    hash: Option<ahash::RandomState>,
}

impl Slots {
    fn new(keys: u32, interval: u64, burst: u64, hashed: bool) -> Self {
        let count = keys.next_power_of_two() as usize;
        Self {
            slots: (0..count).map(|_| AtomicU64::new(0)).collect(),
            start: Instant::now(),
            interval,
            tolerance: interval * burst,
            hash: hashed.then(ahash::RandomState::new),
        }
    }
}

impl Rival for Slots {
    fn ask(&self, key: &mut KeyBuffer, number: u32) -> bool {
        let (slot, now) = match &self.hash {
            None => (number as usize, 0),
            Some(hash) => {
                let slot = hash.hash_one(key.set(number).as_bytes()) as usize;
                (slot & (self.slots.len() - 1), self.start.elapsed().as_nanos() as u64)
            }
        };
        let slot = &self.slots[slot];
        slot.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |arrival| {
            let next = arrival.max(now) + self.interval;
            (next <= now + self.tolerance).then_some(next)
        })
        .is_ok()
    }
}

/// What many write first: a map behind a few locks.
struct Map {
    shards: Vec<Mutex<HashMap<String, u64, ahash::RandomState>>>,
    hash: ahash::RandomState,
    start: Instant,
    interval: u64,
    tolerance: u64,
}

impl Map {
    fn new(interval: u64, burst: u64) -> Self {
        Self {
            shards: (0..64).map(|_| Mutex::default()).collect(),
            hash: ahash::RandomState::new(),
            start: Instant::now(),
            interval,
            tolerance: interval * burst,
        }
    }
}

impl Rival for Map {
    fn ask(&self, key: &mut KeyBuffer, number: u32) -> bool {
        let key = key.set(number);
        let now = self.start.elapsed().as_nanos() as u64;
        let shard = (self.hash.hash_one(key.as_str()) >> 58) as usize;
        let mut map = self.shards[shard].lock().expect("nobody panics");
        match map.get_mut(key.as_str()) {
            Some(arrival) => {
                let next = (*arrival).max(now) + self.interval;
                let allowed = next <= now + self.tolerance;
                if allowed {
                    *arrival = next;
                }
                allowed
            }
            None => {
                map.insert(key.clone(), now + self.interval);
                true
            }
        }
    }
}
