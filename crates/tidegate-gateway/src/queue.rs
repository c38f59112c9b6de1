//! Requests that wait for their slot: first come, first served, for each key.
//!
//! The limit has given each request its slot when it admitted it. Who leaves before his slot frees
//! it, and those behind him move up by as much; nobody polls.

use std::collections::{HashMap, VecDeque};
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// Those who wait, by key.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Lines>,
    len_max: usize,
}

#[derive(Debug, Default)]
struct Lines {
    by_key: HashMap<Box<[u8]>, VecDeque<Waiter>>,
    len: usize,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    slot: Instant,
    waker: Option<Waker>,
}

impl Queue {
    /// A queue for so many, over all keys.
    pub(crate) fn new(len_max: usize) -> Self {
        Self { inner: Mutex::default(), len_max }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lines().len
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes to the end of the line of a key, for a slot that is so far off; `None` if there is no
    /// room.
    pub(crate) fn enter(self: &Arc<Self>, key: Box<[u8]>, delay: Duration) -> Option<Ticket> {
        let mut lines = self.lines();
        if lines.len >= self.len_max {
            return None;
        }
        lines.len += 1;
        lines.next_id += 1;
        let id = lines.next_id;
        let line = lines.by_key.entry(key.clone()).or_default();
        let slot = Instant::now() + delay;
        // The limit gives slots in order, but threads may come here in another.
        let at = line.partition_point(|waiter| waiter.slot <= slot);
        line.insert(at, Waiter { id, slot, waker: None });
        Some(Ticket { queue: Arc::clone(self), key, id, has_left: false })
    }
}

/// A place in a line. Dropped before its slot has come, it lets those behind move up.
#[derive(Debug)]
pub(crate) struct Ticket {
    queue: Arc<Queue>,
    key: Box<[u8]>,
    id: u64,
    has_left: bool,
}

impl Ticket {
    /// Waits for the slot, and for all who are before.
    pub(crate) async fn wait(&mut self) {
        loop {
            let (slot, is_head) = self.place();
            if is_head && Instant::now() >= slot {
                self.has_left = true;
                return;
            }
            let mut sleep = pin!(tokio::time::sleep_until(slot));
            poll_fn(|context| {
                let mut lines = self.queue.lines();
                let line = lines.by_key.get_mut(&self.key);
                let Some(line) = line else { return Poll::Ready(()) };
                let Some(at) = line.iter().position(|waiter| waiter.id == self.id) else {
                    return Poll::Ready(());
                };
                if line[at].slot != slot {
                    return Poll::Ready(());
                }
                line[at].waker = Some(context.waker().clone());
                drop(lines);
                match sleep.as_mut().poll(context) {
                    // Whoever is before has the same slot, and wakes us when he goes.
                    Poll::Ready(()) if at > 0 => Poll::Pending,
                    polled => polled,
                }
            })
            .await;
        }
    }

    fn place(&self) -> (Instant, bool) {
        let lines = self.queue.lines();
        let line = lines.by_key.get(&self.key);
        let found = line.and_then(|line| {
            let at = line.iter().position(|waiter| waiter.id == self.id)?;
            Some((line[at].slot, at == 0))
        });
        found.unwrap_or((Instant::now(), true))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut wakers: Vec<Waker> = Vec::new();
        let mut lines = self.queue.lines();
        let Some(line) = lines.by_key.get_mut(&self.key) else { return };
        let Some(at) = line.iter().position(|waiter| waiter.id == self.id) else { return };
        let gone = line.remove(at);
        if let (Some(gone), Some(next), false) = (gone, line.get(at), self.has_left) {
            // What he would have taken of the time, those behind him need not wait for.
            let gap = next.slot.saturating_duration_since(gone.slot);
            for waiter in line.iter_mut().skip(at) {
                waiter.slot -= gap;
                wakers.extend(waiter.waker.take());
            }
        } else if at == 0
            && let Some(head) = line.front_mut()
        {
            wakers.extend(head.waker.take());
        }
        if line.is_empty() {
            lines.by_key.remove(&self.key);
        }
        lines.len -= 1;
        drop(lines);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Box<[u8]> {
        Box::from(*b"k")
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_lets_the_others_move_up() {
        let queue = Arc::new(Queue::new(10));
        let began = Instant::now();
        let each = |n: u64| queue.enter(key(), Duration::from_millis(100 * n)).unwrap();
        let mut tickets: Vec<Ticket> = (1..=4).map(each).collect();
        drop(tickets.remove(1));
        let mut left = Vec::new();
        for mut ticket in tickets {
            ticket.wait().await;
            left.push(began.elapsed().as_millis());
        }
        assert_eq!(left, [100, 200, 300]);
        assert_eq!(queue.len(), 0);
        assert!(queue.lines().by_key.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_order_is_kept_also_where_slots_are_the_same() {
        let queue = Arc::new(Queue::new(10));
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for n in 0..5 {
            let mut ticket = queue.enter(key(), Duration::from_micros(10)).unwrap();
            let order = Arc::clone(&order);
            tasks.push(tokio::spawn(async move {
                ticket.wait().await;
                order.lock().unwrap().push(n);
            }));
        }
        // Woken in the wrong order, too.
        for task in tasks.into_iter().rev() {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_an_end_to_it() {
        let queue = Arc::new(Queue::new(1));
        let ticket = queue.enter(key(), Duration::from_secs(1)).unwrap();
        assert!(queue.enter(Box::from(*b"other"), Duration::from_secs(1)).is_none());
        drop(ticket);
        assert!(queue.enter(key(), Duration::from_secs(1)).is_some());
    }
}
