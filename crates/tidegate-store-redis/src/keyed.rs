//! A bounded map from keys under limits, shared by threads: what is known of them on this side.

use hashbrown::HashTable;
use parking_lot::Mutex;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

/// Into how many parts the map is divided, so that threads seldom wait for each other.
const SHARDS: usize = 64;
/// How many entries are looked at to find one that can go.
const VICTIMS: usize = 8;

/// A map from a key under a limit to a value. It compares the whole key: nobody is taken for
/// somebody else.
pub(crate) struct Keyed<V> {
    secrets: RapidSecrets,
    shards: Box<[Mutex<HashTable<Entry<V>>>]>,
    per_shard: usize,
}

struct Entry<V> {
    hash: u64,
    /// The number of the limit's handle: another after each change of the limit.
    limit: u64,
    key: Box<[u8]>,
    value: V,
}

impl<V> Keyed<V> {
    /// At most so many entries, or a few more.
    pub(crate) fn new(max: usize) -> Self {
        // Without random numbers, keys that are chosen to collide make it slow, and no more.
        let seed = getrandom::u64().unwrap_or(0x9e37_79b9_7f4a_7c15);
        Self {
            secrets: RapidSecrets::seed(seed),
            shards: (0..SHARDS).map(|_| Mutex::new(HashTable::new())).collect(),
            per_shard: max.div_ceil(SHARDS),
        }
    }

    fn hash(&self, limit: u64, key: &[u8]) -> u64 {
        // Odd, so that no two limits become the same.
        rapidhash_v3_seeded(key, &self.secrets) ^ limit.wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    fn shard(&self, hash: u64) -> &Mutex<HashTable<Entry<V>>> {
        // The table uses the other bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// Calls `look` with what is known.
    pub(crate) fn with<R>(&self, limit: u64, key: &[u8], look: impl FnOnce(&V) -> R) -> Option<R> {
        let hash = self.hash(limit, key);
        let shard = self.shard(hash).lock();
        if shard.is_empty() {
            return None;
        }
        let is_it = |entry: &Entry<V>| entry.limit == limit && *entry.key == *key;
        shard.find(hash, is_it).map(|entry| look(&entry.value))
    }

    /// Remembers a value. If there is no room, one that is of no use any more goes, or any.
    pub(crate) fn insert(&self, limit: u64, key: &[u8], value: V, is_useless: impl Fn(&V) -> bool) {
        if self.per_shard == 0 {
            return;
        }
        let hash = self.hash(limit, key);
        let mut shard = self.shard(hash).lock();
        let is_it = |entry: &Entry<V>| entry.limit == limit && *entry.key == *key;
        if let Some(entry) = shard.find_mut(hash, is_it) {
            entry.value = value;
            return;
        }
        if shard.len() >= self.per_shard {
            let useless = shard.iter().take(VICTIMS).find(|entry| is_useless(&entry.value));
            let victim = useless.or_else(|| shard.iter().next());
            if let Some((hash, limit, key)) =
                victim.map(|victim| (victim.hash, victim.limit, victim.key.clone()))
            {
                let is_it = |entry: &Entry<V>| entry.limit == limit && entry.key == key;
                if let Ok(found) = shard.find_entry(hash, is_it) {
                    found.remove();
                }
            }
        }
        shard
            .insert_unique(hash, Entry { hash, limit, key: key.into(), value }, |entry| entry.hash);
    }

    /// Forgets a value and gives it.
    pub(crate) fn take(&self, limit: u64, key: &[u8]) -> Option<V> {
        let hash = self.hash(limit, key);
        let mut shard = self.shard(hash).lock();
        let is_it = |entry: &Entry<V>| entry.limit == limit && *entry.key == *key;
        shard.find_entry(hash, is_it).ok().map(|found| found.remove().0.value)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl<V> std::fmt::Debug for Keyed<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyed").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_limits_and_keys_apart_and_forgets() {
        let map = Keyed::new(1000);
        map.insert(1, b"a", 10, |_| false);
        map.insert(2, b"a", 20, |_| false);
        map.insert(1, b"b", 30, |_| false);
        map.insert(1, b"a", 11, |_| false);
        assert_eq!(map.with(1, b"a", |v| *v), Some(11));
        assert_eq!(map.with(2, b"a", |v| *v), Some(20));
        assert_eq!((map.take(1, b"b"), map.take(1, b"b")), (Some(30), None));
        assert_eq!(map.len(), 2);
    }

    #[test]
    fn it_is_bounded_and_drops_what_is_useless_first() {
        let map = Keyed::new(SHARDS * 4);
        for number in 0..10_000u32 {
            map.insert(7, &number.to_le_bytes(), number, |value| *value % 2 == 0);
        }
        assert_eq!(map.len(), SHARDS * 4);
        let none = Keyed::new(0);
        none.insert(1, b"a", 1, |_| false);
        assert_eq!(none.len(), 0);
    }
}
