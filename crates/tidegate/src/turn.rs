//! Holding a request until its turn: what becomes of it when a limit shapes.

mod room;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_core::{AlgorithmName, Limit, Timestamp};

pub use self::room::HELD_MAX;
pub(crate) use self::room::Room;
use self::room::Standing;
use crate::clock::Clock;
use crate::held::{Held, Part};

/// Whether a limit tells those whom it admits to wait.
pub(crate) fn shapes(limit: &Limit) -> bool {
    limit.spec().queue.is_some() || limit.algorithm() == AlgorithmName::WarmUp
}

/// The turn of a request that was [admitted](crate::Admission) for later: a future that is ready when
/// the request may go on, with what it has taken.
///
/// Requests of one key go in the order in which they were admitted. One that is dropped while it waits
/// frees its place: those behind it in this process move up, and what it took of other limits is given
/// back. It needs no particular runtime.
#[must_use = "a turn that is dropped is given up"]
pub struct Turn {
    waiting: Pin<Box<dyn Future<Output = Held> + Send>>,
}

impl Turn {
    /// The turn of a request that has slots; `held` is the rest of what it took. If too many wait
    /// already everything is given back, and there is no turn.
    pub(crate) fn new<C: Clock>(
        room: Arc<Room>,
        clock: C,
        slots: Vec<(Timestamp, Part)>,
        mut held: Held,
    ) -> Option<Self> {
        match room.enter(slots) {
            Ok(waiter) => {
                let place = Place { room, waiter, held: Some(held) };
                Some(Self { waiting: Box::pin(wait(place, clock)) })
            }
            Err(parts) => {
                held.put(parts);
                held.refund();
                None
            }
        }
    }
}

impl Future for Turn {
    type Output = Held;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Held> {
        self.waiting.as_mut().poll(context)
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turn")
    }
}

/// A place among those who wait.
struct Place {
    room: Arc<Room>,
    waiter: u64,
    /// `None` once it is over.
    held: Option<Held>,
}

async fn wait<C: Clock>(mut place: Place, clock: C) -> Held {
    loop {
        match place.room.standing(place.waiter, clock.now()) {
            Standing::Due => match place.go() {
                Some(held) => return held,
                // It has been taken out already, which happens once.
                None => std::future::pending().await,
            },
            Standing::Until(moment) => place.sleep(clock.sleep_until(moment)).await,
            Standing::Behind => place.sleep(std::future::pending()).await,
        }
    }
}

impl Place {
    /// Sleeps until called, or until `timer` is over.
    async fn sleep(&self, timer: impl Future<Output = ()>) {
        let mut timer = pin!(timer);
        poll_fn(|context| match self.room.poll_called(self.waiter, context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => timer.as_mut().poll(context),
        })
        .await;
    }

    fn go(&mut self) -> Option<Held> {
        let mut held = self.held.take()?;
        held.put(self.room.go(self.waiter));
        Some(held)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut held) = self.held.take() {
            let free = self.room.give_up(self.waiter);
            held.give_back(free, 0);
            held.refund();
        }
    }
}
