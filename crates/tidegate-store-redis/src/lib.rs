//! tidegate's counters in Redis or Valkey, for a fleet of processes that limit together.
//!
//! What is not here: the arithmetic of answers (`tidegate-core`; the scripts decide by the same
//! integers and reply with state), rules, and anything about HTTP.

mod client;
mod denial;
mod engine;
mod fallback;
mod fleet;
mod handles;
mod key;
mod keyed;
mod script;
mod stats;
mod store;
mod tag;
mod target;
mod terms;
mod tls;

pub use client::ClientError;
pub use fleet::Note;
pub use stats::{RedisStats, Timing};
pub use store::{OpenError, RedisError, RedisOptions, RedisStore, TimeSource};
pub use target::{Target, TargetError};
