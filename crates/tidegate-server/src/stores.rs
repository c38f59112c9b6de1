//! The stores that a service can have.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{
    Answer, Call, Decision, Holding, Inherit, Item, Limit, LocalStore as _, MemoryError,
    MemoryStats, MemoryStore, Outcome, RegisterError, Registered, Store, Timestamp,
};
use tidegate_store_redis::{RedisError, RedisStats, RedisStore};

/// Where a service counts.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a service has one")]
pub enum AnyStore {
    /// In its own memory.
    Memory(MemoryStore),
    /// In Redis, with others.
    Redis(RedisStore),
}

impl From<MemoryStore> for AnyStore {
    fn from(store: MemoryStore) -> Self {
        Self::Memory(store)
    }
}

impl From<RedisStore> for AnyStore {
    fn from(store: RedisStore) -> Self {
        Self::Redis(store)
    }
}

/// Why a store could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Memory has no room.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Redis did not do it.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// What there is to see of a store.
#[derive(Debug)]
pub(crate) enum StoreStats {
    Memory(MemoryStats),
    Redis(RedisStats),
}

impl AnyStore {
    /// The memory store, if that is what it is.
    pub fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::Memory(store) => Some(store),
            Self::Redis(_) => None,
        }
    }

    /// Gives back memory that keys have no use for any more. Redis does that by itself.
    pub fn sweep(&self, now: Timestamp) {
        if let Self::Memory(store) = self {
            store.sweep(now);
        }
    }

    pub(crate) fn stats(&self) -> StoreStats {
        match self {
            Self::Memory(store) => StoreStats::Memory(store.stats()),
            Self::Redis(store) => StoreStats::Redis(store.stats()),
        }
    }
}

/// What waits for Redis is in a box, so that what waits for nobody stays small.
impl Store for AnyStore {
    type Error = StoreError;

    fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        match self {
            Self::Memory(store) => store.register(id, limit, inherit),
            Self::Redis(store) => store.register(id, limit, inherit),
        }
    }

    fn forget_unused(&self, limits: Vec<Arc<Registered>>) -> Vec<Arc<Registered>> {
        match self {
            Self::Memory(store) => store.forget_unused(limits),
            Self::Redis(store) => store.forget_unused(limits),
        }
    }

    #[inline]
    async fn apply(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.apply_now(call, answers)),
            Self::Redis(store) => Ok(Box::pin(store.apply(call, answers)).await?),
        }
    }

    #[inline]
    async fn check_one(
        &self,
        item: &Item<'_>,
        cost: u64,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.check_one_now(item, cost, now)),
            Self::Redis(store) => Ok(Box::pin(store.check_one(item, cost, now)).await?),
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::Redis(_))
    }

    async fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.reserve_now(call, answers, id, ttl)?),
            Self::Redis(store) => Ok(Box::pin(store.reserve(call, answers, id, ttl)).await?),
        }
    }

    async fn settle(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, StoreError> {
        match self {
            Self::Memory(store) => Ok(store.settle_now(id, cost, now)?),
            Self::Redis(store) => Ok(Box::pin(store.settle(id, cost, now)).await?),
        }
    }

    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp) {
        match self {
            Self::Memory(store) => store.settle_soon(holding, cost, now),
            Self::Redis(store) => store.settle_soon(holding, cost, now),
        }
    }
}
