//! What is in Redis by its own clock: names, lifetimes, and nothing that stays.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use support::Server;
use tidegate_core::{Inherit, Limit, LimitSpec, Rate, Refill, Timestamp};
use tidegate_store::{Answer, Call, Item, Op, Registered, Store};
use tidegate_store_redis::{RedisError, RedisOptions, RedisStore};

/// A plain connection, to see what the store does.
struct Redis(BufReader<TcpStream>);

impl Redis {
    fn open(server: &Server) -> Self {
        Self(BufReader::new(TcpStream::connect(("127.0.0.1", server.port)).unwrap()))
    }

    fn ask(&mut self, words: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).unwrap();
        self.read()
    }

    /// All strings of a reply, in their order; numbers as text.
    fn read(&mut self) -> Vec<Vec<u8>> {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "$" if rest == "-1" => vec![],
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                vec![bytes]
            }
            "*" => (0..rest.parse().unwrap()).flat_map(|_| self.read()).collect(),
            "-" => panic!("Redis says {rest}"),
            _ => vec![rest.as_bytes().to_vec()],
        }
    }

    fn number(&mut self, words: &[&[u8]]) -> i64 {
        String::from_utf8(self.ask(words).remove(0)).unwrap().parse().unwrap()
    }

    /// The names of all keys, but for where the processes of a store meet.
    fn names(&mut self) -> Vec<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = self.ask(&[b"KEYS", b"*"]);
        names.retain(|name| !name.ends_with(b"{fleet}"));
        names
    }
}

async fn open(server: &Server) -> RedisStore {
    let mut options = RedisOptions::new(server.url().parse().unwrap());
    options.strict = true;
    options.deadline = Duration::from_secs(5);
    RedisStore::open(options).await.unwrap()
}

fn register(store: &RedisStore, id: &str, spec: LimitSpec) -> Arc<Registered> {
    store.register(id, spec.build().unwrap(), Inherit::Used).unwrap()
}

async fn take(store: &RedisStore, items: &[Item<'_>], cost: u64) -> Vec<Answer> {
    let mut answers = vec![Answer::default(); items.len()];
    let call = Call::new(Op::Check, items, cost, Timestamp::ZERO).held_by(7);
    assert!(store.apply(&call, &mut answers).await.unwrap().allowed);
    answers
}

/// Everything whose end can be known.
fn specs() -> Vec<(&'static str, LimitSpec)> {
    let rate = Rate::new(7, Duration::from_secs(13));
    let day = Duration::from_secs(86_400);
    vec![
        ("bucket", Limit::token_bucket(rate)),
        ("even bucket", Limit::token_bucket(Rate::per_second(1)).burst(50)),
        ("soft bucket", Limit::token_bucket(rate).soft(20, Duration::from_secs(3))),
        ("queue", Limit::leaky_queue(rate, 5).max_delay(Duration::from_secs(30))),
        ("interval", Limit::token_bucket(rate).refill(Refill::Interval)),
        ("aligned interval", Limit::token_bucket(rate).refill(Refill::IntervalAligned)),
        ("window", Limit::fixed_window(Rate::new(7, day))),
        ("counter", Limit::sliding_counter(Rate::new(7, day))),
        ("exact counter", Limit::sliding_counter(rate).compare(tidegate_core::Compare::Exact)),
        ("log", Limit::sliding_log(rate)),
        ("permits", Limit::concurrency(7).lease(Duration::from_secs(20))),
        ("warm-up", Limit::warm_up(rate, Duration::from_secs(9))),
    ]
}

/// A key goes when its state equals no state: within a millisecond of what the answer says.
#[tokio::test(flavor = "multi_thread")]
async fn keys_last_until_they_are_spent() {
    let server = Server::redis();
    let store = open(&server).await;
    let mut redis = Redis::open(&server);
    for (name, spec) in specs() {
        let limit = register(&store, name, spec);
        for cost in [1, 2] {
            let before = micros(&mut redis);
            let answers = take(&store, &[Item::new(b"key", &limit)], cost).await;
            let after = micros(&mut redis);
            let left = answers[0].decision.reset_after.unwrap().as_micros() as i64;
            let names = redis.names();
            let of_limit: Vec<_> =
                names.iter().filter(|key| key.ends_with(name.as_bytes())).collect();
            assert_eq!(of_limit.len(), if name == "permits" { 3 } else { 1 }, "{name}: {names:?}");
            for key in of_limit {
                let ends = redis.number(&[b"PEXPIRETIME", key]) * 1000;
                // Up to a microsecond of rounding in the answer, and a millisecond up in Redis.
                let (least, most) = (before + left - 1, after + left + 1001);
                assert!((least..=most).contains(&ends), "{name}: {least} <= {ends} <= {most}");
            }
        }
    }
}

fn micros(redis: &mut Redis) -> i64 {
    let time = redis.ask(&[b"TIME"]);
    let part = |place: usize| str::from_utf8(&time[place]).unwrap().parse::<i64>().unwrap();
    part(0) * 1_000_000 + part(1)
}

/// After any operation, every key that is left has an end; but permits without a lease, which
/// last until they are given back, and then leave nothing.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_for_ever() {
    let server = Server::redis();
    let store = open(&server).await;
    let mut redis = Redis::open(&server);
    let day = Duration::from_secs(86_400);
    let mut all = specs();
    all.push(("initial", Limit::token_bucket(Rate::new(7, day)).initial(2)));
    all.push((
        "interval initial",
        Limit::token_bucket(Rate::new(7, day)).initial(2).refill(Refill::Interval),
    ));
    for (name, spec) in all {
        let limit = register(&store, name, spec);
        let items = [Item::new(b"key", &limit), Item::new(b"another", &limit)];
        let mut answers = vec![Answer::default(); 2];
        for op in [Op::Check, Op::Check, Op::Force, Op::UpTo, Op::Refund, Op::Peek, Op::Check] {
            let call = Call::new(op, &items, 1, Timestamp::ZERO).held_by(7);
            store.apply(&call, &mut answers).await.unwrap();
        }
        let reserve = Call::new(Op::Check, &items, 1, Timestamp::ZERO).held_by(7);
        store.reserve(&reserve, &mut answers, 5, day).await.unwrap();
        // Carried over to another limit.
        let changed = register(&store, name, Limit::sliding_log(Rate::new(900, day)));
        let items = [Item::new(b"key", &changed)];
        let call = Call::new(Op::Peek, &items, 0, Timestamp::ZERO);
        store.apply(&call, &mut answers[..1]).await.unwrap();
        let names = redis.names();
        assert!(!names.is_empty(), "{name}");
        for key in names {
            let left = redis.number(&[b"PTTL", &key]);
            assert!(left > 0, "{name}: {} has no end", String::from_utf8_lossy(&key));
        }
        store.settle(5, 0, Timestamp::ZERO).await.unwrap();
        assert!(store.remove_all().await.unwrap() > 0);
        assert_eq!(redis.names(), Vec::<Vec<u8>>::new(), "{name}");
    }
    let limit = register(&store, "for ever", Limit::concurrency(3).without_lease());
    let items = [Item::new(b"key", &limit)];
    take(&store, &items, 2).await;
    for key in redis.names() {
        assert_eq!(redis.number(&[b"PTTL", &key]), -1);
    }
    let call = Call::new(Op::Refund, &items, 2, Timestamp::ZERO).held_by(7);
    store.apply(&call, &mut [Answer::default()]).await.unwrap();
    assert_eq!(redis.names(), Vec::<Vec<u8>>::new());
}

/// Names say where the key ends, so that no pair of key and limit is spelled like another, and the
/// limits of one key are in one slot.
#[tokio::test(flavor = "multi_thread")]
async fn names_do_not_alias_and_share_a_slot() {
    let server = Server::redis();
    let store = open(&server).await;
    let mut redis = Redis::open(&server);
    let parts = ["", "a", "b", "ab", "}", "{", "{a}", "1:a", "}s", "a}sb", "s", ":", "0:}s"];
    let spec = Limit::token_bucket(Rate::per_hour(1));
    let limits = parts.map(|part| register(&store, part, spec));
    for limit in &limits {
        for key in parts {
            let answers = take(&store, &[Item::new(key.as_bytes(), limit)], 1).await;
            assert_eq!(answers[0].decision.remaining, 0);
        }
    }
    let mut names = redis.names();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), parts.len() * parts.len());
    // One request on one key is one call, whatever its limits; so they have to share a slot.
    let mut slots = std::collections::HashMap::new();
    for name in &names {
        let text = String::from_utf8(name.clone()).unwrap();
        let (length, rest) = text.strip_prefix("tg1:{").unwrap().split_once(':').unwrap();
        let key = rest[..length.parse().unwrap()].to_owned();
        let slot = slot(name);
        assert_eq!(*slots.entry(key).or_insert(slot), slot, "{text}");
    }
    assert_eq!(slots.len(), parts.len());
}

/// As the specification of clusters says it: CRC-16 of what stands in the first braces.
fn slot(name: &[u8]) -> u16 {
    let open = name.iter().position(|byte| *byte == b'{').unwrap() + 1;
    let close = name[open..].iter().position(|byte| *byte == b'}').unwrap();
    let tag = &name[open..open + close];
    let crc = tag.iter().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % 16384
}

/// However many limits a request meets, it is one command.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_one_command() {
    let server = Server::redis();
    let store = open(&server).await;
    let mut redis = Redis::open(&server);
    let limits: Vec<_> =
        specs().into_iter().map(|(name, spec)| register(&store, name, spec)).collect();
    let items: Vec<_> = limits.iter().map(|limit| Item::new(b"key", limit)).collect();
    // The server learns the script.
    take(&store, &items[..1], 1).await;
    for count in [1, 2, 5, items.len()] {
        let before = (calls(&mut redis), store.stats().sent);
        take(&store, &items[..count], 1).await;
        let after = (calls(&mut redis), store.stats().sent);
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, 1), "{count} limits");
    }
}

/// How often the script was called; what a script calls is counted elsewhere.
fn calls(redis: &mut Redis) -> u64 {
    let stats = String::from_utf8(redis.ask(&[b"INFO", b"commandstats"]).remove(0)).unwrap();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.unwrap().split(',').next().unwrap().parse().unwrap()
}

/// What a newer version wrote is an error, and stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn newer_formats_are_left_alone() {
    let server = Server::redis();
    let store = open(&server).await;
    let mut redis = Redis::open(&server);
    for (name, spec) in specs() {
        let limit = register(&store, name, spec);
        let key = format!("tg1:{{3:key}}s{name}").into_bytes();
        redis.ask(&[b"SET", &key, b"\x02something else"]);
        let items = [Item::new(b"key", &limit)];
        for op in [Op::Check, Op::Peek, Op::UpTo, Op::Force, Op::Refund, Op::Reset] {
            let call = Call::new(op, &items, 1, Timestamp::ZERO);
            let found = store.apply(&call, &mut [Answer::default()]).await;
            assert_eq!(found, Err(RedisError::Newer(2)), "{name}, {op:?}");
        }
        assert_eq!(redis.ask(&[b"GET", &key]), [b"\x02something else"]);
    }
}
