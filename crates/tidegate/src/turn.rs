//! Holding a request until its turn: what becomes of it when a limit shapes.

mod going;
mod room;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_core::{AlgorithmName, Limit, Timestamp};

pub use self::going::Going;
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
/// Requests of one key are let go in the order in which they were admitted. What they do then takes one
/// longer than another; who can tell when that is done keeps the order [until then](Self::in_order).
///
/// One that is dropped while it waits frees its place: those behind it in this process move up, and what
/// it took of other limits is given back. It needs no particular runtime.
#[must_use = "a turn that is dropped is given up"]
pub struct Turn {
    waiting: Pin<Box<dyn Future<Output = (Held, Going)> + Send>>,
}

/// A [`Turn`] whose request keeps [before](Going) those that are let go after it.
#[must_use = "a turn that is dropped is given up"]
#[derive(Debug)]
pub struct InOrder(Turn);

impl Turn {
    /// The turn of a request that has slots; `held` is the rest of what it took. If too many wait
    /// already there is no turn, and all that it took is returned.
    pub(crate) fn new<C: Clock>(
        room: Arc<Room>,
        clock: C,
        slots: Vec<(Timestamp, Part)>,
        mut held: Held,
    ) -> Result<Self, Held> {
        match room.enter(slots) {
            Ok(waiter) => {
                let place = Place { room, waiter, held: Some(held) };
                Ok(Self { waiting: Box::pin(wait(place, clock)) })
            }
            Err(parts) => {
                held.put(parts);
                Err(held)
            }
        }
    }

    /// The same for somebody who can tell when the request has gone on, such as when it has been sent:
    /// those behind it can then wait for that, and not only for their own turns.
    pub fn in_order(self) -> InOrder {
        InOrder(self)
    }
}

impl Future for Turn {
    type Output = Held;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Held> {
        // Nobody would say when it has gone on: so it has.
        self.waiting.as_mut().poll(context).map(|(held, _going)| held)
    }
}

impl Future for InOrder {
    type Output = (Held, Going);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(Held, Going)> {
        self.0.waiting.as_mut().poll(context)
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

async fn wait<C: Clock>(mut place: Place, clock: C) -> (Held, Going) {
    loop {
        match place.room.standing(place.waiter, clock.now()) {
            Standing::Due => match place.go() {
                Some(gone) => return gone,
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

    fn go(&mut self) -> Option<(Held, Going)> {
        let (parts, number) = self.room.go(self.waiter)?;
        let going = Going::new(Arc::clone(&self.room), number);
        let mut held = self.held.take()?;
        held.put(parts);
        Some((held, going))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Keep, Limiter, ManualClock, Rate};

    #[test]
    fn nothing_is_left_of_those_who_have_gone_on_or_away() {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().limit(Limit::leaky_queue(Rate::per_second(1), 9));
        let limiter = limiter.clock(clock.clone()).build().expect("a limit");
        let poll = |turn: &mut InOrder| {
            Pin::new(turn).poll(&mut Context::from_waker(std::task::Waker::noop()))
        };
        let admit = || {
            let asked = pin!(limiter.on("key").admit(Keep::Needed));
            match asked.poll(&mut Context::from_waker(std::task::Waker::noop())) {
                Poll::Ready(admission) => admission,
                Poll::Pending => unreachable!("memory answers at once"),
            }
        };
        let first = admit().held.and_then(|held| held.going());
        let mut turns: Vec<_> = (0..5).filter_map(|_| admit().turn).map(Turn::in_order).collect();
        clock.advance(Duration::from_secs(60));
        let going: Vec<_> = turns.iter_mut().take(3).map(poll).collect();
        assert!(first.is_some() && turns.len() == 5 && going.iter().all(Poll::is_ready));
        assert!(!limiter.shared.room.knows_nobody());
        drop(turns);
        drop(going);
        assert!(!limiter.shared.room.knows_nobody());
        drop(first);
        assert!(limiter.shared.room.knows_nobody());
    }
}
