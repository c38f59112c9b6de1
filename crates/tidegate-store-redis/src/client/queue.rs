//! The commands of one connection: what is to be written, in which order replies are due, and who
//! waits for them.

use std::collections::VecDeque;
use std::task::Waker;

use tokio::time::Instant;

use super::{ClientError, Reply};

/// A place for a reply that nobody waits for.
const NOBODY: u32 = u32::MAX;
/// A place for the reply to the script's being loaded.
const SCRIPT: u32 = u32::MAX - 1;
/// Buffers that have grown beyond this are given back when they are empty.
const KEEP_LEN_MAX: usize = 256 << 10;

/// Commands that are not written yet, and those that are and have no reply.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// What has not been handed to the writer.
    out: Vec<u8>,
    /// In the order of the replies.
    places: VecDeque<Place>,
    /// So many of the first places are handed to the writer.
    sent: usize,
    /// So many of the first places have missed their deadlines.
    missed: usize,
    /// Those who wait, or have yet to take what they waited for.
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place {
    slot: u32,
    /// How many bytes of `out` it takes, as long as it is not sent.
    len: usize,
    deadline: Instant,
}

#[derive(Debug)]
enum Slot {
    Free,
    Waiting(Option<Waker>),
    /// Nobody waits any more, but the place is still due.
    Left,
    Done(Result<Reply, ClientError>),
}

/// What became of a batch of replies.
#[derive(Debug, Default)]
pub(super) struct Delivered {
    /// So many places were due.
    pub(super) count: usize,
    /// So many came in time.
    pub(super) in_time: usize,
    /// What the script's loading was replied with.
    pub(super) script: Option<Result<Reply, ClientError>>,
    /// Replies that answer nothing.
    pub(super) unasked: bool,
}

impl Queue {
    /// How many replies are due.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// How many of those are sent.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Adds a command that somebody waits for, by the number that is returned.
    pub(super) fn push(&mut self, bytes: &[u8], deadline: Instant) -> u32 {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot::Free);
                // As many as may be in flight, which is far less.
                u32::try_from(self.slots.len() - 1).unwrap_or(NOBODY)
            }
        };
        self.set(slot, Slot::Waiting(None));
        self.place(slot, bytes, deadline);
        slot
    }

    /// Adds a command whose reply is of no interest.
    pub(super) fn push_for_nobody(&mut self, bytes: &[u8], deadline: Instant) {
        self.place(NOBODY, bytes, deadline);
    }

    /// Adds the loading of the script.
    pub(super) fn push_script(&mut self, bytes: &[u8], deadline: Instant) {
        self.place(SCRIPT, bytes, deadline);
    }

    fn place(&mut self, slot: u32, bytes: &[u8], deadline: Instant) {
        self.out.extend_from_slice(bytes);
        self.places.push_back(Place { slot, len: bytes.len(), deadline });
    }

    /// Hands over all that is to be written, for an empty buffer. How many commands that is.
    pub(super) fn take_output(&mut self, buffer: &mut Vec<u8>) -> usize {
        debug_assert!(buffer.is_empty());
        if buffer.capacity() > KEEP_LEN_MAX {
            *buffer = Vec::new();
        }
        std::mem::swap(&mut self.out, buffer);
        let count = self.places.len() - self.sent;
        self.sent = self.places.len();
        count
    }

    /// Gives replies to those who wait; whom to wake is added to `wakers`.
    pub(super) fn deliver(
        &mut self,
        replies: impl Iterator<Item = Result<Reply, ClientError>>,
        wakers: &mut Vec<Waker>,
    ) -> Delivered {
        let mut delivered = Delivered::default();
        for reply in replies {
            if self.sent == 0 {
                delivered.unasked = true;
                break;
            }
            let Some(place) = self.places.pop_front() else { break };
            self.sent -= 1;
            delivered.count += 1;
            let late = self.missed > 0;
            self.missed = self.missed.saturating_sub(1);
            match place.slot {
                NOBODY => {}
                SCRIPT => delivered.script = Some(reply),
                slot => {
                    delivered.in_time += usize::from(!late && reply.is_ok());
                    self.finish(slot, reply, wakers);
                }
            }
        }
        delivered
    }

    /// Answers those whose time is up. What was not sent is taken out; what was keeps its place.
    /// How many they are.
    pub(super) fn expire(&mut self, now: Instant, wakers: &mut Vec<Waker>) -> usize {
        let mut count = 0;
        while let Some(place) = self.places.get_mut(self.missed)
            && self.missed < self.sent
            && place.deadline <= now
        {
            // The script is waited for by the commands behind it.
            let slot = match place.slot {
                SCRIPT => SCRIPT,
                _ => std::mem::replace(&mut place.slot, NOBODY),
            };
            self.missed += 1;
            count += usize::from(slot < SCRIPT);
            self.finish(slot, Err(ClientError::Deadline), wakers);
        }
        if self.missed == self.sent {
            count += self.expire_unsent(now, wakers);
        }
        count
    }

    fn expire_unsent(&mut self, now: Instant, wakers: &mut Vec<Waker>) -> usize {
        let unsent = self.places.range(self.sent..);
        let over = unsent.take_while(|place| place.deadline <= now).count();
        let (mut len, mut count) = (0, 0);
        for at in self.sent..self.sent + over {
            let Some(&Place { slot, len: bytes, .. }) = self.places.get(at) else { break };
            len += bytes;
            count += usize::from(slot < SCRIPT);
            self.finish(slot, Err(ClientError::Deadline), wakers);
        }
        self.places.drain(self.sent..self.sent + over);
        self.out.drain(..len.min(self.out.len()));
        count
    }

    /// Whether a reply is due that should have come by now.
    pub(super) fn is_behind(&self) -> bool {
        self.missed > 0
    }

    /// When the next one misses its deadline, if nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.places.get(self.missed).map(|place| place.deadline)
    }

    /// Ends all: nothing that was sent gets a reply, and nothing else is sent.
    pub(super) fn fail_all(
        &mut self,
        sent: &ClientError,
        unsent: &ClientError,
        wakers: &mut Vec<Waker>,
    ) {
        let first_unsent = self.sent;
        for (at, place) in std::mem::take(&mut self.places).into_iter().enumerate() {
            let error = if at < first_unsent { sent } else { unsent };
            self.finish(place.slot, Err(error.clone()), wakers);
        }
        (self.sent, self.missed) = (0, 0);
        self.out = Vec::new();
    }

    fn finish(&mut self, slot: u32, reply: Result<Reply, ClientError>, wakers: &mut Vec<Waker>) {
        let Some(found) = self.slots.get_mut(slot as usize) else { return };
        match found {
            Slot::Waiting(waker) => {
                wakers.extend(waker.take());
                *found = Slot::Done(reply);
            }
            Slot::Left => self.release(slot),
            Slot::Free | Slot::Done(_) => {}
        }
    }

    /// What `slot` waits for, if it is there; otherwise whom to wake is remembered.
    pub(super) fn poll(&mut self, slot: u32, waker: &Waker) -> Option<Result<Reply, ClientError>> {
        match self.slots.get_mut(slot as usize) {
            Some(Slot::Waiting(known)) => {
                match known {
                    Some(known) => known.clone_from(waker),
                    None => *known = Some(waker.clone()),
                }
                None
            }
            Some(found @ Slot::Done(_)) => {
                let done = std::mem::replace(found, Slot::Free);
                self.free.push(slot);
                match done {
                    Slot::Done(reply) => Some(reply),
                    _ => None,
                }
            }
            _ => Some(Err(ClientError::Down)),
        }
    }

    /// Nobody waits for `slot` any more.
    pub(super) fn leave(&mut self, slot: u32) {
        match self.slots.get_mut(slot as usize) {
            Some(found @ Slot::Waiting(_)) => *found = Slot::Left,
            Some(Slot::Done(_)) => self.release(slot),
            _ => {}
        }
    }

    fn release(&mut self, slot: u32) {
        self.set(slot, Slot::Free);
        self.free.push(slot);
    }

    fn set(&mut self, slot: u32, to: Slot) {
        if let Some(found) = self.slots.get_mut(slot as usize) {
            *found = to;
        }
    }
}
