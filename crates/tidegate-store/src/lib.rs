//! Where tidegate keeps what was used of each key.
//!
//! - [`Store`] is what every store does: decide several (key, limit) pairs at once, all or
//!   nothing. [`LocalStore`] is one that can do so without waiting.
//! - [`MemoryStore`] keeps counters in this process.
//! - `conformance`, with the feature of that name, is the suite that every store has to pass.
//!
//! What is not here: the arithmetic (`tidegate-core`), a clock, rules, and anything about HTTP.

#[cfg(feature = "conformance")]
pub mod conformance;
mod fingerprint;
mod memory;
mod registry;
mod store;

pub use memory::{
    LiveKey, MemoryBuilder, MemoryError, MemoryStats, MemoryStore, OnFull, Restored, SnapshotError,
};
pub use registry::{RegisterError, Registered};
pub use store::{
    Answer, Call, HeldPart, Holding, Item, LocalStore, Mode, OnError, Op, Outcome, Store,
};
pub use tidegate_core as core;
