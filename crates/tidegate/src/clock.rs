//! What time it is: the machine's clock, and one that tests move by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_core::Timestamp;

use crate::anchor::{Anchor, SharedAnchor};

/// A clock that can be asked and slept by.
pub trait Clock: Clone + Send + Sync + 'static {
    /// What [`sleep_until`](Self::sleep_until) returns.
    type Sleep: Future<Output = ()> + Send;

    /// The time now. It should not go back; where it does, limits get stricter and mint nothing.
    fn now(&self) -> Timestamp;

    /// Ready once the clock shows `moment`; it may wake late, and is asked again if it wakes early.
    fn sleep_until(&self, moment: Timestamp) -> Self::Sleep;
}

/// The machine's clock: wall time that never goes back, read in about ten nanoseconds.
///
/// It counts the processor's ticks where those are steady, and looks at the system's clock every
/// tenth of a second. When that was set forward, it follows at once; when it was set back, it goes
/// on at half speed until the two meet, so that limits earn less for a while instead of nothing.
///
/// Sleeping needs no async runtime.
#[derive(Clone)]
pub struct SystemClock {
    shared: Arc<Shared>,
}

struct Shared {
    ticks: quanta::Clock,
    anchor: SharedAnchor,
    anchoring: Mutex<()>,
}

/// How old an anchor gets before it is renewed.
const ANCHOR_AGE_MAX: u64 = 100_000_000;

impl SystemClock {
    /// A clock anchored to the system's clock as it is now.
    #[must_use]
    pub fn new() -> Self {
        let ticks = quanta::Clock::new();
        let wall = wall_nanos();
        let anchor = Anchor { raw: ticks.raw(), wall, floor: 0 };
        let anchor = SharedAnchor::new(anchor);
        Self { shared: Arc::new(Shared { ticks, anchor, anchoring: Mutex::new(()) }) }
    }
}

impl Shared {
    #[inline(always)]
    fn nanos(&self) -> u64 {
        // The reading before the anchor: a reading is then never older than its anchor by more
        // than the time between the two lines.
        let raw = self.ticks.raw();
        let anchor = self.anchor.load();
        let elapsed = self.ticks.delta_as_nanos(anchor.raw, raw);
        if elapsed > ANCHOR_AGE_MAX {
            return self.renew();
        }
        anchor.time(elapsed)
    }

    #[cold]
    fn renew(&self) -> u64 {
        // Waited for, though it is rare that somebody else is at it: two who look at the clocks
        // side by side would disagree about the time.
        let _renewing = self.anchoring.lock().unwrap_or_else(PoisonError::into_inner);
        let (raw, wall) = (self.ticks.raw(), wall_nanos());
        let old = self.anchor.load();
        let elapsed = self.ticks.delta_as_nanos(old.raw, raw);
        let time = old.time(elapsed);
        if elapsed <= ANCHOR_AGE_MAX {
            return time;
        }
        let anchor = Anchor { raw, wall, floor: time };
        self.anchor.store(anchor);
        anchor.time(0)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SystemClock({})", Clock::now(self))
    }
}

impl Clock for SystemClock {
    type Sleep = futures_timer::Delay;

    #[inline(always)]
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.shared.nanos())
    }

    fn sleep_until(&self, moment: Timestamp) -> futures_timer::Delay {
        futures_timer::Delay::new(moment.since(self.now()))
    }
}

fn wall_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A clock that stands still until it is moved: time in tests, exact to the nanosecond.
///
/// Clones show the same time. Sleepers wake when the clock is moved to where they want to be.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limit, Limiter, ManualClock};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder().limit(Limit::per_second(1)).clock(clock.clone()).build()?;
/// assert!(limiter.check("key").allowed);
/// clock.advance(Duration::from_nanos(999_999_999));
/// assert!(!limiter.check("key").allowed);
/// clock.advance(Duration::from_nanos(1));
/// assert!(limiter.check("key").allowed);
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    shared: Arc<Manual>,
}

#[derive(Debug, Default)]
struct Manual {
    nanos: AtomicU64,
    sleepers: Mutex<Sleepers>,
}

#[derive(Debug, Default)]
struct Sleepers {
    next: u64,
    wakers: BTreeMap<u64, (Timestamp, Waker)>,
}

impl ManualClock {
    /// A clock that shows an arbitrary time in 2023.
    #[must_use]
    pub fn new() -> Self {
        Self::at(Timestamp::from_secs(1_700_000_000))
    }

    /// A clock that shows the given time.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        self.set(Clock::now(self) + by);
    }

    /// Sets it, also back.
    pub fn set(&self, now: Timestamp) {
        self.shared.nanos.store(now.as_nanos(), Ordering::SeqCst);
        let mut sleepers = self.shared.sleepers();
        let due: Vec<u64> = sleepers
            .wakers
            .iter()
            .filter(|(_, (moment, _))| *moment <= now)
            .map(|(id, _)| *id)
            .collect();
        let due: Vec<Waker> =
            due.iter().filter_map(|id| sleepers.wakers.remove(id)).map(|(_, w)| w).collect();
        drop(sleepers);
        due.into_iter().for_each(Waker::wake);
    }

    /// How many are asleep, and the earliest moment that one of them waits for: so that a test
    /// can move the clock to just before it.
    pub fn sleepers(&self) -> (usize, Option<Timestamp>) {
        let sleepers = self.shared.sleepers();
        (sleepers.wakers.len(), sleepers.wakers.values().map(|(moment, _)| *moment).min())
    }
}

impl Manual {
    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    type Sleep = ManualSleep;

    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.shared.nanos.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, moment: Timestamp) -> ManualSleep {
        ManualSleep { clock: self.clone(), moment, id: None }
    }
}

/// Sleep by a [`ManualClock`].
#[derive(Debug)]
pub struct ManualSleep {
    clock: ManualClock,
    moment: Timestamp,
    id: Option<u64>,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = Arc::clone(&self.clock.shared);
        let mut sleepers = shared.sleepers();
        // Under the lock, so that a move of the clock is either seen here or wakes us.
        if self.clock.now() >= self.moment {
            return Poll::Ready(());
        }
        let id = self.id.unwrap_or(sleepers.next);
        if self.id.is_none() {
            sleepers.next += 1;
            self.id = Some(id);
        }
        sleepers.wakers.insert(id, (self.moment, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.clock.shared.sleepers().wakers.remove(&id);
        }
    }
}
