//! The processes that share a store: each says every second that it lives, and all follow the same
//! notes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::client::{Client, Command, Reply};
use crate::key::slot_of_name;
use crate::script;
use crate::stats::Stats;
use crate::store::RedisError;

/// How often a node says that it lives.
const EVERY: Duration = Duration::from_secs(1);
/// Who has not said so for this long is gone.
const GONE_AFTER: &[u8] = b"5000";
/// How many notes there may be.
const NOTES_MAX: &[u8] = b"20000";

/// Adds a node, forgets those that are gone, and tells of the others.
const BEAT: &str = include_str!("../lua/fleet.lua");
/// Writes and reads notes.
const NOTES: &str = include_str!("../lua/notes.lua");

const GARBLED: RedisError = RedisError::Garbled("it is not what is known of the fleet");

/// Something that all processes of a store are to know for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is called: one that is put under the same name takes its place.
    pub name: Vec<u8>,
    /// What it says.
    pub text: Vec<u8>,
    /// For how long it still holds.
    pub rest: Duration,
}

/// Where the processes of a store meet.
#[derive(Debug)]
pub(crate) struct Board {
    nodes: String,
    notes: String,
    slot: u16,
}

impl Board {
    pub(crate) fn new(prefix: &str) -> Self {
        // Both in one slot, since they are asked for at once.
        let nodes = format!("{prefix}1:n{{fleet}}");
        let notes = format!("{prefix}1:m{{fleet}}");
        Self { slot: slot_of_name(nodes.as_bytes()), nodes, notes }
    }

    fn beat(&self, id: &str) -> Command {
        let (nodes, notes) = (self.nodes.as_bytes(), self.notes.as_bytes());
        let words = [b"EVAL", BEAT.as_bytes(), b"2", nodes, notes, id.as_bytes(), GONE_AFTER];
        script::command(self.slot, &words)
    }

    fn about_notes(&self, arguments: &[&[u8]]) -> Command {
        let mut words: Vec<&[u8]> = vec![b"EVAL", NOTES.as_bytes(), b"1", self.notes.as_bytes()];
        words.extend_from_slice(arguments);
        script::command(self.slot, &words)
    }

    /// Puts a note up; whether there was room.
    pub(crate) async fn put(
        &self,
        client: &Client,
        name: &[u8],
        text: &[u8],
        ttl: Duration,
    ) -> Result<bool, RedisError> {
        let ttl = ttl.as_nanos().div_ceil(1_000_000).min(1 << 50).to_string();
        let command = self.about_notes(&[b"put", name, ttl.as_bytes(), text, NOTES_MAX]);
        Ok(client.run(command).await? == Reply::Integer(1))
    }

    /// Takes a note down; whether it was there.
    pub(crate) async fn remove(&self, client: &Client, name: &[u8]) -> Result<bool, RedisError> {
        Ok(client.run(self.about_notes(&[b"remove", name])).await? == Reply::Integer(1))
    }

    /// All notes.
    pub(crate) async fn all(&self, client: &Client) -> Result<Vec<Note>, RedisError> {
        let Reply::Array(told) = client.run(self.about_notes(&[b"all"])).await? else {
            return Err(GARBLED);
        };
        let read = |note: &[Reply; 3]| match note {
            [Reply::Bulk(name), Reply::Integer(ms), Reply::Bulk(text)] => Ok(Note {
                name: name.to_vec(),
                text: text.to_vec(),
                rest: Duration::from_millis(u64::try_from(*ms).unwrap_or(0)),
            }),
            _ => Err(GARBLED),
        };
        told.as_chunks().0.iter().map(read).collect()
    }
}

/// A node of the fleet.
#[derive(Debug)]
pub(crate) struct Member {
    client: Weak<Client>,
    stats: Arc<Stats>,
    board: Arc<Board>,
    id: String,
    /// The number of the last change of notes.
    changes: watch::Sender<u64>,
}

impl Member {
    pub(crate) fn new(
        client: &Arc<Client>,
        stats: Arc<Stats>,
        board: Arc<Board>,
        changes: watch::Sender<u64>,
    ) -> Self {
        // Two that began without random numbers have different processes, or different machines'
        // addresses; the worst that comes of being taken for one is a larger share.
        let random = getrandom::u64().unwrap_or(0);
        let id = format!("{random:016x}{:08x}", std::process::id());
        Self { client: Arc::downgrade(client), stats, board, id, changes }
    }

    /// Says that it lives until the store is gone.
    pub(crate) async fn live(self) {
        let mut beat = tokio::time::interval(EVERY);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let Some(client) = self.client.upgrade() else { return };
            // What was last known stays, if nobody answers.
            if let Ok(Reply::Array(told)) = client.run(self.board.beat(&self.id)).await
                && let [Reply::Integer(count), Reply::Integer(rank), Reply::Integer(change)] =
                    told[..]
            {
                self.stats.live_nodes.set(u64::try_from(count).unwrap_or(1));
                self.stats.rank.set(u64::try_from(rank).unwrap_or(0));
                let change = u64::try_from(change).unwrap_or(0);
                self.changes.send_if_modified(|known| std::mem::replace(known, change) != change);
            }
        }
    }
}
