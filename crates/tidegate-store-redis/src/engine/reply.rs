//! From replies to what was found of each part.

use bytes::Bytes;
use smallvec::SmallVec;
use tidegate_core::{State, Timestamp};

use super::plan::Part;
use crate::client::Reply;
use crate::script::ScriptOp;
use crate::store::RedisError;
use crate::tag::{TagError, read_tag};
use crate::terms::{Terms, lists};

/// What was found of a part.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Whether it would admit.
    pub(super) fits: bool,
    /// Its state; of lists, what the answer needs. Before the step, but after it when
    /// something was given back.
    pub(super) state: Option<State>,
    /// The time that counted.
    pub(super) now: Timestamp,
    /// Whether what its slot had to say of the request was yes.
    pub(super) admitted_there: bool,
}

/// What the script replied.
pub(super) enum Told {
    /// What was found of each member.
    Found(SmallVec<[Found; 1]>),
    /// A member is counted under another limit; nothing was done.
    Stale { member: usize, value: Bytes, now: Timestamp },
}

/// The parts of a reply that cannot be understood.
pub(super) const GARBLED: RedisError = RedisError::Garbled("it is not what the script replies");

impl From<TagError> for RedisError {
    fn from(error: TagError) -> Self {
        match error {
            TagError::Newer(version) => Self::Newer(version),
            TagError::Garbled => Self::Garbled("a key holds something else"),
        }
    }
}

/// The text of a reply, the word it begins with, and the time.
pub(super) fn open(reply: Reply) -> Result<(u8, Timestamp, Bytes), RedisError> {
    let Reply::Bulk(mut bytes) = reply else { return Err(GARBLED) };
    let (Some(word), Some(micros)) = (bytes.first().copied(), bytes.get(1..9)) else {
        return Err(GARBLED);
    };
    let micros = f64::from_le_bytes(micros.try_into().map_err(|_| GARBLED)?);
    if !(0.0..=9_007_199_254_740_991.0).contains(&micros) {
        return Err(GARBLED);
    }
    let now = Timestamp::from_nanos((micros as u64).saturating_mul(1000));
    let _ = bytes.split_to(9);
    Ok((word, now, bytes))
}

/// Reads the reply to a question about some parts.
pub(super) fn read<'a>(
    reply: Reply,
    op: ScriptOp,
    parts: impl ExactSizeIterator<Item = &'a Part<'a>>,
    holder: u128,
    is_quick: bool,
) -> Result<Told, RedisError> {
    let (word, now, mut rest) = open(reply)?;
    if word == 2 {
        let member = rest.first_chunk().map(|bytes| u16::from_le_bytes(*bytes)).ok_or(GARBLED)?;
        let value = rest.split_off(2);
        return Ok(Told::Stale { member: usize::from(member), value, now });
    }
    let admitted_there = word == 1;
    let mut all = SmallVec::with_capacity(parts.len());
    for part in parts {
        if op == ScriptOp::Reset {
            all.push(Found { fits: true, state: None, now, admitted_there });
            continue;
        }
        if is_quick {
            let state = match rest.is_empty() {
                true => None,
                false => {
                    let bytes = rest.get(part.attached.tag.len()..).ok_or(GARBLED)?;
                    Some(read_state(part, bytes, holder)?)
                }
            };
            all.push(Found { fits: admitted_there, state, now, admitted_there });
            continue;
        }
        let [fits, length] = *rest.first_chunk().ok_or(GARBLED)?;
        let length = usize::from(length);
        let bytes = rest.get(2..2 + length).ok_or(GARBLED)?;
        let state = if length == 0 { None } else { Some(read_state(part, bytes, holder)?) };
        all.push(Found { fits: fits == 1, state, now, admitted_there });
        let _ = rest.split_to(2 + length);
    }
    Ok(Told::Found(all))
}

fn read_state(part: &Part<'_>, bytes: &[u8], holder: u128) -> Result<State, RedisError> {
    let terms = &part.attached.terms;
    let state = match terms {
        Terms::SlidingLog => lists::read_log_summary(part.limit, bytes),
        Terms::Concurrency => lists::read_permits_summary(part.limit, bytes, holder),
        _ => terms.read_state(part.limit, bytes),
    };
    state.ok_or(RedisError::Garbled("a state makes no sense"))
}

/// The limit that a stale value was counted under, and where its state begins.
pub(super) fn stale_limit(value: &[u8]) -> Result<(tidegate_core::Limit, usize), RedisError> {
    Ok(read_tag(value)?)
}
