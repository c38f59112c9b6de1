//! A replay in Redis: under keys of its own, which are removed when it ends.

use std::future::Future;
use std::time::Duration;

use tidegate_server::AnyStore;
use tidegate_store_redis::{RedisOptions, RedisStore, Target, TargetError, TimeSource};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Ending, Failure, chain, say};
use crate::settings::without_credentials;

/// How long Redis may take to be there, and to answer one line.
const PATIENCE: Duration = Duration::from_secs(5);

/// What keys begin with, before something that nobody else has.
const PREFIX: &str = "tg-replay-";

/// Runs a replay with a store in Redis.
pub(super) fn run<F: Future<Output = Ending>>(
    url: &str,
    replay: impl FnOnce(AnyStore) -> F,
) -> Ending {
    let target: Target = url.parse().map_err(|error: TargetError| {
        Failure::new(chain(&error)).hint("`memory`, or a URL such as redis://127.0.0.1:6379")
    })?;
    let random = getrandom::u64()
        .map_err(|error| Failure::new(format!("there are no random numbers: {error}")))?;
    let mut options = RedisOptions::new(target);
    options.prefix = format!("{PREFIX}{random:016x}");
    options.time = TimeSource::Caller;
    options.strict = true;
    options.deadline = PATIENCE;
    let prefix = options.prefix.clone();
    // Lines are read in this thread, and what the store does goes on in another.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start threads: {error}")))?;
    let ending = runtime.block_on(async {
        let opened = RedisStore::open(options).await;
        let store = opened.map_err(|error| Failure::new(chain(&error)))?;
        if !store.wait_ready(PATIENCE).await {
            return Err(unreachable(url, &store));
        }
        remove_when_told_to_end(store.clone(), prefix.clone())?;
        let ending = replay(AnyStore::Redis(store.clone())).await;
        remove(&store, &prefix).await;
        ending
    });
    runtime.shutdown_background();
    ending
}

fn unreachable(url: &str, store: &RedisStore) -> Failure {
    let place = without_credentials(url);
    match store.stats().down_because {
        Some(why) => Failure::new(format!("Redis at `{place}` does not answer: {why}")),
        None => Failure::new(format!("Redis at `{place}` does not answer")),
    }
}

/// Removes all keys of the replay. Who cannot is told what is left.
async fn remove(store: &RedisStore, prefix: &str) {
    if let Err(error) = store.remove_all().await {
        let error = chain(&error);
        say(&format!("note: keys that begin with {prefix} are left in Redis: {error}\n"));
    }
}

/// A replay that is told to end leaves nothing behind either.
fn remove_when_told_to_end(store: RedisStore, prefix: String) -> Result<(), Failure> {
    let listen = |kind| {
        signal(kind).map_err(|error| Failure::new(format!("cannot listen to signals: {error}")))
    };
    let (mut interrupt, mut terminate) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::spawn(async move {
        let code = tokio::select! {
            _ = interrupt.recv() => 128 + 2,
            _ = terminate.recv() => 128 + 15,
        };
        remove(&store, &prefix).await;
        std::process::exit(code);
    });
    Ok(())
}
