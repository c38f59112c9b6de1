//! States as words, for stores that keep them in tables and in files.

use alloc::vec::Vec;

use crate::concurrency::{Holder, Permits};
use crate::fixed_window::Count;
use crate::interval::Refills;
use crate::limit::{Kind, Limit};
use crate::sliding_counter::Counts;
use crate::sliding_log::Log;
use crate::state::{Body, State};
use crate::warm_up::Warmth;

/// The most words that a state of fixed size takes.
pub const WORDS_MAX: usize = 4;

impl Limit {
    /// How many words a state takes, if it is always the same: `None` for lists, zero for a limit
    /// that blocks and remembers nothing.
    pub fn state_words(&self) -> Option<usize> {
        let body = match self.kind {
            Kind::Block => return Some(0),
            Kind::SlidingLog(_) | Kind::Concurrency(_) => return None,
            Kind::Bucket(_) | Kind::Interval(_) | Kind::FixedWindow(_) | Kind::WarmUp(_) => 2,
            Kind::SlidingCounter(_) => 3,
        };
        Some(body + usize::from(self.frame.soft.is_some()))
    }

    /// A state of fixed size as words; the first [`state_words`](Self::state_words) count.
    #[inline]
    pub fn pack(&self, state: &State) -> [u64; WORDS_MAX] {
        let mut words = match &state.body {
            Body::Bucket(paid_at) => [*paid_at as u64, (*paid_at >> 64) as u64, 0, 0],
            Body::Interval(Refills { used, since }) => [*used, *since, 0, 0],
            Body::FixedWindow(Count { end, used }) => [*end, *used, 0, 0],
            Body::SlidingCounter(Counts { start, previous, current }) => {
                [*start, *previous, *current, 0]
            }
            // Below `warm_up::TICKS_MAX`.
            Body::WarmUp(Warmth { cold, free_at }) => [*cold as u64, *free_at, 0, 0],
            Body::SlidingLog(_) | Body::Concurrency(_) => [0; WORDS_MAX],
        };
        if self.frame.soft.is_some()
            && let Some(last) = self.state_words().and_then(|count| count.checked_sub(1))
        {
            words[last] = state.episode;
        }
        words
    }

    /// A state of fixed size from its words; `None` if this limit's states are not of that size.
    #[inline]
    pub fn unpack(&self, words: &[u64]) -> Option<State> {
        if self.state_words() != Some(words.len()) {
            return None;
        }
        let body = match (&self.kind, words) {
            (Kind::Bucket(_), [low, high, ..]) => {
                Body::Bucket(u128::from(*high) << 64 | u128::from(*low))
            }
            (Kind::Interval(_), [used, since, ..]) => {
                Body::Interval(Refills { used: *used, since: *since })
            }
            (Kind::FixedWindow(_), [end, used, ..]) => {
                Body::FixedWindow(Count { end: *end, used: *used })
            }
            (Kind::SlidingCounter(_), [start, previous, current, ..]) => {
                Body::SlidingCounter(Counts {
                    start: *start,
                    previous: *previous,
                    current: *current,
                })
            }
            (Kind::WarmUp(warm_up), [cold, free_at, ..]) => Body::WarmUp(Warmth {
                cold: u128::from(*cold).min(warm_up.coldest()),
                free_at: *free_at,
            }),
            _ => return None,
        };
        let episode = if self.frame.soft.is_some() { *words.last()? } else { 0 };
        Some(State { body, episode })
    }

    /// Any state as words, lists included.
    pub fn encode(&self, state: &State) -> Vec<u64> {
        let mut words = Vec::new();
        match (&state.body, self.state_words()) {
            (Body::SlidingLog(log), _) => {
                words.extend([state.episode, log.before]);
                words.extend(log.entries.iter().flat_map(|(at, total)| [*at, *total]));
            }
            (Body::Concurrency(permits), _) => {
                for Holder { id, units, until } in &permits.holders {
                    words.extend([*id as u64, (*id >> 64) as u64, *units, *until]);
                }
            }
            (_, count) => words.extend(&self.pack(state)[..count.unwrap_or(0)]),
        }
        words
    }

    /// Any state from its words; `None` if they are not a state of this limit.
    pub fn decode(&self, words: &[u64]) -> Option<State> {
        match self.kind {
            Kind::SlidingLog(_) => {
                let [episode, before, entries @ ..] = words else { return None };
                let (pairs, rest) = entries.as_chunks::<2>();
                let sorted = pairs.is_sorted_by(|[a, _], [b, _]| a < b);
                let entries = pairs.iter().map(|[at, total]| (*at, *total)).collect();
                let body = Body::SlidingLog(Log { entries, before: *before });
                (sorted && rest.is_empty()).then_some(State { body, episode: *episode })
            }
            Kind::Concurrency(_) => {
                let (quads, rest) = words.as_chunks::<4>();
                let holders = quads.iter().map(|[low, high, units, until]| Holder {
                    id: u128::from(*high) << 64 | u128::from(*low),
                    units: *units,
                    until: *until,
                });
                let body = Body::Concurrency(Permits { holders: holders.collect() });
                rest.is_empty().then_some(State { body, episode: 0 })
            }
            _ => self.unpack(words),
        }
    }
}
