//! Deadlines, looked after a few times a second for all connections of a thread.
//!
//! A timer for each read would cost more than the read's bookkeeping. Instead whoever waits writes
//! down until when, and a sweep over all of them wakes those whose time has come.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::scan::Fault;

/// How often is looked.
pub(crate) const TICK: Duration = Duration::from_millis(100);

static NOW: AtomicU32 = AtomicU32::new(1);

/// The time in ticks since the process began, as of the last sweep of any thread.
pub(crate) fn now() -> u32 {
    NOW.load(Relaxed)
}

/// A duration in ticks, rounded up so that nobody is late too early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks(u32);

impl From<Duration> for Ticks {
    fn from(duration: Duration) -> Self {
        let ticks = duration.as_millis().div_ceil(TICK.as_millis()).saturating_add(1);
        // A few months.
        Self(u32::try_from(ticks).unwrap_or(u32::MAX).min(1 << 26))
    }
}

impl Ticks {
    /// The moment when it is over, if it begins now.
    fn end(self) -> u32 {
        now().saturating_add(self.0)
    }

    /// Whether it has passed since.
    pub(crate) fn is_over(self, since: u32) -> bool {
        now().saturating_sub(since) > self.0
    }
}

/// What may be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wait {
    /// The client's next bytes.
    Read = 0,
    /// The client, to take ours.
    Write = 1,
    /// The upstream.
    Upstream = 2,
}

/// What a connection's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    Http = 0,
    /// Whether it is HTTP any more is about to be known.
    Parked = 1,
    /// Something that is none of our business.
    Tunnel = 2,
}

/// The deadlines of one task, and what else has to be known on both sides of the HTTP library.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// By when; 0 is never.
    by: [AtomicU32; 3],
    late: [AtomicBool; 3],
    mode: AtomicU8,
    draining: AtomicBool,
    /// Requests that have not been answered in full.
    in_flight: AtomicU32,
    /// How long the client may go without one, in ticks.
    idle: AtomicU32,
    fault: Mutex<Option<Fault>>,
    waker: Mutex<Option<Waker>>,
}

impl Watch {
    /// Waits from now on.
    pub(crate) fn wait(&self, what: Wait, most: Ticks) {
        self.by[what as usize].store(most.end(), Relaxed);
    }

    /// Waits from now on, unless it waits already.
    pub(crate) fn wait_on(&self, what: Wait, most: Ticks) {
        if self.by[what as usize].load(Relaxed) == 0 {
            self.wait(what, most);
        }
    }

    /// Waits no more.
    pub(crate) fn rest(&self, what: Wait) {
        self.by[what as usize].store(0, Relaxed);
    }

    /// Whether the time has come.
    pub(crate) fn is_late(&self, what: Wait) -> bool {
        self.late[what as usize].load(Relaxed)
    }

    /// As if nothing had been.
    pub(crate) fn forgive(&self, what: Wait) {
        self.rest(what);
        self.late[what as usize].store(false, Relaxed);
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.mode.load(Relaxed) {
            0 => Mode::Http,
            1 => Mode::Parked,
            _ => Mode::Tunnel,
        }
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Relaxed);
    }

    /// Goes on with HTTP behind a request that might have ended it. Whoever reads has been told
    /// that there is nothing, and is woken to look again.
    pub(crate) fn resume(&self) {
        self.set_mode(Mode::Http);
        self.wake();
    }

    /// What is wrong with what the client sent.
    pub(crate) fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    pub(crate) fn begin_request(&self) {
        self.in_flight.fetch_add(1, Relaxed);
    }

    /// A request has been answered. After the last one under way the client is waited for.
    pub(crate) fn end_request(&self) {
        if self.in_flight.fetch_sub(1, Relaxed) == 1 {
            self.wait_on(Wait::Read, Ticks(self.idle.load(Relaxed)));
        }
    }

    /// How long the client may go without a request.
    pub(crate) fn set_idle(&self, idle: Ticks) {
        self.idle.store(idle.0, Relaxed);
    }

    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.load(Relaxed) > 0
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.wake();
    }

    /// Whom to wake: the task that asks.
    pub(crate) fn arm(&self, context: &Context<'_>) {
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waker {
            Some(known) => known.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
    }

    fn wake(&self) {
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn sweep(&self, now: u32) {
        let mut is_any = false;
        for (by, late) in self.by.iter().zip(&self.late) {
            let moment = by.load(Relaxed);
            if moment != 0 && moment <= now && !late.load(Relaxed) {
                late.store(true, Relaxed);
                is_any = true;
            }
        }
        if is_any {
            self.wake();
        }
    }
}

/// The watches of a thread.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    inner: RefCell<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    watches: Vec<Option<Arc<Watch>>>,
    free: Vec<usize>,
    is_draining: bool,
}

impl Watches {
    /// A new one, looked after until the guard is dropped.
    pub(crate) fn watch(self: &Rc<Self>) -> Watched {
        let mut slots = self.inner.borrow_mut();
        let watch = Arc::new(Watch::default());
        if slots.is_draining {
            watch.draining.store(true, Relaxed);
        }
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.watches.push(None);
            slots.watches.len() - 1
        });
        slots.watches[slot] = Some(Arc::clone(&watch));
        Watched { watches: Rc::clone(self), slot, watch }
    }

    /// Looks after all of them, from now to the end of the thread.
    pub(crate) async fn sweep(&self, mut each_tick: impl FnMut()) {
        let began = *BEGAN.get_or_init(Instant::now);
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            interval.tick().await;
            let ticks = began.elapsed().as_millis() / TICK.as_millis() + 1;
            let now = u32::try_from(ticks).unwrap_or(u32::MAX);
            NOW.fetch_max(now, Relaxed);
            for watch in self.inner.borrow().watches.iter().flatten() {
                watch.sweep(now);
            }
            each_tick();
        }
    }

    /// Tells all of them, and all to come, that it ends.
    pub(crate) fn drain(&self) {
        let mut slots = self.inner.borrow_mut();
        slots.is_draining = true;
        slots.watches.iter().flatten().for_each(|watch| watch.drain());
    }
}

static BEGAN: OnceLock<Instant> = OnceLock::new();

/// A watch that is looked after.
#[derive(Debug)]
pub(crate) struct Watched {
    watches: Rc<Watches>,
    slot: usize,
    watch: Arc<Watch>,
}

impl Watched {
    pub(crate) fn share(&self) -> &Arc<Watch> {
        &self.watch
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut slots = self.watches.inner.borrow_mut();
        slots.watches[self.slot] = None;
        slots.free.push(self.slot);
    }
}
