//! Exceptions from the rules, shared by all processes of a store.
//!
//! In memory they are this process's. With Redis each is a note that all processes follow, so that a
//! key which is blocked at one of them is blocked at all within about a second.

use std::sync::Weak;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::rules::{Entry, Override, Unit};
use tidegate::{Excepted, Exception, ExceptionError, ExceptionKind};
use tidegate_store_redis::{Note, RedisStore};
use tracing::warn;

use crate::service::Service;
use crate::stores::{AnyStore, StoreError};

/// How long to wait before notes that could not be read are asked for again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Why there is no exception.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExceptError {
    #[error(transparent)]
    TooMany(#[from] ExceptionError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a note is called: the key, and the kind of exception.
#[derive(Deserialize, Serialize)]
struct Name {
    exception: Kind,
    domain: String,
    descriptor: Vec<(String, String)>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Block,
    Limit,
}

/// What a note says of another limit.
#[derive(Deserialize, Serialize)]
struct Numbers {
    requests_per_unit: u32,
    unit: String,
}

impl Service {
    /// Makes an exception from the rules for a key, here and wherever the store is shared.
    pub(crate) async fn except(
        &self,
        domain: &str,
        entries: &[(String, String)],
        exception: Exception,
        span: Duration,
    ) -> Result<(), ExceptError> {
        if let AnyStore::Redis(store) = self.limits().store() {
            let (name, text) = write(domain, entries, exception);
            let kept = store.put_note(&name, &text, span).await.map_err(StoreError::from)?;
            if !kept {
                return Err(ExceptionError::TooMany { max: tidegate::EXCEPTIONS_MAX }.into());
            }
        }
        Ok(self.limits().except(domain, &borrowed(entries), exception, span)?)
    }

    /// Ends an exception. Whether there was one.
    pub(crate) async fn lift(
        &self,
        domain: &str,
        entries: &[(String, String)],
        kind: ExceptionKind,
    ) -> Result<bool, StoreError> {
        let mut was_there = self.limits().lift(domain, &borrowed(entries), kind);
        if let AnyStore::Redis(store) = self.limits().store() {
            let kind = match kind {
                ExceptionKind::Block => Kind::Block,
                ExceptionKind::Limit => Kind::Limit,
            };
            was_there |= store.remove_note(&name(domain, entries, kind)).await?;
        }
        Ok(was_there)
    }
}

/// Follows the exceptions of all processes, as long as the service is there.
pub(crate) async fn follow(service: Weak<Service>, store: RedisStore) {
    let mut changes = store.notes_changed();
    while changes.changed().await.is_ok() {
        loop {
            let Some(service) = service.upgrade() else { return };
            match store.notes().await {
                Ok(notes) => {
                    service.limits().replace_exceptions(notes.iter().filter_map(read).collect());
                    break;
                }
                Err(error) => {
                    warn!(%error, "the exceptions that others have made cannot be read yet");
                }
            }
            drop(service);
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }
}

fn borrowed(entries: &[(String, String)]) -> Vec<Entry<'_>> {
    entries.iter().map(|(key, value)| Entry::new(key, value)).collect()
}

fn name(domain: &str, entries: &[(String, String)], exception: Kind) -> Vec<u8> {
    let name = Name { exception, domain: domain.to_owned(), descriptor: entries.to_vec() };
    // Texts and lists of them can always be written.
    serde_json::to_vec(&name).unwrap_or_default()
}

fn write(domain: &str, entries: &[(String, String)], exception: Exception) -> (Vec<u8>, Vec<u8>) {
    match exception {
        Exception::Block => (name(domain, entries, Kind::Block), Vec::new()),
        Exception::Limit(Override { requests_per_unit, unit }) => {
            let numbers = Numbers { requests_per_unit, unit: unit.as_str().to_owned() };
            let text = serde_json::to_vec(&numbers).unwrap_or_default();
            (name(domain, entries, Kind::Limit), text)
        }
    }
}

/// What a note says; nothing, if it is one of a version that says other things.
fn read(note: &Note) -> Option<Excepted> {
    let name: Name = serde_json::from_slice(&note.name).ok()?;
    let exception = match name.exception {
        Kind::Block => Exception::Block,
        Kind::Limit => {
            let Numbers { requests_per_unit, unit } = serde_json::from_slice(&note.text).ok()?;
            Exception::Limit(Override { requests_per_unit, unit: Unit::parse(&unit)? })
        }
    };
    Some(Excepted { domain: name.domain, entries: name.descriptor, exception, rest: note.rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_by_others() {
        let entries = vec![("user".to_owned(), "a\"b".to_owned()), ("x".to_owned(), String::new())];
        let limit = Override { requests_per_unit: 7, unit: Unit::Hour };
        for exception in [Exception::Block, Exception::Limit(limit)] {
            let (name, text) = write("api", &entries, exception);
            let rest = Duration::from_secs(5);
            let read = read(&Note { name, text, rest });
            let domain = "api".to_owned();
            assert_eq!(read, Some(Excepted { domain, entries: entries.clone(), exception, rest }));
        }
        let other = Note { name: b"{}".to_vec(), text: Vec::new(), rest: Duration::from_secs(1) };
        assert_eq!(read(&other), None);
    }
}
