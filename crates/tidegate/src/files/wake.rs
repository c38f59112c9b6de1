//! What wakes the watching thread. Whatever comes in bursts is kept as a flag, so nothing piles up.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A burst of changes is over when nothing more came for so long.
const QUIET: Duration = Duration::from_millis(50);
/// A burst that does not end is looked at after so long.
const BURST_MAX: Duration = Duration::from_millis(500);

/// Where others leave word for the watching thread.
#[derive(Debug, Default)]
pub(super) struct Bell {
    state: Mutex<State>,
    rung: Condvar,
    /// Why changes are looked for and not only waited for.
    pub(super) notice: OnceLock<Arc<str>>,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    asked: bool,
    signal: bool,
    burst: Option<Burst>,
    #[cfg(test)]
    readings: u64,
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    first: Instant,
    last: Instant,
}

/// Why the thread woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    Stop,
    Signal,
    Asked,
    Changed,
    Poll,
}

impl Bell {
    pub(super) fn stop(&self) {
        self.ring(|state| state.stop = true);
    }

    pub(super) fn ask(&self) {
        self.ring(|state| state.asked = true);
    }

    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no signals"))]
    pub(super) fn signal(&self) {
        self.ring(|state| state.signal = true);
    }

    pub(super) fn change(&self) {
        let now = Instant::now();
        self.ring(|state| {
            let first = state.burst.map_or(now, |burst| burst.first);
            state.burst = Some(Burst { first, last: now });
        });
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.lock().stop
    }

    /// Waits for word, at most until `poll_at`. Changes are waited out; being asked is not.
    pub(super) fn wait(&self, poll_at: Option<Instant>) -> Wake {
        let mut state = self.lock();
        loop {
            if state.stop {
                return Wake::Stop;
            }
            let now = Instant::now();
            let due = match state.burst {
                Some(burst) => Some((burst.last + QUIET).min(burst.first + BURST_MAX)),
                None => poll_at,
            };
            let asked = match () {
                () if std::mem::take(&mut state.signal) => Some(Wake::Signal),
                () if std::mem::take(&mut state.asked) => Some(Wake::Asked),
                () => None,
            };
            let is_due = due.is_some_and(|due| due <= now);
            if asked.is_some() || is_due {
                // Whoever looks now sees the changes of which word has come so far.
                let changed = state.burst.take().is_some();
                return asked.unwrap_or(if changed { Wake::Changed } else { Wake::Poll });
            }
            state = match due {
                Some(due) => {
                    let waited = self.rung.wait_timeout(state, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.rung.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn ring(&self, word: impl FnOnce(&mut State)) {
        word(&mut self.lock());
        self.rung.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Flags cannot be left half set.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn count_reading(&self) {
        self.ring(|state| state.readings += 1);
    }

    /// Waits until so many readings were made.
    #[cfg(test)]
    pub(super) fn await_readings(&self, count: u64) {
        let patience = Duration::from_secs(20);
        let few = |state: &mut State| state.readings < count;
        let (state, waited) = self.rung.wait_timeout_while(self.lock(), patience, few).unwrap();
        assert!(!waited.timed_out(), "{} readings, not {count}", state.readings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn being_asked_does_not_wait_and_takes_the_changes_along() {
        let bell = Bell::default();
        bell.change();
        bell.ask();
        bell.signal();
        assert_eq!(bell.wait(None), Wake::Signal);
        assert_eq!(bell.wait(None), Wake::Asked);
        assert_eq!(bell.wait(Some(Instant::now())), Wake::Poll, "the change was taken along");
        bell.ask();
        bell.stop();
        assert_eq!(bell.wait(None), Wake::Stop);
    }

    #[test]
    fn a_burst_is_waited_out() {
        let bell = Bell::default();
        let begin = Instant::now();
        bell.change();
        assert_eq!(bell.wait(Some(begin)), Wake::Changed);
        assert!(begin.elapsed() >= QUIET);
    }

    #[test]
    fn a_burst_without_end_is_cut() {
        let bell = Bell::default();
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let ringing = scope.spawn(|| {
                while !bell.is_stopped() {
                    bell.change();
                    std::thread::yield_now();
                }
            });
            bell.change();
            assert_eq!(bell.wait(None), Wake::Changed);
            assert!(begin.elapsed() >= QUIET);
            bell.stop();
            ringing.join().unwrap();
        });
    }
}
