//! Where the service counts, and what of its memory outlives the process.

use std::path::PathBuf;
use std::time::Duration;

use tidegate::{Clock as _, MemoryStore, SnapshotError};
use tidegate_server::{AnyStore, Limits, ServiceClock};
use tidegate_store_redis::RedisStore;
use tracing::{info, warn};

use crate::failure::{Failure, chain};
use crate::settings::{StoreChoice, Typed};

/// How long Redis may take to be there before somebody is told.
const REDIS_START_MAX: Duration = Duration::from_secs(1);

/// The store that was chosen.
pub(super) async fn open(typed: &Typed, clock: &ServiceClock) -> Result<AnyStore, Failure> {
    let options = match &typed.store {
        StoreChoice::Memory => return open_memory(typed, clock).map(AnyStore::from),
        StoreChoice::Redis(options, _) => (**options).clone(),
    };
    if typed.snapshot.is_some() {
        warn!("no snapshot is written: Redis keeps the counts");
    }
    let opened = RedisStore::open(options).await;
    opened.map(AnyStore::from).map_err(|error| Failure::new(chain(&error)))
}

/// Tells if Redis is not there when the service begins. It serves all the same, each rule as its
/// `on_store_error` says.
pub(super) fn look_out(limits: &Limits) {
    let AnyStore::Redis(store) = limits.store() else { return };
    let store = store.clone();
    tokio::spawn(async move {
        if !store.wait_ready(REDIS_START_MAX).await {
            let why = store.stats().down_because.unwrap_or_default();
            warn!(
                why,
                "Redis does not answer; until it does, each rule's `on_store_error` decides"
            );
        }
    });
}

/// An empty store, or one with what was kept of the last.
fn open_memory(typed: &Typed, clock: &ServiceClock) -> Result<MemoryStore, Failure> {
    let builder = MemoryStore::builder().max_keys(typed.max_keys).on_full(typed.on_full);
    let Some(path) = &typed.snapshot else { return Ok(builder.build()) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let folder = folder.display();
        return Err(Failure::new(format!("the folder of the snapshot, `{folder}`, is not there")));
    }
    let restored = builder.restore(path, clock.now());
    match &restored.keys {
        Ok(keys) => info!(keys, path = %path.display(), "counts restored"),
        Err(error) if is_absent(error) => info!(path = %path.display(), "no counts to restore yet"),
        Err(error) => {
            warn!(error = %chain(error), "the snapshot is of no use; all counts begin anew")
        }
    }
    Ok(restored.store)
}

fn is_absent(error: &SnapshotError) -> bool {
    let source = std::error::Error::source(error);
    let source = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::NotFound)
}

/// Writes what is counted to the snapshot.
pub(super) fn write(path: Option<PathBuf>, limits: &Limits) {
    let (Some(path), Some(store)) = (path, limits.store().memory()) else { return };
    if let Err(error) = store.snapshot(&path, limits.now()) {
        warn!(error = %chain(&error), "the snapshot could not be written");
    }
}

/// Writes it a last time.
pub(super) fn close(typed: &Typed, limits: &Limits) {
    write(typed.snapshot.clone(), limits);
}
