//! The store that others share.

use std::time::Duration;

use crate::client::ClientError;
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
    #[error("`{0}` cannot be a prefix of keys: it may not hold braces, blanks or control characters")]
    Prefix(String),
    /// Redis could not be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Counters in Redis or Valkey, shared with everybody who uses the same prefix.
#[derive(Clone, Debug)]
pub struct RedisStore {}
