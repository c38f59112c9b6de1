//! The forms in which tables keep states: as few words as the limit allows.

use tidegate_core::{Ask, Limit, NARROW_HORIZON, State, Timestamp};

/// A state in a slot.
///
/// `origin` is the moment that narrow buckets count from; the others keep absolute times.
pub(crate) trait Value: Default + Clone {
    /// The state, moved out where copying would be dear; `put_in` or a removal follows.
    fn take_out(&mut self, limit: &Limit, origin: Timestamp) -> Option<State>;
    /// Keeps a state.
    fn put_in(&mut self, state: State, limit: &Limit, origin: Timestamp);
    /// Lends the state.
    fn look<R>(
        &self,
        limit: &Limit,
        origin: Timestamp,
        look: impl FnOnce(Option<&State>) -> R,
    ) -> R;
    /// Whether the state equals no state by now.
    fn is_spent(&self, limit: &Limit, origin: Timestamp, ask: &Ask) -> bool {
        self.look(limit, origin, |state| state.is_none_or(|state| limit.is_spent(state, ask)))
    }
}

/// Narrow buckets: ticks since the origin.
impl Value for [u64; 1] {
    fn take_out(&mut self, limit: &Limit, origin: Timestamp) -> Option<State> {
        limit.as_narrow().map(|narrow| narrow.widen(self[0], origin))
    }

    fn put_in(&mut self, state: State, limit: &Limit, origin: Timestamp) {
        if let Some(narrow) = limit.as_narrow() {
            *self = [narrow.narrow(&state, origin)];
        }
    }

    fn look<R>(
        &self,
        limit: &Limit,
        origin: Timestamp,
        look: impl FnOnce(Option<&State>) -> R,
    ) -> R {
        look(self.clone().take_out(limit, origin).as_ref())
    }

    fn is_spent(&self, limit: &Limit, origin: Timestamp, ask: &Ask) -> bool {
        let since = ask.at.now.as_nanos().saturating_sub(origin.as_nanos());
        limit.as_narrow().is_none_or(|narrow| {
            if since <= NARROW_HORIZON {
                narrow.is_spent(self[0], since)
            } else {
                // The clock has jumped, and the origin has not moved after it yet.
                limit.is_spent(&narrow.widen(self[0], origin), ask)
            }
        })
    }
}

macro_rules! words {
    ($count:literal) => {
        impl Value for [u64; $count] {
            fn take_out(&mut self, limit: &Limit, _origin: Timestamp) -> Option<State> {
                limit.unpack(self)
            }

            fn put_in(&mut self, state: State, limit: &Limit, _origin: Timestamp) {
                self.copy_from_slice(&limit.pack(&state)[..$count]);
            }

            fn look<R>(
                &self,
                limit: &Limit,
                _origin: Timestamp,
                look: impl FnOnce(Option<&State>) -> R,
            ) -> R {
                look(limit.unpack(self).as_ref())
            }
        }
    };
}

words!(2);
words!(3);
words!(4);

/// Lists: the state as it is.
impl Value for Option<State> {
    fn take_out(&mut self, _limit: &Limit, _origin: Timestamp) -> Option<State> {
        Option::take(self)
    }

    fn put_in(&mut self, state: State, _limit: &Limit, _origin: Timestamp) {
        *self = Some(state);
    }

    fn look<R>(
        &self,
        _limit: &Limit,
        _origin: Timestamp,
        look: impl FnOnce(Option<&State>) -> R,
    ) -> R {
        look(self.as_ref())
    }
}
