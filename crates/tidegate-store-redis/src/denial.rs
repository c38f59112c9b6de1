//! Refusals that still hold: answered without asking Redis again.
//!
//! What is kept is the state that refused, not the refusal: as long as nobody gives anything back,
//! the true state is at least as full, so whatever this one refuses now, Redis would refuse. So a
//! smaller cost, or a later moment, is never refused by mistake.

use std::time::{Duration, Instant};

use tidegate_core::{Ask, Decision, Moment, Source, State, Timestamp};
use tidegate_store::{Item, Mode, Registered};

use crate::keyed::Keyed;

/// Keys that were refused lately.
#[derive(Debug)]
pub(crate) struct Denials {
    known: Keyed<Denial>,
    /// Somebody else may have given something back meanwhile, which shows after so long.
    max_age: Duration,
}

/// What refused.
#[derive(Debug)]
struct Denial {
    state: Option<State>,
    /// The store's time in that state.
    now: Timestamp,
    /// When it was asked, on this side: before the store read its clock, so that what is added to
    /// `now` is never too little.
    sent: Instant,
}

impl Denials {
    pub(crate) fn new(keys_max: usize, max_age: Duration) -> Self {
        let keys_max = if max_age.is_zero() { 0 } else { keys_max };
        Self { known: Keyed::new(keys_max), max_age }
    }

    /// Whether anything is remembered at all.
    pub(crate) fn is_on(&self) -> bool {
        !self.max_age.is_zero()
    }

    /// What is known to refuse a cost, if something is.
    pub(crate) fn find(
        &self,
        serial: u64,
        item: &Item<'_>,
        units: u64,
        at: Instant,
    ) -> Option<Decision> {
        let decision = self.known.with(serial, item.key, |denial| {
            let age = at.saturating_duration_since(denial.sent);
            if age > self.max_age {
                return None;
            }
            let now = denial.now + age;
            let window = item.windows.map(|windows| windows.around(now));
            let ask = Ask { at: Moment { now, window }, holder: 0 };
            let decision = item.limit.limit().peek(denial.state.as_ref(), &ask, units);
            (!decision.allowed).then_some(Decision { source: Source::DenialCache, ..decision })
        });
        decision.flatten()
    }

    /// Remembers what refused.
    pub(crate) fn remember(
        &self,
        serial: u64,
        key: &[u8],
        state: Option<State>,
        now: Timestamp,
        sent: Instant,
    ) {
        let is_old = |denial: &Denial| sent.saturating_duration_since(denial.sent) > self.max_age;
        self.known.insert(serial, key, Denial { state, now, sent }, is_old);
    }

    /// Something was given back to a key.
    pub(crate) fn forget(&self, serial: u64, key: &[u8]) {
        self.known.take(serial, key);
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

/// Whether a refusal of this item may be remembered, and be the reason to refuse a request.
pub(crate) fn may_be_remembered(item: &Item<'_>) -> bool {
    let limit = item.limit.limit();
    item.mode == Mode::Enforce && !limit.is_concurrency() && limit.spec().queue.is_none()
}

/// Whether a request that meets this limit has to be told to the store also when it is refused: to
/// be counted, or for the key to be seen. What refused by itself has been seen.
pub(crate) fn has_to_be_asked(limit: &Registered, is_alone: bool) -> bool {
    let limit = limit.limit();
    limit.counts_rejected() || (limit.remembers_first_sight() && !is_alone)
}
