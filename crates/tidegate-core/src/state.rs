//! What is remembered of a key, and the operations on it.

use core::time::Duration;

use crate::algorithm::{Action, Algorithm, Ask, Engine, Episode, Taken};
use crate::bucket::Wide;
use crate::concurrency::Permits;
use crate::decision::{Decision, Retry, Source};
use crate::fixed_window::Count;
use crate::interval::Refills;
use crate::limit::{Kind, Limit};
use crate::sliding_counter::Counts;
use crate::sliding_log::Log;
use crate::warm_up::Warmth;

/// What is remembered of one key under one limit.
///
/// A state belongs to the limit that made it; to a limit of another algorithm it is no state.
/// State that is fully replenished equals no state, so that forgetting it loses nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(crate) body: Body,
    pub(crate) episode: Episode,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Bucket(u128),
    Interval(Refills),
    FixedWindow(Count),
    SlidingCounter(Counts),
    WarmUp(Warmth),
    SlidingLog(Log),
    Concurrency(Permits),
}

/// Runs `$call` on a state that is only looked at: fixed-size states as a rolled copy, lists as
/// they are. Ends in `$otherwise` if the state is not of this limit's algorithm.
macro_rules! look {
    ($limit:expr, $state:expr, $ask:expr, $otherwise:expr,
     |$engine:ident, $body:ident, $episode:ident| $call:expr) => {{
        let (limit, state, ask): (&Limit, &State, &Ask) = ($limit, $state, $ask);
        #[allow(unused_mut, reason = "not every call looks at the episode")]
        let mut $episode = state.episode;
        macro_rules! rolled {
            ($algorithm:expr, $place:expr) => {{
                let algorithm = $algorithm;
                let $engine = Engine { frame: &limit.frame, algorithm: &algorithm };
                let mut copy = *$place;
                $engine.roll(&mut copy, &mut $episode, ask);
                let $body = &copy;
                $call
            }};
        }
        macro_rules! listed {
            ($algorithm:expr, $place:expr) => {{
                let $engine = Engine { frame: &limit.frame, algorithm: $algorithm };
                let $body = $place;
                $engine.refresh($body, &mut $episode, ask);
                $call
            }};
        }
        match (&limit.kind, &state.body) {
            (Kind::Bucket(bucket), Body::Bucket(body)) => rolled!(Wide(bucket), body),
            (Kind::Interval(interval), Body::Interval(body)) => rolled!(*interval, body),
            (Kind::FixedWindow(window), Body::FixedWindow(body)) => rolled!(*window, body),
            (Kind::SlidingCounter(counter), Body::SlidingCounter(body)) => rolled!(*counter, body),
            (Kind::WarmUp(warm_up), Body::WarmUp(body)) => rolled!(*warm_up, body),
            (Kind::SlidingLog(log), Body::SlidingLog(body)) => listed!(log, body),
            (Kind::Concurrency(permits), Body::Concurrency(body)) => listed!(permits, body),
            _ => $otherwise,
        }
    }};
}

/// Runs `$call` on a state that is changed, rolled to the moment first.
macro_rules! change {
    ($limit:expr, $state:expr, $ask:expr, $otherwise:expr,
     |$engine:ident, $body:ident, $episode:ident| $call:expr) => {{
        let (limit, state, ask): (&Limit, &mut State, &Ask) = ($limit, $state, $ask);
        let $episode = &mut state.episode;
        macro_rules! rolled {
            ($algorithm:expr, $place:expr) => {{
                let algorithm = $algorithm;
                let $engine = Engine { frame: &limit.frame, algorithm: &algorithm };
                let $body = $place;
                $engine.roll($body, $episode, ask);
                $call
            }};
        }
        match (&limit.kind, &mut state.body) {
            (Kind::Bucket(bucket), Body::Bucket(body)) => rolled!(Wide(bucket), body),
            (Kind::Interval(interval), Body::Interval(body)) => rolled!(*interval, body),
            (Kind::FixedWindow(window), Body::FixedWindow(body)) => rolled!(*window, body),
            (Kind::SlidingCounter(counter), Body::SlidingCounter(body)) => rolled!(*counter, body),
            (Kind::WarmUp(warm_up), Body::WarmUp(body)) => rolled!(*warm_up, body),
            (Kind::SlidingLog(log), Body::SlidingLog(body)) => rolled!(*log, body),
            (Kind::Concurrency(permits), Body::Concurrency(body)) => rolled!(*permits, body),
            _ => $otherwise,
        }
    }};
}

/// Decisions. The caller keeps the state; `None` is a key that was never seen.
impl Limit {
    /// Whether a cost would be admitted now. Cost 0 always is.
    pub fn fits(&self, state: Option<&State>, ask: &Ask, cost: u64) -> bool {
        let Some(state) = self.own(state) else {
            return cost == 0
                || self.fresh(ask).is_some_and(|fresh| self.fits(Some(&fresh), ask, cost));
        };
        look!(self, state, ask, false, |engine, body, episode| {
            engine.fits(body, episode, ask, cost)
        })
    }

    /// The largest cost that would be admitted now, a soft allowance included.
    pub fn room(&self, state: Option<&State>, ask: &Ask) -> u64 {
        let Some(state) = self.own(state) else {
            return self.fresh(ask).map_or(0, |fresh| self.room(Some(&fresh), ask));
        };
        look!(self, state, ask, 0, |engine, body, episode| engine.room(body, episode, ask))
    }

    /// The answer for a key that is looked at and not touched.
    pub fn peek(&self, state: Option<&State>, ask: &Ask, cost: u64) -> Decision {
        let Some(state) = self.own(state) else {
            return match self.fresh(ask) {
                Some(fresh) => self.peek(Some(&fresh), ask, cost),
                None => self.blocked(cost),
            };
        };
        look!(self, state, ask, self.blocked(cost), |engine, body, episode| {
            engine.look(body, episode, ask, cost)
        })
    }

    /// Acts on the state and answers. Whether the cost fits is the caller's to know, because
    /// other limits of the same request have a say in it: ask [`fits`](Self::fits) of all, then
    /// settle all.
    pub fn settle(
        &self,
        state: &mut Option<State>,
        ask: &Ask,
        cost: u64,
        action: Action,
    ) -> Decision {
        if cost == 0 || action == Action::Look {
            return self.peek(state.as_ref(), ask, cost);
        }
        let known = self.own(state.as_ref());
        if action == Action::Refuse {
            if self.remembers_first_sight() && known.is_none_or(|state| self.is_spent(state, ask)) {
                *state = self.fresh(ask);
            }
            return self.peek(state.as_ref(), ask, cost);
        }
        if known.is_none() {
            *state = self.fresh(ask);
        }
        let Some(state) = state else { return self.blocked(cost) };
        change!(self, state, ask, self.blocked(cost), |engine, body, episode| {
            engine.act(body, episode, ask, cost, action)
        })
    }

    /// Gives back up to `n` units now, never beyond full; of an unknown key, nothing. A
    /// concurrency limit releases what the holder has.
    pub fn refund(&self, state: &mut Option<State>, ask: &Ask, n: u64) -> Decision {
        if n == 0 && !self.is_concurrency() {
            return self.peek(state.as_ref(), ask, 0);
        }
        self.drop_if_spent(state, ask);
        if let Some(existing) = state {
            change!(self, existing, ask, (), |engine, body, _episode| {
                engine.algorithm.refund(body, ask, n);
            });
            self.drop_if_spent(state, ask);
        }
        self.peek(state.as_ref(), ask, 0)
    }

    /// Gives back what is still outstanding of an earlier taking, as of the time it was taken:
    /// units that time has paid for since do not come back a second time.
    pub fn give_back(&self, state: &mut Option<State>, ask: &Ask, taken: &Taken) -> Decision {
        if taken.cost == 0 {
            return self.peek(state.as_ref(), ask, 0);
        }
        self.drop_if_spent(state, ask);
        if let Some(existing) = state {
            change!(self, existing, ask, (), |engine, body, _episode| {
                engine.algorithm.give_back(body, ask, taken);
            });
            self.drop_if_spent(state, ask);
        }
        self.peek(state.as_ref(), ask, 0)
    }

    /// What to keep in order to give a taking back; call it right after settling.
    pub fn taken(&self, state: &State, ask: &Ask, cost: u64) -> Taken {
        let mark = look!(self, state, ask, 0, |engine, body, _episode| {
            engine.algorithm.mark(body, ask, cost)
        });
        Taken { mark, cost }
    }

    /// What is used, in whole units, rounded up; a debt included.
    pub fn used(&self, state: &State, ask: &Ask) -> u64 {
        look!(self, state, ask, 0, |engine, body, _episode| engine.algorithm.used(body, ask))
    }

    /// The least time until the state equals no state; `None` if nobody can tell.
    pub fn forget_after(&self, state: &State, ask: &Ask) -> Option<Duration> {
        let nanos = match (&self.kind, &state.body) {
            (Kind::Bucket(bucket), Body::Bucket(body)) => Wide(bucket).forget_after(body, ask),
            (Kind::Interval(interval), Body::Interval(body)) => interval.forget_after(body, ask),
            (Kind::FixedWindow(window), Body::FixedWindow(body)) => window.forget_after(body, ask),
            (Kind::SlidingCounter(counter), Body::SlidingCounter(body)) => {
                counter.forget_after(body, ask)
            }
            (Kind::WarmUp(warm_up), Body::WarmUp(body)) => warm_up.forget_after(body, ask),
            (Kind::SlidingLog(log), Body::SlidingLog(body)) => log.forget_after(body, ask),
            (Kind::Concurrency(permits), Body::Concurrency(body)) => {
                permits.forget_after(body, ask)
            }
            _ => Some(0),
        };
        nanos.map(Duration::from_nanos)
    }

    /// Whether the state equals no state by now, so that it may be forgotten.
    pub fn is_spent(&self, state: &State, ask: &Ask) -> bool {
        self.forget_after(state, ask) == Some(Duration::ZERO)
    }

    /// Whether a refusal of an unknown key has to be remembered, because the key begins to earn
    /// from then on.
    pub fn remembers_first_sight(&self) -> bool {
        match self.kind {
            Kind::Bucket(bucket) => bucket.missing > 0,
            Kind::Interval(interval) => interval.missing > 0,
            _ => false,
        }
    }

    pub(crate) fn fresh(&self, ask: &Ask) -> Option<State> {
        let body = match &self.kind {
            Kind::Block => return None,
            Kind::Bucket(bucket) => Body::Bucket(Wide(bucket).fresh(ask)),
            Kind::Interval(interval) => Body::Interval(interval.fresh(ask)),
            Kind::FixedWindow(window) => Body::FixedWindow(window.fresh(ask)),
            Kind::SlidingCounter(counter) => Body::SlidingCounter(counter.fresh(ask)),
            Kind::WarmUp(warm_up) => Body::WarmUp(warm_up.fresh(ask)),
            Kind::SlidingLog(log) => Body::SlidingLog(log.fresh(ask)),
            Kind::Concurrency(permits) => Body::Concurrency(permits.fresh(ask)),
        };
        Some(State { body, episode: 0 })
    }

    /// A state that this limit can work on: one of another algorithm is none.
    fn own<'a>(&self, state: Option<&'a State>) -> Option<&'a State> {
        state.filter(|state| {
            matches!(
                (&self.kind, &state.body),
                (Kind::Bucket(_), Body::Bucket(_))
                    | (Kind::Interval(_), Body::Interval(_))
                    | (Kind::FixedWindow(_), Body::FixedWindow(_))
                    | (Kind::SlidingCounter(_), Body::SlidingCounter(_))
                    | (Kind::WarmUp(_), Body::WarmUp(_))
                    | (Kind::SlidingLog(_), Body::SlidingLog(_))
                    | (Kind::Concurrency(_), Body::Concurrency(_))
            )
        })
    }

    fn drop_if_spent(&self, state: &mut Option<State>, ask: &Ask) {
        if state.as_ref().is_some_and(|state| self.is_spent(state, ask)) {
            *state = None;
        }
    }

    fn blocked(&self, cost: u64) -> Decision {
        Decision {
            allowed: cost == 0,
            limit: 0,
            remaining: 0,
            retry: if cost == 0 { Retry::Now } else { Retry::Never },
            reset_after: Some(Duration::ZERO),
            delay: Duration::ZERO,
            rule: 0,
            source: Source::Store,
            soft: false,
        }
    }
}
