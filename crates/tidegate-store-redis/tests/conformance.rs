//! The suite that every store has to pass, on real servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use support::Server;
use tidegate_store::conformance;
use tidegate_store_redis::{RedisOptions, RedisStore, TimeSource};

async fn conforms(server: &Server) {
    let mut options = RedisOptions::new(server.url().parse().unwrap());
    options.time = TimeSource::Caller;
    options.strict = true;
    // A busy machine is no reason to fail.
    options.deadline = std::time::Duration::from_secs(30);
    let store = RedisStore::open(options).await.unwrap();
    conformance::all(&store).await;
    assert_eq!(store.stats().disagreements, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_conforms() {
    conforms(&Server::redis()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_conforms() {
    conforms(&Server::valkey()).await;
}
