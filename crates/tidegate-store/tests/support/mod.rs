//! What several tests of the memory store need.
#![allow(dead_code, reason = "each test program uses its own part of this")]

use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};
use tidegate_core::{Decision, Inherit, LimitSpec, Timestamp};
use tidegate_store::{
    Answer, Call, Item, LocalStore, MemoryBuilder, MemoryStore, Op, Outcome, Registered, Store,
};

/// When the tests begin: the start of a week, day and hour, as the engine counts them.
pub(crate) const START: Timestamp = Timestamp::from_secs(2811 * 7 * 86_400);

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// A store whose items all meet under one lock.
pub(crate) fn one_shard() -> MemoryStore {
    MemoryStore::builder().shards(1).build()
}

pub(crate) fn register(store: &MemoryStore, id: &str, spec: LimitSpec) -> Arc<Registered> {
    store.register(id, spec.build().unwrap(), Inherit::Used).unwrap()
}

/// A call with the answers of all items.
pub(crate) fn ask(
    store: &MemoryStore,
    op: Op<'_>,
    items: &[Item<'_>],
    cost: u64,
    now: Timestamp,
) -> (Outcome, Vec<Answer>) {
    apply(store, &Call::new(op, items, cost, now))
}

pub(crate) fn apply(store: &MemoryStore, call: &Call<'_>) -> (Outcome, Vec<Answer>) {
    let mut answers = vec![Answer::default(); call.items.len()];
    let outcome = store.apply_now(call, &mut answers);
    (outcome, answers)
}

/// A check of one key, the short way.
pub(crate) fn check(
    store: &MemoryStore,
    key: &[u8],
    limit: &Registered,
    cost: u64,
    now: Timestamp,
) -> Decision {
    store.check_one_now(&Item::new(key, limit), cost, now)
}

/// What a key has left.
pub(crate) fn remaining(
    store: &MemoryStore,
    key: &[u8],
    limit: &Registered,
    now: Timestamp,
) -> u64 {
    let (_, answers) = ask(store, Op::Peek, &[Item::new(key, limit)], 0, now);
    answers[0].decision.remaining
}

/// The checksum that ends a snapshot.
pub(crate) fn checksum(bytes: &[u8]) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_keys(0x7469_6465, 0x6761_7465);
    hasher.write(bytes);
    hasher.finish128().as_u128().to_le_bytes()
}

/// A snapshot that holds a seed, and the records that are given.
pub(crate) fn snapshot_file(version: u32, seed: u64, records: &[u8]) -> Vec<u8> {
    let mut bytes = b"tidegate".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(seed.to_le_bytes());
    bytes.extend(seed.to_le_bytes());
    bytes.extend(START.as_nanos().to_le_bytes());
    bytes.extend(records);
    bytes.extend(checksum(&bytes));
    bytes
}

/// The record that ends a snapshot.
pub(crate) const END: [u8; 4] = 3_u32.to_le_bytes();

/// An empty store with a known seed, so that its keys are always in the same places: by way of a
/// snapshot, which holds the seed.
pub(crate) fn seeded(builder: MemoryBuilder, seed: u64) -> MemoryStore {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty");
    std::fs::write(&path, snapshot_file(1, seed, &END)).unwrap();
    let restored = builder.restore(&path, START);
    assert_eq!(restored.keys.unwrap(), 0);
    restored.store
}
