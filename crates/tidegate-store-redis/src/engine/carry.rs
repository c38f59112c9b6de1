//! Keys that were counted under another limit: carried over when they are next seen.

use bytes::Bytes;
use tidegate_core::{Limit, State, Timestamp};
use tokio::time::Instant;

use super::Engine;
use super::plan::{Part, Plan};
use super::reply::{GARBLED, open, stale_limit};
use crate::client::Command;
use crate::script::{Head, ScriptOp};
use crate::store::RedisError;
use crate::terms::{Attached, Terms, lists};

/// A value as it is replaced: the string, and the holders beside it.
#[derive(Default)]
pub(super) struct Value {
    pub(super) string: Vec<u8>,
    holders: Vec<u8>,
}

impl Engine {
    /// Replaces a value of another limit by what this limit makes of it, unless somebody was faster;
    /// then there is something else to be seen.
    pub(super) async fn carry_over(
        &self,
        plan: &Plan<'_>,
        member: usize,
        value: &Bytes,
        now: Timestamp,
    ) -> Result<(), RedisError> {
        let (part, holder, until) = (&plan.parts[member], plan.holder, plan.until);
        let (old, start) = stale_limit(value)?;
        let terms = Attached::new(&old).map_err(|_| GARBLED)?.terms;
        let mut found = Value { string: value.to_vec(), holders: Vec::new() };
        if terms.is_spread() {
            found = self.dump(part, now, until).await?;
            if found.string != **value {
                return Ok(());
            }
        }
        let bytes = found.string.get(start..).ok_or(GARBLED)?;
        let state = match terms {
            Terms::SlidingLog => lists::read_log(&old, bytes),
            Terms::Concurrency => lists::read_holders(&found.holders)
                .and_then(|holders| lists::permits(&old, holders.into_iter())),
            _ => terms.read_state(&old, bytes),
        };
        let state = state.ok_or(GARBLED)?;
        let ask = part.ask(now, holder);
        let new = part.limit.inherit(&old, &state, &ask, part.inherit);
        let new = new.filter(|state| !part.limit.is_spent(state, &ask));
        let till = match &new {
            Some(state) => till(part.limit, state, part, now, holder),
            None => 0.0,
        };
        let new = new.map(|state| value_of(part, &state)).unwrap_or_default();
        let swap = self.swapping(part, terms.is_spread(), &found, &new, till, now);
        let (word, _, _) = open(self.client.run_by(swap, until).await?)?;
        self.stats.carried_over.add(u64::from(word == 1));
        Ok(())
    }

    /// A value and the holders beside it.
    pub(super) async fn dump(
        &self,
        part: &Part<'_>,
        now: Timestamp,
        until: Instant,
    ) -> Result<Value, RedisError> {
        let head = Head::new(ScriptOp::Dump, self.told(now));
        let reply = self.client.run_by(self.about_keys(part, &head, &[]), until).await?;
        let (_, _, mut rest) = open(reply)?;
        let length = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(GARBLED)?;
        let mut rest = rest.split_off(4);
        let length = usize::try_from(length).map_err(|_| GARBLED)?;
        if rest.len() < length {
            return Err(GARBLED);
        }
        let holders = rest.split_off(length);
        Ok(Value { string: rest.to_vec(), holders: holders.to_vec() })
    }

    /// The command that puts another value in the place of one.
    fn swapping(
        &self,
        part: &Part<'_>,
        had_holders: bool,
        old: &Value,
        new: &Value,
        till: f64,
        now: Timestamp,
    ) -> Command {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let head = Head::new(ScriptOp::Swap, self.told(now));
        let pieces: [&[u8]; 9] = [
            &till.to_le_bytes(),
            &[u8::from(had_holders)],
            &length(&old.string),
            &old.string,
            &length(&old.holders),
            &old.holders,
            &length(&new.string),
            &new.string,
            &new.holders,
        ];
        self.about_keys(part, &head, &pieces)
    }
}

/// When a state will be spent, in microseconds.
pub(super) fn till(
    limit: &Limit,
    state: &State,
    part: &Part<'_>,
    now: Timestamp,
    holder: u128,
) -> f64 {
    const NEVER: f64 = 9_007_199_254_740_991.0;
    match limit.forget_after(state, &part.ask(now, holder)) {
        Some(span) => {
            let end = now + span;
            (end.as_nanos().div_ceil(1000) as f64).min(NEVER - 1.0)
        }
        None => NEVER,
    }
}

fn value_of(part: &Part<'_>, state: &State) -> Value {
    let mut string = part.attached.tag.clone();
    let mut holders = Vec::new();
    match &part.attached.terms {
        Terms::SlidingLog => string.extend(lists::write_log(part.limit, state)),
        Terms::Concurrency => {
            let (sum, all) = lists::write_permits(part.limit, state);
            string.extend(sum);
            holders = all;
        }
        terms => string.extend(terms.write_state(part.limit, state)),
    }
    Value { string, holders }
}
