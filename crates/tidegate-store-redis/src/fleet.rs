//! How many processes share the store: each says every second that it lives.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::client::{Client, Command, Reply};
use crate::key::slot_of;
use crate::resp::write_command;
use crate::stats::Stats;

/// How often a node says that it lives.
const EVERY: Duration = Duration::from_secs(1);
/// Who has not said so for this long is gone.
const GONE_AFTER_MS: u64 = 5_000;

/// Adds this node, forgets those that are gone, and tells how many there are and how many come
/// before this one. By Redis's clock, like everything. `KEYS`: the set. `ARGV`: the node, the time
/// to live in milliseconds. Mirrors nothing in Rust.
const BEAT: &str = include_str!("../lua/fleet.lua");

/// A node of the fleet.
#[derive(Debug)]
pub(crate) struct Member {
    client: Weak<Client>,
    stats: Arc<Stats>,
    key: String,
    id: String,
}

impl Member {
    pub(crate) fn new(client: &Arc<Client>, stats: Arc<Stats>, prefix: &str) -> Self {
        let id = u128::from(getrandom::u64().unwrap_or(0)) << 64 | u128::from(std::process::id());
        let key = format!("{prefix}:nodes");
        Self { client: Arc::downgrade(client), stats, key, id: format!("{id:032x}") }
    }

    /// Says that it lives until the store is gone.
    pub(crate) async fn live(self) {
        let mut beat = tokio::time::interval(EVERY);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let Some(client) = self.client.upgrade() else { return };
            // What was last known stays, if nobody answers.
            if let Ok(Reply::Array(told)) = client.run(self.command()).await
                && let [Reply::Integer(count), Reply::Integer(rank)] = told[..]
            {
                self.stats.live_nodes.set(u64::try_from(count).unwrap_or(1));
                self.stats.rank.set(u64::try_from(rank).unwrap_or(0));
            }
        }
    }

    fn command(&self) -> Command {
        let ttl = GONE_AFTER_MS.to_string();
        let words: [&[u8]; 6] = [
            b"EVAL",
            BEAT.as_bytes(),
            b"1",
            self.key.as_bytes(),
            self.id.as_bytes(),
            ttl.as_bytes(),
        ];
        let mut bytes = Vec::with_capacity(BEAT.len() + 128);
        write_command(&mut bytes, &words);
        Command { slot: slot_of(self.key.as_bytes()), bytes }
    }
}
