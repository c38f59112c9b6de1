//! The memory store: exact, bounded, and needing nobody to clean up after it.

mod call;
mod quick;
mod reservations;
mod shard;
mod snapshot;
mod table;
mod value;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_core::{Ask, Decision, Inherit, Limit, Timestamp};

pub use self::snapshot::{Restored, SnapshotError};

use self::quick::admitted;
use self::reservations::Reservations;
use self::shard::{Counts, Room, Shard};
use self::table::Slot;
use crate::fingerprint::{Fingerprint, Seed};
use crate::registry::{RegisterError, Registered, Registry};
use crate::store::{Answer, Call, Holding, Item, LocalStore, Mode, Outcome, Store, check_each};

/// What happens to a new key when the store is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// The least harmful of a few keys makes room: one that is spent, else the one that has used
    /// the least of its limit. A flood of new keys thus evicts itself, not those who are limited.
    #[default]
    Evict,
    /// The new key is refused.
    Deny,
    /// The new key is admitted and not counted.
    Allow,
}

/// Settings of a [`MemoryStore`].
#[derive(Clone, Copy, Debug)]
pub struct MemoryBuilder {
    keys_max: usize,
    limits_max: usize,
    reservations_max: usize,
    on_full: OnFull,
    shards: Option<usize>,
}

impl Default for MemoryBuilder {
    fn default() -> Self {
        Self {
            keys_max: 4_000_000,
            limits_max: 1 << 20,
            reservations_max: 100_000,
            on_full: OnFull::Evict,
            shards: None,
        }
    }
}

impl MemoryBuilder {
    /// How many keys are kept at the most; 4 million if not said, which takes 150 MB for buckets.
    ///
    /// Each shard holds its part of the bound, so that new keys may meet it when the store as a
    /// whole is some percent short of it. A key counts once for each limit that it is under.
    #[must_use]
    pub fn max_keys(mut self, max: usize) -> Self {
        self.keys_max = max.max(1);
        self
    }

    /// What happens to a new key then.
    #[must_use]
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// How many different limits are known at the most; about a million if not said.
    #[must_use]
    pub fn max_limits(mut self, max: usize) -> Self {
        self.limits_max = max.clamp(1, u32::MAX as usize);
        self
    }

    /// How many reservations may be open at the most; 100,000 if not said.
    #[must_use]
    pub fn max_reservations(mut self, max: usize) -> Self {
        self.reservations_max = max;
        self
    }

    /// How many locks the keys are spread over, rounded up to a power of two. If not said, a
    /// number that suits the machine's cores.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = Some(shards.clamp(1, 1 << 16));
        self
    }

    /// An empty store.
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let seed = Seed::random().expect("the operating system gives random numbers");
        self.build_with(seed)
    }

    fn build_with(self, seed: Seed) -> MemoryStore {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // Few keys go into few shards, so that the bound stays near to what was asked for.
        let wanted = self.shards.unwrap_or((cores * 16).clamp(64, 1024)).next_power_of_two();
        let shards = match self.keys_max / 256 {
            _ if self.shards.is_some() => wanted.min(self.keys_max),
            0 => 1,
            most => wanted.min(1 << most.ilog2()),
        };
        let shards = 1_usize << shards.ilog2();
        MemoryStore {
            settings: self,
            seed,
            registry: Registry::new(seed, self.limits_max),
            shards: (0..shards).map(|_| Lock::default()).collect(),
            shard_shift: 64 - shards.ilog2(),
            shard_keys_max: (self.keys_max / shards).max(1),
            reservations: Reservations::new(self.reservations_max),
        }
    }
}

/// Counters in this process's memory.
///
/// Keys are kept as 64-bit fingerprints under a random seed, not as strings: nobody can aim at a
/// shard or make two keys meet, and a key under a bucket limit takes 24 bytes, 30 to 38 with the
/// table around it, 48 to 62 while a shard has only some hundred keys. State that equals no state is
/// dropped when its table would have to grow, so no background work is needed;
/// [`sweep`](Self::sweep) does it at a time of your choosing.
///
/// ```
/// use tidegate_core::{Inherit, Limit, Timestamp};
/// use tidegate_store::{Item, LocalStore, MemoryStore, Store};
///
/// let store = MemoryStore::new();
/// let limit = store.register("api", Limit::per_second(2).build()?, Inherit::Used)?;
/// let now = Timestamp::from_secs(1_700_000_000);
/// let item = Item::new(b"user:42", &limit);
/// assert!(store.check_one_now(&item, 1, now).allowed);
/// assert!(store.check_one_now(&item, 1, now).allowed);
/// assert!(!store.check_one_now(&item, 1, now).allowed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MemoryStore {
    settings: MemoryBuilder,
    seed: Seed,
    registry: Registry,
    shards: Box<[Lock]>,
    shard_shift: u32,
    shard_keys_max: usize,
    reservations: Reservations,
}

/// A shard on cache lines of its own.
///
/// The lock spins a little before it sleeps: two threads on one hot key get through twice as fast
/// as with the standard library's.
#[repr(align(128))]
#[derive(Default)]
struct Lock(Mutex<Shard>);

impl Lock {
    #[inline(always)]
    fn lock(&self) -> MutexGuard<'_, Shard> {
        self.0.lock()
    }
}

/// What a store has had to do so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Keys, some of which may be spent and not yet dropped.
    pub keys: usize,
    /// The bound on them.
    pub keys_max: usize,
    /// Bytes in tables. Logs and permits own more.
    pub bytes: usize,
    /// Spent keys that made room for new ones at the bound.
    pub evicted_spent: u64,
    /// Keys in use that made room: what they had used was forgotten.
    pub evicted_live: u64,
    /// New keys refused at the bound.
    pub denied_full: u64,
    /// New keys admitted uncounted at the bound.
    pub allowed_full: u64,
    /// Reservations that wait to be settled.
    pub reservations: usize,
}

/// A key that has used something.
#[derive(Clone, Debug)]
pub struct LiveKey {
    /// The limit it is under.
    pub limit: Arc<Registered>,
    /// What stands for the key: see [`MemoryStore::fingerprint`].
    pub fingerprint: u128,
    /// What the limit says of it now.
    pub decision: Decision,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryStore").field(&self.stats()).finish()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store with the default settings.
    ///
    /// # Panics
    /// If the operating system has no random numbers.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings to change.
    #[must_use]
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::default()
    }

    /// How many keys are kept. Some may be spent: [`sweep`](Self::sweep) first for a true count.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Whether no keys are kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts and sizes, summed over the shards.
    pub fn stats(&self) -> MemoryStats {
        let mut stats = MemoryStats {
            keys_max: self.shard_keys_max * self.shards.len(),
            reservations: self.reservations.len(),
            ..MemoryStats::default()
        };
        for shard in &self.shards {
            let shard = shard.lock();
            let Counts { evicted_spent, evicted_live, denied, allowed } = shard.counts;
            stats.keys += shard.len();
            stats.bytes += shard.bytes();
            stats.evicted_spent += evicted_spent;
            stats.evicted_live += evicted_live;
            stats.denied_full += denied;
            stats.allowed_full += allowed;
        }
        stats
    }

    /// Drops spent keys and memory that is not needed any more, one shard after the other.
    ///
    /// Never needed for correct answers; a service calls it now and then to give memory back.
    pub fn sweep(&self, now: Timestamp) {
        for shard in &self.shards {
            shard.lock().sweep(&Ask::at(now), &self.registry);
        }
    }

    /// The keys that are not spent, shard by shard: each is true when its shard is reached.
    pub fn live_keys(&self, now: Timestamp) -> impl Iterator<Item = LiveKey> {
        let ask = Ask::at(now);
        self.shards.iter().flat_map(move |shard| {
            let mut live = Vec::new();
            shard.lock().for_each(&self.registry, |entry| {
                let limit = entry.limit.limit();
                if !limit.is_spent(entry.state, &ask) {
                    live.push((
                        entry.limit.index,
                        entry.fingerprint.shown(&self.seed),
                        limit.peek(Some(entry.state), &ask, 0),
                    ));
                }
            });
            live.into_iter().filter_map(|(index, fingerprint, decision)| {
                Some(LiveKey { limit: self.registry.get(index)?, fingerprint, decision })
            })
        })
    }

    /// What stands for a key under a limit in [`live_keys`](Self::live_keys).
    pub fn fingerprint(&self, key: &[u8], limit: &Registered) -> u128 {
        Slot::new(self.seed.hash(key).under(limit.salt), 0, ()).fingerprint().shown(&self.seed)
    }

    fn room(&self) -> Room<'_> {
        Room {
            registry: &self.registry,
            keys_max: self.shard_keys_max,
            evicts: self.settings.on_full == OnFull::Evict,
        }
    }

    /// The shard of a key, which is the same for all its limits.
    #[inline(always)]
    fn shard_of(&self, key: Fingerprint) -> usize {
        // A shift by all 64 bits, when there is one shard, is not a shift.
        key.id.checked_shr(self.shard_shift).unwrap_or(0) as usize
    }

    /// Which limits still have keys, by index.
    fn limits_in_use(&self) -> Vec<bool> {
        let mut used = Vec::new();
        for shard in &self.shards {
            shard.lock().for_each(&self.registry, |entry| {
                let index = entry.limit.index as usize;
                if used.len() <= index {
                    used.resize(index + 1, false);
                }
                used[index] = true;
            });
        }
        used
    }

    /// What a key that finds no room is told.
    fn at_bound(&self, shard: &mut Shard, limit: &Limit, counted: bool) -> Decision {
        let allowed = self.settings.on_full == OnFull::Allow;
        if allowed {
            shard.counts.allowed += u64::from(counted);
        } else {
            shard.counts.denied += u64::from(counted);
        }
        Decision::without_state(allowed, limit.limit())
    }
}

impl Store for MemoryStore {
    type Error = MemoryError;

    fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        self.registry.register(id, limit, inherit, || self.limits_in_use())
    }

    fn forget_unused(&self, limits: Vec<Arc<Registered>>) -> Vec<Arc<Registered>> {
        self.registry.forget_unused(limits, || self.limits_in_use())
    }

    async fn apply(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, MemoryError> {
        Ok(self.apply_now(call, answers))
    }

    #[inline]
    async fn check_one(
        &self,
        item: &Item<'_>,
        cost: u64,
        now: Timestamp,
    ) -> Result<Decision, MemoryError> {
        Ok(self.check_one_now(item, cost, now))
    }

    fn waits(&self) -> bool {
        false
    }

    async fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, MemoryError> {
        self.open_reservation(call, answers, id, ttl)
    }

    async fn settle(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, MemoryError> {
        Ok(self.end_reservation(id, cost, now))
    }

    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp) {
        self.settle_holding(&holding, cost, now);
    }
}

impl LocalStore for MemoryStore {
    fn apply_now(&self, call: &Call<'_>, answers: &mut [Answer]) -> Outcome {
        self.decide(call, answers)
    }

    fn reserve_now(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, MemoryError> {
        self.open_reservation(call, answers, id, ttl)
    }

    fn settle_now(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, MemoryError> {
        Ok(self.end_reservation(id, cost, now))
    }

    /// One enforced bucket whose state is one word, which is what nearly every call is, decided in
    /// one go; everything else the long way.
    #[inline]
    fn check_one_now(&self, item: &Item<'_>, cost: u64, now: Timestamp) -> Decision {
        let units = cost.saturating_mul(item.factor);
        let Some(narrow) = item.limit.limit().as_narrow() else {
            return self.check_any(item, cost, now);
        };
        if item.mode != Mode::Enforce || units == 0 {
            return self.check_any(item, cost, now);
        }
        let key = self.seed.hash(item.key);
        let fingerprint = key.under(item.limit.salt);
        let mut shard = self.shards[self.shard_of(key)].lock();
        let since = shard.since_origin(now, &self.registry);
        if let Some(position) = shard.narrow.find(fingerprint) {
            let slot = shard.narrow.at_mut(position);
            if slot.limit == item.limit.index {
                let state = slot.value[0];
                let level = narrow.level(state, since);
                // The answer is worked out after the lock is free for others.
                if !narrow.level_fits(level, units) {
                    drop(shard);
                    return narrow.peek(Some(state), since, units);
                }
                slot.value[0] = narrow.level_after(level, units);
                drop(shard);
                return admitted([narrow], [level], units);
            }
        } else if !item.limit.has_past() {
            return self.check_new(&mut shard, fingerprint, item.limit, units, now);
        }
        // The key was counted under an earlier limit of the same id.
        drop(shard);
        self.check_any(item, cost, now)
    }

    #[inline]
    fn check_all(
        &self,
        key: &[u8],
        limits: &[Arc<Registered>],
        cost: u64,
        now: Timestamp,
    ) -> Decision {
        // By their number, so that the loops over them are unrolled.
        match limits.len() {
            1 => self.check_one_now(&Item::new(key, &limits[0]), cost, now),
            2 => self.check_few::<2>(key, limits, cost, now),
            3 => self.check_few::<3>(key, limits, cost, now),
            4 => self.check_few::<4>(key, limits, cost, now),
            5 => self.check_few::<5>(key, limits, cost, now),
            6 => self.check_few::<6>(key, limits, cost, now),
            7 => self.check_few::<7>(key, limits, cost, now),
            8 => self.check_few::<8>(key, limits, cost, now),
            _ => check_each(self, key, limits, cost, now),
        }
    }
}

/// Why the memory store could not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The bound on open reservations is reached.
    #[error("{max} reservations are open already; settle or cancel some, or raise the bound")]
    TooManyReservations {
        /// The bound.
        max: usize,
    },
}
