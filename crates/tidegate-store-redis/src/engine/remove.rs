//! Removing everything that begins with the prefix.

use std::collections::BTreeMap;

use super::Engine;
use super::join::join_all;
use super::reply::GARBLED;
use crate::client::{ClientError, Reply};
use crate::key::slot_of_name;
use crate::script::command;
use crate::store::RedisError;

/// How many keys a server is asked for at once.
const STEP: &[u8] = b"1000";
/// How many commands are under way at once.
const SIDE_BY_SIDE: usize = 64;

impl Engine {
    /// Removes all keys that begin with the prefix, and says how many there were. Keys that are
    /// written meanwhile may stay.
    ///
    /// # Errors
    /// If one of the servers could not answer.
    pub(crate) async fn remove_all(&self) -> Result<u64, RedisError> {
        let pattern = format!("{}1:*", literally(&self.prefix));
        let masters = self.client.masters();
        if masters.is_empty() {
            return Err(ClientError::Down.into());
        }
        let mut removed = 0;
        for master in &masters {
            let mut cursor = b"0".to_vec();
            loop {
                let scan: [&[u8]; 6] =
                    [b"SCAN", &cursor, b"MATCH", pattern.as_bytes(), b"COUNT", STEP];
                let reply = self.client.run_at(master, &command(0, &scan).bytes).await?;
                let (next, names) = scanned(reply)?;
                removed += self.unlink(&names).await?;
                if next == b"0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(removed)
    }

    async fn unlink(&self, names: &[Vec<u8>]) -> Result<u64, RedisError> {
        let mut by_slot: BTreeMap<u16, Vec<&[u8]>> = BTreeMap::new();
        for name in names {
            let slot = if self.client.is_cluster() { slot_of_name(name) } else { 0 };
            by_slot.entry(slot).or_insert_with(|| vec![b"UNLINK"]).push(name);
        }
        let commands: Vec<_> =
            by_slot.into_iter().map(|(slot, arguments)| command(slot, &arguments)).collect();
        let mut removed = 0;
        for some in commands.chunks(SIDE_BY_SIDE) {
            for reply in join_all(some.iter().map(|command| self.client.run(command.clone()))).await
            {
                let Reply::Integer(count) = reply? else { return Err(GARBLED) };
                removed += u64::try_from(count).unwrap_or(0);
            }
        }
        Ok(removed)
    }
}

/// The next cursor, and names.
fn scanned(reply: Reply) -> Result<(Vec<u8>, Vec<Vec<u8>>), RedisError> {
    let Reply::Array(parts) = reply else { return Err(GARBLED) };
    let [Reply::Bulk(cursor), Reply::Array(names)] = &*parts else { return Err(GARBLED) };
    let name = |reply: &Reply| match reply {
        Reply::Bulk(name) => Ok(name.to_vec()),
        _ => Err(GARBLED),
    };
    Ok((cursor.to_vec(), names.iter().map(name).collect::<Result<_, _>>()?))
}

/// A pattern that stands for itself.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
