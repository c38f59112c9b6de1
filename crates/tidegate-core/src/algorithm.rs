//! What an algorithm has to know, and the operations that are the same for all of them.
//!
//! Every algorithm is a way of keeping count of what was *used*. It answers whether `n` more fit
//! under a capacity, how much room there is, and when there will be enough; whether a request is
//! refused, forced, counted or merely looked at, and what a soft limit adds, is decided here once.

use core::time::Duration;

use crate::decision::{Decision, Retry, Source};
use crate::time::Moment;

/// A question to a limit: when it is asked, and on whose behalf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// When.
    pub at: Moment,
    /// Who holds the permits; only concurrency limits read it. One id stands for one permit: who
    /// asks again by the same id renews what it has, and releasing the id releases that.
    pub holder: u128,
}

impl Ask {
    /// A question without a holder, for every limit but concurrency.
    pub fn at(at: impl Into<Moment>) -> Self {
        Self { at: at.into(), holder: 0 }
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        self.at.nanos()
    }
}

/// What to do with a cost, once it is known whether the whole request is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look and answer, change nothing.
    Look,
    /// Consume nothing because the request as a whole is refused. Where a key's first sight
    /// matters (`initial`), it is remembered.
    Refuse,
    /// Consume a cost that fits.
    Take,
    /// Consume whether it fits or not, going into debt.
    Force,
    /// Record a cost that was refused, as `count_rejected` asks.
    Count,
}

/// What is needed to give units back as of the time when they were taken.
///
/// Time pays for units too, and units that time has paid for must not come back a second time. A
/// bucket cannot tell whose units time has paid for, so it gives back what would be left of this
/// taking if it had been alone: never too much. Windows and logs know exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Where in the limit's own reckoning the units stand.
    pub mark: u128,
    /// How many of the units to give back.
    pub cost: u64,
}

/// The arithmetic of one algorithm over its own state.
///
/// Rolling a state, and looking at it, must lose nothing that a clock going back could still
/// see: only `take`, `refund` and `give_back` are ever written down.
///
/// `cap` is the capacity in force, which a soft limit raises for a while. Every method but `fresh`
/// expects a state that was rolled to the same `ask`.
pub(crate) trait Algorithm {
    type State;

    /// The state of a key that was never seen.
    fn fresh(&self, ask: &Ask) -> Self::State;
    /// Brings the state forward to the moment; a moment in its past changes nothing.
    fn roll(&self, state: &mut Self::State, ask: &Ask);
    /// Whether what is used, and `n` more, stays within `cap`.
    fn fits(&self, state: &Self::State, ask: &Ask, n: u64, cap: u64) -> bool;
    /// What is used, in whole units, rounded up; a debt included.
    fn used(&self, state: &Self::State, ask: &Ask) -> u64;
    /// The largest `n` that fits.
    fn room(&self, state: &Self::State, ask: &Ask, cap: u64) -> u64;
    /// The largest `n` that this asker could have; more than `room` for one that asks again for
    /// permits that it holds.
    fn grantable(&self, state: &Self::State, ask: &Ask, cap: u64) -> u64 {
        self.room(state, ask, cap)
    }
    /// The least time until `n <= cap` fits, given that it does not; `None` if unknowable.
    fn wait(&self, state: &Self::State, ask: &Ask, n: u64, cap: u64) -> Option<u64>;
    /// The least time until nothing is used any more; `None` if unknowable.
    fn reset_after(&self, state: &Self::State, ask: &Ask) -> Option<u64>;
    /// Uses `n` more, saturating.
    fn take(&self, state: &mut Self::State, ask: &Ask, n: u64);
    /// Where the `n` units of a `take` that just happened stand.
    fn mark(&self, state: &Self::State, ask: &Ask, n: u64) -> u128;
    /// Gives back up to `n` units now, never beyond full.
    fn refund(&self, state: &mut Self::State, ask: &Ask, n: u64);
    /// Gives back what is still outstanding of units taken earlier.
    fn give_back(&self, state: &mut Self::State, ask: &Ask, taken: &Taken);

    /// How long a request that is admitted now has to be held.
    #[inline(always)]
    fn delay(&self, _state: &Self::State, _ask: &Ask) -> u64 {
        0
    }

    /// The least time until the state may be forgotten; zero if it equals no state already. The
    /// state need not be rolled, and for a limit with an initial level must not be.
    #[inline(always)]
    fn forget_after(&self, state: &Self::State, ask: &Ask) -> Option<u64> {
        self.reset_after(state, ask)
    }
}

/// Whether `n` more stay within `cap`; sums cannot overflow into a yes.
#[inline(always)]
pub(crate) fn is_within(used: u64, n: u64, cap: u64) -> bool {
    used <= cap && n <= cap - used
}

/// The time until an end. One that was cut off at the end of time itself is never reached.
pub(crate) fn until(end: u64, now: u64) -> u64 {
    let left = end.saturating_sub(now);
    if end == u64::MAX { left.max(1) } else { left }
}

/// An allowance above a limit, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Soft {
    /// Units above the limit.
    pub(crate) extra: u64,
    /// For how long, from the first unit above.
    pub(crate) span: u64,
}

/// An episode above a soft limit: one more than the nanosecond of its end, or zero for none.
///
/// It is forgotten when the key is fully replenished, which is when its state is.
pub(crate) type Episode = u64;

/// An episode that is over but whose key has not been replenished yet: it ended before all time.
const OVER: Episode = 1;

/// The numbers every algorithm shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) limit: u64,
    pub(crate) soft: Option<Soft>,
}

impl Frame {
    #[inline(always)]
    fn cap(&self, episode: Episode, now: u64) -> u64 {
        match self.soft {
            Some(soft) if episode == 0 || is_running(episode, now) => self.limit + soft.extra,
            _ => self.limit,
        }
    }

    #[inline(always)]
    fn largest_cap(&self) -> u64 {
        self.limit + self.soft.map_or(0, |soft| soft.extra)
    }
}

#[inline(always)]
fn is_running(episode: Episode, now: u64) -> bool {
    now < episode.saturating_sub(1)
}

/// One algorithm with its frame: the operations that front ends know.
pub(crate) struct Engine<'a, A> {
    pub(crate) frame: &'a Frame,
    pub(crate) algorithm: &'a A,
}

impl<A: Algorithm> Engine<'_, A> {
    /// Rolls to the moment and forgets an episode that full replenishment has ended.
    #[inline(always)]
    pub(crate) fn roll(&self, state: &mut A::State, episode: &mut Episode, ask: &Ask) {
        if *episode != 0 && self.algorithm.forget_after(state, ask) == Some(0) {
            *episode = 0;
        }
        self.algorithm.roll(state, ask);
        self.refresh(state, episode, ask);
    }

    #[inline(always)]
    pub(crate) fn refresh(&self, state: &A::State, episode: &mut Episode, ask: &Ask) {
        if *episode != 0 && self.algorithm.reset_after(state, ask) == Some(0) {
            *episode = 0;
        }
    }

    /// Whether a cost is admitted; cost 0 always is.
    #[inline(always)]
    pub(crate) fn fits(&self, state: &A::State, episode: Episode, ask: &Ask, cost: u64) -> bool {
        let cap = self.frame.cap(episode, ask.now());
        cost == 0 || (cost <= cap && self.algorithm.fits(state, ask, cost, cap))
    }

    /// The largest cost that would be admitted, a soft allowance included.
    pub(crate) fn room(&self, state: &A::State, episode: Episode, ask: &Ask) -> u64 {
        self.algorithm.grantable(state, ask, self.frame.cap(episode, ask.now()))
    }

    /// Answers a cost on a rolled state and changes nothing.
    #[inline(always)]
    pub(crate) fn look(
        &self,
        state: &A::State,
        episode: Episode,
        ask: &Ask,
        cost: u64,
    ) -> Decision {
        if self.fits(state, episode, ask, cost) {
            let delay = self.algorithm.delay(state, ask);
            return self.answer(true, state, episode, ask, Retry::Now, delay);
        }
        let retry = self.retry(state, episode, ask, cost);
        self.answer(false, state, episode, ask, retry, 0)
    }

    /// Consumes a cost on a rolled state and answers.
    #[inline(always)]
    pub(crate) fn act(
        &self,
        state: &mut A::State,
        episode: &mut Episode,
        ask: &Ask,
        cost: u64,
        action: Action,
    ) -> Decision {
        let delay = self.algorithm.delay(state, ask);
        if action == Action::Count {
            // Not an admission, so it starts no episode.
            self.algorithm.take(state, ask, cost);
            let retry = self.retry(state, *episode, ask, cost);
            return self.answer(false, state, *episode, ask, retry, 0);
        }
        self.consume(state, episode, ask, cost);
        let retry = match action {
            Action::Force => self.retry(state, *episode, ask, 0),
            Action::Take | Action::Count | Action::Look | Action::Refuse => Retry::Now,
        };
        self.answer(true, state, *episode, ask, retry, delay)
    }

    #[inline(always)]
    fn consume(&self, state: &mut A::State, episode: &mut Episode, ask: &Ask, cost: u64) {
        self.algorithm.take(state, ask, cost);
        let Some(soft) = self.frame.soft else { return };
        if *episode == 0 && !self.algorithm.fits(state, ask, 0, self.frame.limit) {
            *episode = ask.now().saturating_add(soft.span).saturating_add(1);
        } else if *episode != 0 && !is_running(*episode, ask.now()) {
            // Kept as a mark, so that a clock that goes back does not reopen the episode.
            *episode = OVER;
        }
    }

    #[inline(always)]
    fn answer(
        &self,
        allowed: bool,
        state: &A::State,
        episode: Episode,
        ask: &Ask,
        retry: Retry,
        delay: u64,
    ) -> Decision {
        let limit = self.frame.limit;
        Decision {
            allowed,
            limit,
            remaining: self.algorithm.room(state, ask, limit),
            retry,
            reset_after: self.algorithm.reset_after(state, ask).map(Duration::from_nanos),
            delay: Duration::from_nanos(delay),
            rule: 0,
            source: Source::Store,
            soft: episode != 0 && !self.algorithm.fits(state, ask, 0, limit),
        }
    }

    /// When a cost is admitted. The capacity of a soft limit falls when its episode ends and rises
    /// again at full replenishment, so there are three moments to try, in this order.
    fn retry(&self, state: &A::State, episode: Episode, ask: &Ask, cost: u64) -> Retry {
        if cost > self.frame.largest_cap() {
            return Retry::Never;
        }
        let cap = self.frame.cap(episode, ask.now());
        if cost <= cap {
            let wait = self.wait(state, ask, cost, cap);
            let still_soft = |wait: u64| is_running(episode, ask.now().saturating_add(wait));
            if episode == 0 || cap == self.frame.limit || wait.is_some_and(still_soft) {
                return self.retry_after(wait);
            }
        }
        if cost <= self.frame.limit {
            return self.retry_after(self.wait(state, ask, cost, self.frame.limit));
        }
        self.retry_after(self.algorithm.reset_after(state, ask))
    }

    fn wait(&self, state: &A::State, ask: &Ask, cost: u64, cap: u64) -> Option<u64> {
        if self.algorithm.fits(state, ask, cost, cap) {
            Some(0)
        } else {
            self.algorithm.wait(state, ask, cost, cap)
        }
    }

    fn retry_after(&self, wait: Option<u64>) -> Retry {
        match wait {
            Some(0) => Retry::Now,
            Some(wait) => Retry::After(Duration::from_nanos(wait)),
            None => Retry::Unknown,
        }
    }
}
