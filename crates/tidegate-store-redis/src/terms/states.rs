//! States of fixed size, from the script's numbers to the engine's words and back.

use smallvec::SmallVec;
use tidegate_core::{Limit, State, WORDS_MAX};

use super::{MICROS_MOST, Terms, UNITS_MOST, split_nanos};

/// A state as it stands in Redis, without its tag.
pub(crate) type StateBytes = SmallVec<[u8; 32]>;

/// What a count that somebody else wrote is cut off at.
const COUNT_MOST: u64 = 1 << 52;

/// The numbers in a string; `None` unless they are all whole and not negative.
pub(super) fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (chunks, _) = bytes.as_chunks::<8>();
    let mut out = [0; N];
    for (place, chunk) in out.iter_mut().zip(chunks.get(..N)?) {
        let number = f64::from_le_bytes(*chunk);
        if !(0.0..=9_007_199_254_740_991.0).contains(&number) || number.fract() != 0.0 {
            return None;
        }
        *place = number as u64;
    }
    Some(out)
}

/// Microseconds to nanoseconds. The end of the script's numbers is the end of time.
pub(super) fn to_nanos(micros: u64) -> u64 {
    if micros > MICROS_MOST { u64::MAX } else { micros.saturating_mul(1000) }
}

pub(super) fn to_episode(stored: u64) -> u64 {
    match stored.checked_sub(1) {
        None => 0,
        Some(end) => to_nanos(end).saturating_add(1),
    }
}

pub(super) fn from_episode(episode: u64) -> f64 {
    match episode.checked_sub(1) {
        None => 0.0,
        Some(end) => split_nanos(end).0 + 1.0,
    }
}

impl Terms {
    /// A state of fixed size, as a reply or a value has it.
    pub(crate) fn read_state(&self, limit: &Limit, bytes: &[u8]) -> Option<State> {
        let count = limit.state_words()?;
        let is_soft = limit.spec().soft.is_some();
        let mut words = [0; WORDS_MAX];
        match self {
            Self::Bucket(ticks) => {
                let [q, r] = numbers(bytes)?;
                let paid_at = u128::from(q) * u128::from(ticks.per_us) + u128::from(r);
                words[..2].copy_from_slice(&[paid_at as u64, (paid_at >> 64) as u64]);
            }
            Self::Interval => {
                let [used, since] = numbers(bytes)?;
                words[..2].copy_from_slice(&[used, to_nanos(since)]);
            }
            Self::FixedWindow => {
                let [end, used] = numbers(bytes)?;
                words[..2].copy_from_slice(&[to_nanos(end), used]);
            }
            Self::SlidingCounter => {
                let [start, previous, current] = numbers(bytes)?;
                words[..3].copy_from_slice(&[to_nanos(start), previous, current]);
            }
            Self::WarmUp { .. } => {
                let cold = u64::from_le_bytes(*bytes.first_chunk()?);
                let [q, r] = numbers(&bytes[8..])?;
                words[..2].copy_from_slice(&[cold, to_nanos(q).saturating_add(r)]);
            }
            Self::Block | Self::SlidingLog | Self::Concurrency => return None,
        }
        if is_soft {
            let [episode] = numbers(bytes.get(bytes.len().checked_sub(8)?..)?)?;
            words[count.checked_sub(1)?] = to_episode(episode);
        }
        let expected = 8 * if matches!(self, Self::WarmUp { .. }) { 3 } else { count };
        if bytes.len() != expected {
            return None;
        }
        limit.unpack(words.get(..count)?)
    }

    /// A state of fixed size, as a value has it.
    pub(crate) fn write_state(&self, limit: &Limit, state: &State) -> StateBytes {
        let words = limit.pack(state);
        let mut out = StateBytes::new();
        let mut put = |numbers: &[f64]| {
            numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        };
        let count = |units: u64| units.min(COUNT_MOST - 1) as f64;
        let moment = |nanos: u64| split_nanos(nanos).0;
        match self {
            Self::Bucket(ticks) => {
                let (q, r) = ticks.split(u128::from(words[1]) << 64 | u128::from(words[0]));
                put(&[q, r]);
            }
            Self::Interval => put(&[count(words[0]), moment(words[1])]),
            Self::FixedWindow => put(&[moment(words[0]), count(words[1])]),
            Self::SlidingCounter => put(&[moment(words[0]), count(words[1]), count(words[2])]),
            Self::WarmUp { .. } => {
                out.extend_from_slice(&words[0].to_le_bytes());
                let (q, r) = split_nanos(words[1]);
                out.extend_from_slice(&q.to_le_bytes());
                out.extend_from_slice(&r.to_le_bytes());
            }
            Self::Block | Self::SlidingLog | Self::Concurrency => {}
        }
        let words_count = limit.state_words().unwrap_or(0);
        if limit.spec().soft.is_some() && words_count > 0 {
            out.extend_from_slice(&from_episode(words[words_count - 1]).to_le_bytes());
        }
        out
    }
}

/// Units that somebody holds, cut off where the script does.
pub(super) fn held(units: u64) -> f64 {
    units.min(UNITS_MOST) as f64
}
