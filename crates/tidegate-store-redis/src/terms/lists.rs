//! States that are lists: the sliding log and the holders of permits.
//!
//! A reply carries only what the answer needs of them; a value that is carried over to another limit
//! is read and written in full.

use tidegate_core::{Limit, State};

use super::states::{from_episode, held, numbers, to_episode, to_nanos};
use super::{NEVER, put, put_all, split_nanos};

/// Numbers in the header of a log.
const HEADER: usize = 6;

/// Somebody who holds permits, as the script keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) id: u128,
    pub(crate) units: u64,
    /// In microseconds.
    pub(crate) until: u64,
}

fn until_nanos(until: u64) -> u64 {
    if until == NEVER { u64::MAX } else { to_nanos(until) }
}

/// What a reply says of a log: all that counts, as if it had been taken at three moments at the
/// most.
pub(crate) fn read_log_summary(limit: &Limit, bytes: &[u8]) -> Option<State> {
    let [episode, used, newest, at, upto, soft_at, soft_upto] = numbers(bytes)?;
    let mut words = vec![to_episode(episode), 0];
    let mut last = 0;
    // A soft limit is above the plain one, so that less has to leave.
    for (at, upto) in [(soft_at, soft_upto), (at, upto), (newest, used)] {
        if upto > last {
            words.extend([to_nanos(at), upto]);
            last = upto;
        }
    }
    limit.decode(&words)
}

/// A whole log, without its tag.
pub(crate) fn read_log(limit: &Limit, bytes: &[u8]) -> Option<State> {
    let [head, before, count, _, _, episode] = numbers(bytes)?;
    let records = bytes.get(8 * HEADER..)?;
    let place = |index: u64| usize::try_from(index.checked_mul(16)?).ok();
    let records = records.get(place(head)?..place(count)?)?;
    let mut words = Vec::with_capacity(2 + records.len() / 8);
    words.extend([to_episode(episode), before]);
    for record in records.as_chunks::<16>().0 {
        let [at, total] = numbers(record)?;
        words.extend([to_nanos(at), total]);
    }
    limit.decode(&words)
}

/// A whole log, without its tag; totals begin anew.
pub(crate) fn write_log(limit: &Limit, state: &State) -> Vec<u8> {
    let words = limit.encode(state);
    let [episode, before, entries @ ..] = &*words else { return Vec::new() };
    let entries = entries.as_chunks::<2>().0;
    let last = entries.last().copied().unwrap_or_default();
    let units = |total: u64| total.wrapping_sub(*before) as f64;
    let mut out = Vec::with_capacity(8 * HEADER + 16 * entries.len());
    let newest = split_nanos(last[0]).0;
    let total = if entries.is_empty() { 0.0 } else { units(last[1]) };
    put_all(&mut out, [0.0, 0.0, entries.len() as f64, newest, total, from_episode(*episode)]);
    for [at, total] in entries {
        put_all(&mut out, [split_nanos(*at).0, units(*total)]);
    }
    out
}

/// What a reply says of permits: those of the asker, and all others as if two had them.
pub(crate) fn read_permits_summary(limit: &Limit, bytes: &[u8], asker: u128) -> Option<State> {
    let [own, own_until, others, newest, until, leaving] = numbers(bytes)?;
    let leaving = leaving.min(others);
    let holders = [
        Holder { id: asker, units: own, until: own_until },
        Holder { id: asker ^ 1, units: leaving, until },
        Holder { id: asker ^ 2, units: others - leaving, until: newest },
    ];
    permits(limit, holders.into_iter().filter(|holder| holder.units > 0))
}

/// Permits by their holders.
pub(crate) fn permits(limit: &Limit, holders: impl Iterator<Item = Holder>) -> Option<State> {
    let mut words = Vec::new();
    for Holder { id, units, until } in holders {
        words.extend([id as u64, (id >> 64) as u64, units, until_nanos(until)]);
    }
    limit.decode(&words)
}

/// All holders, as the script writes them down: 32 bytes each.
pub(crate) fn read_holders(bytes: &[u8]) -> Option<Vec<Holder>> {
    let (records, rest) = bytes.as_chunks::<32>();
    let holder = |record: &[u8; 32]| {
        let [units, until] = numbers(&record[16..])?;
        Some(Holder { id: u128::from_le_bytes(*record.first_chunk()?), units, until })
    };
    rest.is_empty().then(|| records.iter().map(holder).collect())?
}

/// The units of all holders, and the holders in full.
pub(crate) fn write_permits(limit: &Limit, state: &State) -> (Vec<u8>, Vec<u8>) {
    let words = limit.encode(state);
    let (mut total, mut holders) = (0.0, Vec::new());
    for [low, high, units, until] in words.as_chunks::<4>().0 {
        let id = u128::from(*high) << 64 | u128::from(*low);
        holders.extend_from_slice(&id.to_le_bytes());
        let until = if *until == u64::MAX { NEVER as f64 } else { split_nanos(*until).0 };
        put_all(&mut holders, [held(*units), until]);
        total += held(*units);
    }
    let mut sum = Vec::new();
    put(&mut sum, total);
    (sum, holders)
}

/// What the script keeps of one holder, in a state that is known in summary.
pub(crate) fn write_holder(limit: &Limit, state: Option<&State>, id: u128) -> Vec<u8> {
    let mut out = Vec::new();
    let Some(state) = state else { return out };
    for [low, high, units, until] in limit.encode(state).as_chunks::<4>().0 {
        if u128::from(*high) << 64 | u128::from(*low) == id {
            let until = if *until == u64::MAX { NEVER as f64 } else { split_nanos(*until).0 };
            put_all(&mut out, [held(*units), until]);
        }
    }
    out
}
