//! When a node is not asked any more: a rule about failures, without anything that fails.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// So many failures in a row are enough, however long they take.
const IN_A_ROW: u32 = 5;
/// So many missed deadlines within this time are enough, whatever succeeds in between.
const WITHIN: Duration = Duration::from_millis(100);
const WITHIN_COUNT: usize = 5;

const CLOSED: u8 = 0;
const OPEN: u8 = 1;
const GONE: u8 = 2;

/// What stands between callers and a node. Threads only read it as long as all is well.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: AtomicU8,
    in_a_row: AtomicU32,
    missed: Mutex<Missed>,
}

/// When the latest deadlines were missed, as a ring.
#[derive(Debug, Default)]
struct Missed {
    times: [Option<Instant>; WITHIN_COUNT],
    next: usize,
}

impl Breaker {
    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    pub(super) fn is_gone(&self) -> bool {
        self.state.load(Ordering::Acquire) == GONE
    }

    /// Opens it. Whether it was closed.
    pub(super) fn open(&self) -> bool {
        self.turn(CLOSED, OPEN)
    }

    /// Closes it. Whether it was open.
    pub(super) fn close(&self) -> bool {
        self.in_a_row.store(0, Ordering::Relaxed);
        *self.missed.lock() = Missed::default();
        self.turn(OPEN, CLOSED)
    }

    /// The node is not one any more, for good. Whether it was open.
    pub(super) fn go(&self) -> bool {
        self.state.swap(GONE, Ordering::AcqRel) == OPEN
    }

    fn turn(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Something came back in time.
    pub(super) fn succeeded(&self) {
        if self.in_a_row.load(Ordering::Relaxed) != 0 {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// A reply was an error. Whether that is enough.
    pub(super) fn failed(&self) -> bool {
        self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1 >= IN_A_ROW
    }

    /// So many missed their deadlines now. Whether that is enough.
    pub(super) fn missed(&self, count: usize, now: Instant) -> bool {
        let mut missed = self.missed.lock();
        let mut within = false;
        for _ in 0..count.min(WITHIN_COUNT) {
            let next = missed.next;
            // What is overwritten is the fifth before the one after this.
            missed.times[next] = Some(now);
            missed.next = (next + 1) % WITHIN_COUNT;
            let oldest = missed.times[missed.next];
            within |= oldest.is_some_and(|then| now.duration_since(then) <= WITHIN);
        }
        drop(missed);
        let count = u32::try_from(count).unwrap_or(IN_A_ROW).min(IN_A_ROW);
        within || self.in_a_row.fetch_add(count, Ordering::Relaxed) + count >= IN_A_ROW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn opens_after_five_in_a_row_and_not_if_something_succeeds() {
        let breaker = Breaker::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for i in 0..4 {
            assert!(!breaker.missed(1, at(i * 200)));
        }
        breaker.succeeded();
        assert!(!breaker.missed(1, at(800)));
        for i in 0..3 {
            assert!(!breaker.failed(), "{i}");
        }
        assert!(breaker.failed());
    }

    #[tokio::test]
    async fn opens_after_five_within_a_tenth_of_a_second_whatever_succeeds() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for ms in [0, 30, 60, 90] {
            assert!(!breaker.missed(1, start + Duration::from_millis(ms)));
            breaker.succeeded();
        }
        // The first is 101 ms ago, which is too long.
        assert!(!breaker.missed(1, start + Duration::from_millis(101)));
        breaker.succeeded();
        assert!(breaker.missed(1, start + Duration::from_millis(130)));
        assert!(Breaker::default().missed(700, start));
    }

    #[test]
    fn is_opened_and_closed_by_one_each() {
        let breaker = Breaker::default();
        assert!(!breaker.is_open() && !breaker.close());
        assert!(breaker.open() && breaker.is_open() && !breaker.open());
        assert!(breaker.close() && !breaker.is_open() && !breaker.close());
        assert!(breaker.open() && breaker.go() && breaker.is_gone());
        assert!(!breaker.open() && !breaker.close() && !breaker.go());
    }
}
