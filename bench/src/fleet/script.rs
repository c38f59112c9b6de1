//! What a decision costs Redis: the commands that the store sends, sent again by the same client
//! and in the same way as a plain GCRA script.

use std::time::Duration;

use tidegate_core::{Inherit, Limit, LimitSpec, Rate, Refill, Timestamp};
use tidegate_store::{Answer, Call, Item, Op, Store as _};
use tidegate_store_redis::{RedisOptions, RedisStore};

use super::middle;
use super::wire::{ask, cpu_us, encode, load, overhear};
use crate::service::{Child, GCRA_SCRIPT, Length};

const CONNECTIONS: usize = 50;
const KEYS: usize = 2_000;
/// The part of a key that is replaced by others.
const PLACE: &str = "000000000000";

/// A limit under which keys stay in use between two visits, and which nobody reaches.
fn limits() -> Vec<(&'static str, LimitSpec)> {
    let (slow, burst) = (Rate::per_day(1_440), 1_000_000);
    let window = Rate::per_day(burst);
    vec![
        ("token bucket", Limit::token_bucket(slow).burst(burst)),
        (
            "token bucket, refill at intervals",
            Limit::token_bucket(slow).burst(burst).refill(Refill::Interval),
        ),
        ("leaky bucket", Limit::leaky_bucket(slow).burst(burst)),
        ("leaky bucket with a queue", Limit::leaky_queue(slow, burst)),
        ("GCRA", Limit::gcra(slow).burst(burst)),
        ("fixed window", Limit::fixed_window(window)),
        ("sliding window counter", Limit::sliding_counter(window)),
        ("sliding window log", Limit::sliding_log(Rate::per_day(10_000))),
        ("concurrency", Limit::concurrency(1_000_000)),
        ("warm-up", Limit::warm_up(slow, Duration::from_secs(3600))),
    ]
}

/// Who is measured: a name, the words of a command, and the commands that it sends.
struct Rival {
    name: String,
    words: Vec<Vec<u8>>,
    commands: Vec<Vec<u8>>,
}

impl Rival {
    fn new(name: String, words: Vec<Vec<u8>>, keys: usize) -> Self {
        Self { name, commands: for_keys(&words, keys), words }
    }
}

pub(super) fn run(length: Length) {
    let redis = Child::redis();
    let rivals = rivals(&redis.address, length);
    for pipeline in [1, 16] {
        let mut rounds: Vec<Vec<f64>> = rivals.iter().map(|_| Vec::new()).collect();
        for _ in 0..length.rounds() {
            for (rival, rounds) in rivals.iter().zip(&mut rounds) {
                ask(&redis.address, &["FLUSHALL"]);
                // Every key is there once, so that nobody is measured at making them.
                load(&redis.address, &rival.commands, 1, 50, rival.commands.len());
                let before = cpu_us(&redis.address);
                let total = length.requests() / 10;
                load(&redis.address, &rival.commands, CONNECTIONS, pipeline, total);
                rounds.push((cpu_us(&redis.address) - before) / total as f64);
            }
        }
        print(pipeline, &rivals, &mut rounds);
    }
    memory(&redis.address, &rivals, if length == Length::Full { 100_000 } else { 100 });
}

fn print(pipeline: usize, rivals: &[Rival], rounds: &mut [Vec<f64>]) {
    println!("\n### CPU of Redis per decision, {CONNECTIONS} connections, pipeline {pipeline}\n");
    println!("| what | CPU | ratio |\n| --- | --- | --- |");
    let base = middle(&mut rounds[0].clone()).0;
    for (rival, rounds) in rivals.iter().zip(rounds) {
        let (us, low, high) = middle(rounds);
        println!("| {} | {us:.1} us [{low:.1}-{high:.1}] | {:.2}x |", rival.name, us / base);
    }
}

/// The plain script first, then the store's commands for each algorithm.
fn rivals(address: &str, length: Length) -> Vec<Rival> {
    let sha = ask(address, &["SCRIPT", "LOAD", GCRA_SCRIPT]);
    let keys = if length == Length::Full { KEYS } else { 10 };
    let limits = limits();
    let captured: Vec<_> = limits.iter().map(|(_, spec)| capture(address, spec)).collect();
    // As long a key, which costs as much to send and to find.
    let key = captured[0].iter().find(|word| has_place(word)).expect("a key").clone();
    let plain = [b"EVALSHA", sha.as_bytes(), b"1", &key, b"60000000", b"1000000"];
    let plain: Vec<Vec<u8>> = plain.iter().map(|word| word.to_vec()).collect();
    let gcra = Rival::new("plain GCRA script".to_owned(), plain, keys);
    let ours = limits
        .iter()
        .zip(captured)
        .map(|((name, _), words)| Rival::new(format!("tidegate, {name}"), words, keys));
    std::iter::once(gcra).chain(ours).collect()
}

/// What the store sends for one check.
fn capture(address: &str, spec: &LimitSpec) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let target = format!("redis://{address}").parse().expect("an address");
    let mut options = RedisOptions::new(target);
    options.deadline = Duration::from_secs(5);
    let store = runtime.block_on(RedisStore::open(options)).expect("a store");
    assert!(runtime.block_on(store.wait_ready(Duration::from_secs(5))), "Redis answers");
    let limit = spec.build().expect("a possible limit");
    let handle = store.register("bench", limit, Inherit::Used).expect("a limit that fits");
    let key = format!("user{PLACE}");
    let items = [Item::new(key.as_bytes(), &handle)];
    let now = Timestamp::from_secs(1_800_000_000);
    let check = || {
        let call = Call::new(Op::Check, &items, 1, now).held_by(1);
        let mut answers = [Answer::default()];
        let outcome = runtime.block_on(store.apply(&call, &mut answers)).expect("an answer");
        assert!(outcome.allowed, "{answers:?}");
    };
    // The first one may find that the script is not there.
    check();
    let heard = overhear(address, "EVALSHA", check);
    let ours: Vec<_> =
        heard.into_iter().filter(|words| words.iter().any(|w| has_place(w))).collect();
    assert_eq!(ours.len(), 1, "one command for one check");
    ours.into_iter().next().expect("one")
}

fn place(word: &[u8]) -> Option<usize> {
    word.windows(PLACE.len()).position(|part| part == PLACE.as_bytes())
}

fn has_place(word: &[u8]) -> bool {
    place(word).is_some()
}

/// The same command for other keys.
fn for_keys(words: &[Vec<u8>], keys: usize) -> Vec<Vec<u8>> {
    let for_key = |number: usize| {
        let mut words = words.to_vec();
        for word in &mut words {
            if let Some(at) = place(word) {
                word[at..at + PLACE.len()].copy_from_slice(format!("{number:012}").as_bytes());
            }
        }
        encode(&words)
    };
    (0..keys).map(for_key).collect()
}

/// Bytes that keys take.
fn memory(address: &str, rivals: &[Rival], keys: usize) {
    println!("\n### Bytes per key in Redis, keys of 16 characters that were asked for once\n");
    println!("| what | growth of `used_memory` | `MEMORY USAGE` |\n| --- | --- | --- |");
    for rival in rivals {
        ask(address, &["FLUSHALL"]);
        let before = used_memory(address);
        let commands = for_keys(&rival.words, keys);
        load(address, &commands, 1, 50, commands.len());
        let grown = (used_memory(address) - before) / commands.len() as f64;
        // One that was asked for, whatever is kept of it.
        let one = ask(address, &["KEYS", "*000000000007}*"]);
        let usage = |key: &str| ask(address, &["MEMORY", "USAGE", key]).parse().unwrap_or(0);
        let usage: usize = one.lines().map(usage).sum();
        println!("| {} | {grown:.0} | {usage} |", rival.name);
    }
}

fn used_memory(address: &str) -> f64 {
    let info = ask(address, &["INFO", "memory"]);
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|line| line.trim().parse().ok()).expect("INFO memory has it")
}
