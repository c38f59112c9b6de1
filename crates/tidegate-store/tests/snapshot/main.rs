//! Snapshots of the memory store: what comes back, and what is refused.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by unwrapping it")]

#[path = "../support/mod.rs"]
mod support;

mod damage;
mod file;
mod round_trip;

use std::path::Path;

use tidegate_store::{MemoryBuilder, MemoryStore, SnapshotError};

/// A store from a snapshot that must be usable.
fn restored(
    builder: MemoryBuilder,
    path: &Path,
    now: tidegate_core::Timestamp,
) -> (MemoryStore, usize) {
    let restored = builder.restore(path, now);
    let keys = restored.keys.expect("the snapshot is whole");
    (restored.store, keys)
}

/// Why a snapshot was refused; the store that came instead is empty and works.
fn refused(path: &Path) -> SnapshotError {
    use tidegate_core::Limit;
    let restored = MemoryStore::builder().shards(1).restore(path, support::START);
    assert!(restored.store.is_empty());
    let limit = support::register(&restored.store, "limit", Limit::per_hour(1));
    for expected in [true, false] {
        let decision = support::check(&restored.store, b"k", &limit, 1, support::START);
        assert_eq!(decision.allowed, expected);
    }
    restored.keys.expect_err("the snapshot is not usable")
}
