//! Waiting for a limit: first come, first served, for each key.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use tidegate_core::{Decision, Retry, Timestamp};
use tidegate_store::{Op, Store};

use crate::clock::Clock;
use crate::key::{KeyBytes, KeyParts};
use crate::limiter::{Asked, Shared};

/// How long those wait who were refused because the store has no room for their key.
const FULL_STORE_RETRY: Duration = Duration::from_secs(1);

/// How often those ask who wait for permits of a store that others share: what others give back,
/// nobody announces here.
const SHARED_STORE_RETRY: Duration = Duration::from_millis(100);

/// Why waiting ended without success.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError<E: Error + 'static> {
    /// The cost is more than the limit can ever hold.
    #[error("the cost is more than the limit of {} can hold", .0.limit)]
    Never(Decision),
    /// It would take, or took, longer than allowed. The decision is the last refusal; of a shaper
    /// that would have held the request for too long, its retry is by how much.
    #[error("not admitted in time")]
    TooLong(Decision),
    /// The bound on waiters is reached.
    #[error("{max} are waiting already")]
    TooManyWaiters {
        /// The bound.
        max: usize,
    },
    /// The store could not answer.
    #[error("the store could not answer")]
    Store(#[source] E),
}

/// Those who wait, by key.
pub(crate) struct WaitingRoom {
    max: usize,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    by_key: HashMap<KeyBytes, VecDeque<Waiter>>,
    len: usize,
    /// How many of them wait for a key of several parts.
    compound: usize,
    next_id: u64,
}

struct Waiter {
    id: u64,
    /// Set while the waiter sleeps without a moment to wake at.
    waker: Option<Waker>,
    /// Something has changed since the waiter looked.
    called: bool,
}

impl WaitingRoom {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, queues: Mutex::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.queues().len
    }

    /// Tells those that something was given back who may wait for it: the head of the key's queue,
    /// or, where keys share parts, the heads of all.
    pub(crate) fn wake(&self, key: &[u8], is_compound: bool) {
        let mut queues = self.queues();
        if is_compound || queues.compound > 0 {
            drop(queues);
            return self.wake_all();
        }
        let waker = queues.by_key.get_mut(key).and_then(call_head);
        drop(queues);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Tells the heads of all queues.
    pub(crate) fn wake_all(&self) {
        let wakers: Vec<Waker> = self.queues().by_key.values_mut().filter_map(call_head).collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes to the end of the queue; `None` if the room is full. Who finds nobody before him may
    /// not have to wait at all, and is counted when he does.
    fn enter(&self, key: &KeyParts) -> Option<Place<'_>> {
        let mut queues = self.queues();
        let is_surplus = queues.len >= self.max;
        if is_surplus && queues.by_key.contains_key(&key.whole) {
            return None;
        }
        queues.len += 1;
        queues.compound += usize::from(key.is_compound());
        queues.next_id += 1;
        let id = queues.next_id;
        let queue = queues.by_key.entry(key.whole.clone()).or_default();
        queue.push_back(Waiter { id, waker: None, called: false });
        let (key, is_compound) = (key.whole.clone(), key.is_compound());
        Some(Place { room: self, key, is_compound, id, is_surplus })
    }
}

fn call_head(queue: &mut VecDeque<Waiter>) -> Option<Waker> {
    let head = queue.front_mut()?;
    head.called = true;
    head.waker.take()
}

/// A place in the queue of a key. Dropping it frees the place.
struct Place<'a> {
    room: &'a WaitingRoom,
    key: KeyBytes,
    is_compound: bool,
    id: u64,
    /// One more than the room has places for: welcome only if there is nothing to wait for.
    is_surplus: bool,
}

impl Place<'_> {
    fn is_head(&self) -> bool {
        let queues = self.room.queues();
        let head = queues.by_key.get(&self.key).and_then(VecDeque::front);
        head.is_some_and(|head| head.id == self.id)
    }

    /// Where this waiter stands; ids ascend.
    fn position(&self, queue: &VecDeque<Waiter>) -> Option<usize> {
        queue.binary_search_by_key(&self.id, |waiter| waiter.id).ok()
    }

    /// Ready when the waiter is called: it has become the head, or something was given back.
    fn poll_called(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queues = self.room.queues();
        let queue = queues.by_key.get_mut(&self.key);
        let waiter = queue.and_then(|queue| {
            let position = self.position(queue)?;
            queue.get_mut(position)
        });
        let Some(waiter) = waiter else { return Poll::Ready(()) };
        if std::mem::take(&mut waiter.called) {
            return Poll::Ready(());
        }
        let old = waiter.waker.replace(cx.waker().clone());
        // A waker is somebody else's code: it is dropped when nothing is locked.
        drop(queues);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.room.queues();
        let (mut waker, mut gone) = (None, None);
        if let Some(queue) = queues.by_key.get_mut(&self.key)
            && let Some(position) = self.position(queue)
        {
            gone = queue.remove(position);
            if position == 0 {
                waker = call_head(queue);
            }
            if queue.is_empty() {
                queues.by_key.remove(&self.key);
            }
            queues.len -= 1;
            queues.compound -= usize::from(self.is_compound);
        }
        drop(queues);
        drop(gone);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits until a cost is admitted, then takes it.
pub(crate) async fn until_ready<S: Store, C: Clock>(
    shared: &Shared<S, C>,
    key: KeyParts,
    cost: u64,
    most: Option<Duration>,
) -> Result<Asked, WaitError<S::Error>> {
    let deadline = most.map_or(Timestamp::MAX, |most| shared.clock.now() + most);
    let holder = shared.holders.next();
    let too_many = || WaitError::TooManyWaiters { max: shared.waiting.max };
    if let Some(decision) = shared.never(cost) {
        return Err(WaitError::Never(decision));
    }
    let place = shared.waiting.enter(&key).ok_or_else(too_many)?;
    let mut has_told = false;
    wait_for_turn(shared, &place, &key, cost, deadline).await?;
    loop {
        let asked = shared.ask(&key, Op::Check, cost, holder).await.map_err(WaitError::Store)?;
        let decision = asked.decisions.overall;
        if decision.allowed {
            drop(place);
            return hold(shared, &key, asked, deadline).await;
        }
        if place.is_surplus {
            return Err(too_many());
        }
        let now = shared.clock.now();
        // Permits come back before their leases end; everything else comes when it comes.
        let at_best = match asked.sure {
            Retry::After(wait) => now + wait,
            // The store is full, and nobody announces when it no longer is.
            Retry::Unknown => (now + FULL_STORE_RETRY).min(deadline),
            Retry::Now | Retry::Never => now,
        };
        if now >= deadline || at_best > deadline {
            return Err(WaitError::TooLong(decision));
        }
        let ready = match decision.retry {
            Retry::Never => return Err(WaitError::Never(decision)),
            Retry::Unknown if asked.sure == Retry::Unknown => at_best,
            // Somebody has to give back a permit, and will say so.
            Retry::Unknown => deadline,
            Retry::Now => now,
            Retry::After(wait) => now + wait,
        };
        let ready = match shared.store.waits() && decision.retry != asked.sure {
            true => ready.min((now + SHARED_STORE_RETRY).max(at_best)),
            false => ready,
        };
        if let (Some(observer), false) = (&shared.observer, has_told) {
            let known = decision.retry != Retry::Unknown;
            observer.waiting(known.then(|| ready.since(now)));
            has_told = true;
        }
        sleep_or_called(shared, &place, (ready + jitter(shared.jitter)).min(deadline)).await;
    }
}

/// Waits to become the head of the queue.
async fn wait_for_turn<S: Store, C: Clock>(
    shared: &Shared<S, C>,
    place: &Place<'_>,
    key: &KeyParts,
    cost: u64,
    deadline: Timestamp,
) -> Result<(), WaitError<S::Error>> {
    while !place.is_head() {
        sleep_or_called(shared, place, deadline).await;
        if !place.is_head() && shared.clock.now() >= deadline {
            let asked = shared.ask(key, Op::Peek, cost, 0).await.map_err(WaitError::Store)?;
            return Err(WaitError::TooLong(asked.decisions.overall));
        }
    }
    Ok(())
}

/// Holds what a shaper has admitted until its moment; gives it back if that is too late.
async fn hold<S: Store, C: Clock>(
    shared: &Shared<S, C>,
    key: &KeyParts,
    asked: Asked,
    deadline: Timestamp,
) -> Result<Asked, WaitError<S::Error>> {
    let delay = asked.decisions.overall.delay;
    if delay.is_zero() {
        return Ok(asked);
    }
    let mut held = Returning { shared, key, asked: Some(asked) };
    let ready = shared.clock.now() + delay;
    if ready > deadline {
        // It was admitted for later than it may be; as an answer that is a refusal.
        let late = Retry::After(ready.since(deadline));
        let decision = held.asked.as_ref().map(|asked| asked.decisions.overall);
        let decision = decision.unwrap_or(Decision::without_state(false, 0));
        return Err(WaitError::TooLong(Decision { allowed: false, retry: late, ..decision }));
    }
    while shared.clock.now() < ready {
        shared.clock.sleep_until(ready).await;
    }
    held.asked.take().ok_or(WaitError::TooManyWaiters { max: 0 })
}

/// Something admitted that goes back if nobody takes it over: its waiter was dropped, or late.
struct Returning<'a, S: Store, C: Clock> {
    shared: &'a Shared<S, C>,
    key: &'a KeyParts,
    asked: Option<Asked>,
}

impl<S: Store, C: Clock> Drop for Returning<'_, S, C> {
    fn drop(&mut self) {
        if let Some(holding) = self.asked.take().and_then(|asked| asked.holding) {
            self.shared.give_back(holding, 0, self.key);
        }
    }
}

/// Sleeps until the moment, or until called earlier.
async fn sleep_or_called<S: Store, C: Clock>(
    shared: &Shared<S, C>,
    place: &Place<'_>,
    until: Timestamp,
) {
    let mut sleep = pin!(shared.clock.sleep_until(until));
    poll_fn(|cx| match place.poll_called(cx) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => sleep.as_mut().poll(cx),
    })
    .await;
}

fn jitter(most: Duration) -> Duration {
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    if most == 0 {
        return Duration::ZERO;
    }
    // Without random numbers there is no jitter, which is only less good.
    let random = getrandom::u64().unwrap_or(0);
    Duration::from_nanos(((u128::from(random) * u128::from(most)) >> 64) as u64)
}

/// Runs a future on this thread, which sleeps while it waits.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}
