//! The store that others share.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Inherit, Limit, Timestamp};
use tidegate_store::{Answer, Call, Holding, Outcome, RegisterError, Registered, Store};

use crate::client::{Client, ClientError, ClientOptions};
use crate::engine::Engine;
use crate::script::{SCRIPT, probe};
use crate::stats::{RedisStats, Stats};
use crate::target::Target;

/// How a store in Redis behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Where Redis is.
    pub target: Target,
    /// What all keys begin with: one for each environment that shares a Redis.
    pub prefix: String,
    /// How long a decision may take before it is made without Redis.
    pub deadline: Duration,
    /// How many commands may wait for replies at once, on one connection.
    pub in_flight_max: usize,
    /// Whose time counts.
    pub time: TimeSource,
    /// Whether calls fail where Redis does, instead of being answered without it.
    pub strict: bool,
    /// How long a refusal is believed without asking Redis again; zero for not at all.
    pub denial_max_age: Duration,
    /// Of how many keys refusals are remembered.
    pub denial_keys_max: usize,
    /// A file with the certificates of those who may sign Redis's, instead of the system's.
    pub tls_ca: Option<std::path::PathBuf>,
    /// Files with the certificate and key to show to Redis.
    pub tls_certificate: Option<(std::path::PathBuf, std::path::PathBuf)>,
    /// Who to be to Sentinels, if not the same as to Redis.
    pub sentinel_username: Option<String>,
    /// The password for Sentinels.
    pub sentinel_password: Option<String>,
}

impl RedisOptions {
    /// A store there, with the usual numbers.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            prefix: "tg".to_owned(),
            deadline: Duration::from_millis(10),
            in_flight_max: 10_000,
            time: TimeSource::Redis,
            strict: false,
            denial_max_age: Duration::from_secs(1),
            denial_keys_max: 100_000,
            tls_ca: None,
            tls_certificate: None,
            sentinel_username: None,
            sentinel_password: None,
        }
    }
}

/// Whose time counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeSource {
    /// That of Redis, which is the same for all.
    #[default]
    Redis,
    /// The caller's, in whole microseconds. Nothing expires; for tests and replays.
    Caller,
}

/// A store in Redis cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The prefix cannot be one.
    #[error(
        "`{0}` cannot be a prefix of keys: it may not hold braces, blanks or control characters"
    )]
    Prefix(String),
    /// The files for TLS cannot be used.
    #[error("TLS to Redis cannot be set up: {0}")]
    Tls(String),
}

/// Redis could not answer, and the store is to say so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// There is no reply.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The reply is not one of the script's.
    #[error("the reply of Redis cannot be understood: {0}")]
    Garbled(&'static str),
    /// A key was written by a version that this one does not know.
    #[error("a key was written by a newer version of this program (format {0})")]
    Newer(u8),
    /// The limit was registered with another store.
    #[error("the limit `{0}` is not this store's")]
    Foreign(String),
    /// Others kept changing the same key.
    #[error("a key changed too often to be carried over to its new limit")]
    Contended,
}

/// Counters in Redis or Valkey, shared with everybody who uses the same prefix. A clone is another
/// handle of the same store.
#[derive(Clone, Debug)]
pub struct RedisStore {
    engine: Arc<Engine>,
    stats: Arc<Stats>,
}

impl RedisStore {
    /// Opens a store within a tokio runtime, which has to outlive it. Does not wait for Redis: as
    /// long as it is not there, calls are answered without it.
    ///
    /// # Errors
    /// If the options make no sense.
    pub async fn open(options: RedisOptions) -> Result<Self, OpenError> {
        let stats: Arc<Stats> = Arc::default();
        let client = ClientOptions {
            deadline: options.deadline,
            in_flight_max: options.in_flight_max,
            script: SCRIPT,
            probe,
            prefix: options.prefix.clone(),
        };
        let client = Client::open(options.target, client, Arc::clone(&stats));
        let engine = Engine::new(client, options.prefix, options.time, Arc::clone(&stats));
        Ok(Self { engine: Arc::new(engine), stats })
    }

    /// What there is to see of it.
    pub fn stats(&self) -> RedisStats {
        self.stats.read()
    }

    /// Waits until Redis answers, for so long at the most. Whether it does.
    pub async fn wait_ready(&self, at_most: Duration) -> bool {
        at_most.is_zero()
    }

    /// Removes all keys that begin with the prefix.
    ///
    /// # Errors
    /// If Redis could not answer.
    pub async fn remove_all(&self) -> Result<u64, RedisError> {
        self.engine.remove_all().await
    }
}

impl Store for RedisStore {
    type Error = RedisError;

    fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        let attached = Engine::attach(&limit)
            .map_err(|why| RegisterError::Unfit { id: id.to_owned(), why })?;
        Ok(Arc::new(Registered::with(id, limit, inherit, attached)))
    }

    async fn apply(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, RedisError> {
        self.engine.apply(call, answers, &mut SmallVec::new()).await
    }

    async fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, RedisError> {
        self.engine.reserve(call, answers, id, ttl).await
    }

    async fn settle(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, RedisError> {
        self.engine.settle(id, cost, now).await
    }

    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp) {
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move {
            let _ = engine.settle_holding(&holding, cost, now).await;
        });
    }
}
