//! The room where those stand who have been given a slot: a line for each key of each limit.
//!
//! Slots stay where they are and people move: who leaves the line early lets those behind move up by
//! one slot each, and what becomes free is the last slot of the line, the only one that a store takes
//! back. Nobody is moved into a slot of another width, since what comes after it would come too early.
//!
//! Only who is at the head of a line has a timer. Everybody else sleeps until called.
//!
//! Who has been let go still has to be sent on, which may take one longer than another: it leads the way
//! until it has gone on, and those let go after it can tell that they are not first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;
use tidegate_core::Timestamp;

use crate::held::Part;

/// How many requests of a limiter are [held](crate::Turn) at once, in all lines together. Each of them
/// keeps a connection and some hundred bytes. One more is refused, and told to come back when its turn
/// would have been. Who [has been let go](crate::Going) in order counts until it has gone on; who finds no
/// room and need not wait goes on without being kept in order.
pub const HELD_MAX: usize = 100_000;

/// Those who wait for their slots.
#[derive(Default)]
pub(crate) struct Room {
    lines: Mutex<Lines>,
}

/// A limit by its address, and a key.
type Name = (usize, Box<[u8]>);

#[derive(Default)]
struct Lines {
    by_name: HashMap<Name, Line>,
    waiters: HashMap<u64, Waiter>,
    /// Those who have been let go and have not gone on yet.
    going: HashMap<u64, Waiter>,
    next: u64,
}

/// Slots, and as many people: the first has the first, and so on.
#[derive(Default)]
struct Line {
    slots: VecDeque<Slot>,
    people: VecDeque<u64>,
    /// How wide slots are, and how many are not.
    width: u64,
    others: usize,
    /// Those who have been let go and have not gone on yet, in the order in which they were: each has a
    /// higher number than those before it.
    going: VecDeque<u64>,
}

/// A moment to go at, and what was taken for it.
struct Slot {
    moment: Timestamp,
    part: Part,
}

impl Slot {
    fn width(&self) -> u64 {
        self.part.held.taken.cost
    }
}

impl Line {
    fn insert(&mut self, moment: Timestamp, waiter: u64, part: Part) {
        let slot = Slot { moment, part };
        if self.slots.is_empty() {
            self.width = slot.width();
        }
        self.others += usize::from(slot.width() != self.width);
        // Who was given a slot first may come second: the slots say who is before whom.
        let place = self.slots.partition_point(|slot| slot.moment <= moment);
        self.slots.insert(place, slot);
        self.people.insert(place, waiter);
    }

    /// Somebody is no longer before others.
    fn forget(&mut self, number: u64) {
        if let Ok(at) = self.going.binary_search(&number) {
            self.going.remove(at);
        }
    }

    fn is_empty(&self) -> bool {
        self.people.is_empty() && self.going.is_empty()
    }

    /// Where somebody stands first. Who comes later has a higher number, nearly always.
    fn position(&self, waiter: u64) -> Option<usize> {
        let is_it = |at: &usize| self.people.get(*at) == Some(&waiter);
        let at = self.people.partition_point(|it| *it < waiter);
        Some(at).filter(is_it).or_else(|| self.people.iter().position(|it| *it == waiter))
    }

    /// The last of somebody's slots.
    fn moment(&self, waiter: u64) -> Option<Timestamp> {
        let mut at = self.position(waiter)?;
        while self.people.get(at + 1) == Some(&waiter) {
            at += 1;
        }
        self.slots.get(at).map(|slot| slot.moment)
    }

    /// The slot that becomes free if the person at a place gives it up: the last that those behind can
    /// move up from.
    fn freed(&self, at: usize) -> usize {
        if self.others == 0 {
            return self.slots.len().saturating_sub(1);
        }
        let Some(width) = self.slots.get(at).map(Slot::width) else { return at };
        let same = self.slots.iter().skip(at).take_while(|slot| slot.width() == width);
        at + same.count().saturating_sub(1)
    }

    fn remove(&mut self, person: usize, slot: usize) -> Option<Part> {
        self.people.remove(person);
        let slot = self.slots.remove(slot)?;
        self.others -= usize::from(slot.width() != self.width);
        Some(slot.part)
    }
}

struct Waiter {
    /// The lines it stands in: one, unless several limits hold the request.
    names: Names,
    waker: Option<Waker>,
    /// Something has changed since it looked.
    called: bool,
}

type Names = SmallVec<[Name; 1]>;

/// What somebody who waits has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing: it may go.
    Due,
    /// A moment.
    Until(Timestamp),
    /// Those before it.
    Behind,
}

impl Room {
    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.lines().waiters.len()
    }

    /// Whether nothing is known of anybody.
    #[cfg(test)]
    pub(crate) fn knows_nobody(&self) -> bool {
        let Lines { by_name, waiters, going, .. } = &*self.lines();
        by_name.is_empty() && waiters.is_empty() && going.is_empty()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes its place in the lines of its slots; the slots are given back if there is no room.
    pub(crate) fn enter(&self, slots: Vec<(Timestamp, Part)>) -> Result<u64, Vec<Part>> {
        let mut lines = self.lines();
        if !lines.has_room() {
            return Err(slots.into_iter().map(|(_, part)| part).collect());
        }
        lines.next += 1;
        let waiter = lines.next;
        let mut names = Names::new();
        for (moment, part) in slots {
            let name = name_of(&part);
            lines.by_name.entry(name.clone()).or_default().insert(moment, waiter, part);
            names.push(name);
        }
        lines.waiters.insert(waiter, Waiter { names, waker: None, called: false });
        Ok(waiter)
    }

    /// What somebody has to wait for.
    pub(crate) fn standing(&self, waiter: u64, now: Timestamp) -> Standing {
        let lines = self.lines();
        let due = lines.due(waiter);
        match () {
            () if lines.is_behind(waiter, due) => Standing::Behind,
            () if due > now => Standing::Until(due),
            () => Standing::Due,
        }
    }

    /// Ready once something has changed for somebody.
    pub(crate) fn poll_called(&self, waiter: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut lines = self.lines();
        let Some(waiter) = lines.waiters.get_mut(&waiter) else { return Poll::Ready(()) };
        if std::mem::take(&mut waiter.called) {
            return Poll::Ready(());
        }
        let old = waiter.waker.replace(context.waker().clone());
        // A waker is somebody else's code: it is dropped when nothing is locked.
        drop(lines);
        drop(old);
        Poll::Pending
    }

    /// Whether somebody waits in a line of these parts.
    pub(crate) fn is_awaited<'a>(&self, mut parts: impl Iterator<Item = &'a Part>) -> bool {
        let lines = self.lines();
        let is_awaited =
            |name| lines.by_name.get(&name).is_some_and(|line| !line.people.is_empty());
        !lines.waiters.is_empty() && parts.any(|part| is_awaited(name_of(part)))
    }

    /// Goes, and has its slots. From now on it leads those who are let go after it, under another number.
    pub(crate) fn go(&self, waiter: u64) -> Option<(Vec<Part>, u64)> {
        let mut lines = self.lines();
        let (mut gone, parts) = lines.take_out(waiter, |_, at| at)?;
        let number = lines.lead(&gone.names);
        let wakers = lines.call_heads(&gone.names);
        let old = gone.waker.take();
        lines.going.insert(number, gone);
        drop(lines);
        drop(old);
        wakers.into_iter().for_each(Waker::wake);
        Some((parts, number))
    }

    /// Gives its place up: those behind move up. Has the slots that became free.
    pub(crate) fn give_up(&self, waiter: u64) -> Vec<Part> {
        let mut lines = self.lines();
        let Some((gone, parts)) = lines.take_out(waiter, Line::freed) else { return Vec::new() };
        let wakers = lines.call_heads(&gone.names);
        drop(lines);
        drop(gone);
        wakers.into_iter().for_each(Waker::wake);
        parts
    }

    /// Leads those who are let go from now on, without having waited; `None` if there are too many.
    pub(crate) fn pass<'a>(&self, parts: impl Iterator<Item = &'a Part>) -> Option<u64> {
        let names: Names = parts.map(name_of).collect();
        let mut lines = self.lines();
        if !lines.has_room() {
            return None;
        }
        let number = lines.lead(&names);
        lines.going.insert(number, Waiter { names, waker: None, called: false });
        Some(number)
    }

    /// Whether all who were let go before somebody have gone on.
    pub(crate) fn is_first(&self, number: u64) -> bool {
        self.lines().is_first(number)
    }

    /// Ready once [that](Self::is_first) is so.
    pub(crate) fn poll_first(&self, number: u64, context: &mut Context<'_>) -> Poll<()> {
        let mut lines = self.lines();
        if lines.is_first(number) {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let old = lines.going.get_mut(&number).and_then(|going| going.waker.replace(waker));
        drop(lines);
        drop(old);
        Poll::Pending
    }

    /// Has gone on: the next one is first.
    pub(crate) fn gone_on(&self, number: u64) {
        let mut lines = self.lines();
        let Some(gone) = lines.going.remove(&number) else { return };
        let wakers = lines.call_next(number, &gone.names);
        drop(lines);
        drop(gone);
        wakers.into_iter().for_each(Waker::wake);
    }
}

type Wakers = SmallVec<[Waker; 2]>;

impl Lines {
    /// Whether there is room for somebody else.
    fn has_room(&self) -> bool {
        self.waiters.len() + self.going.len() < HELD_MAX
    }

    /// Takes somebody out of all lines; `slot` says which slot goes with a place.
    fn take_out(
        &mut self,
        waiter: u64,
        slot: impl Fn(&Line, usize) -> usize,
    ) -> Option<(Waiter, Vec<Part>)> {
        let gone = self.waiters.remove(&waiter)?;
        let mut parts = Vec::with_capacity(gone.names.len());
        for name in &gone.names {
            let Some(line) = self.by_name.get_mut(name) else { continue };
            if let Some(at) = line.position(waiter) {
                let slot = slot(line, at);
                parts.extend(line.remove(at, slot));
            }
        }
        Some((gone, parts))
    }

    /// The number of somebody who is let go from some lines, in front of those who are let go later.
    fn lead(&mut self, names: &Names) -> u64 {
        self.next += 1;
        for name in names {
            let line = match self.by_name.get_mut(name) {
                Some(line) => line,
                None => self.by_name.entry(name.clone()).or_default(),
            };
            // Two of its slots may be of one line.
            if line.going.back() != Some(&self.next) {
                line.going.push_back(self.next);
            }
        }
        self.next
    }

    /// Whether all who were let go before somebody have gone on.
    fn is_first(&self, number: u64) -> bool {
        let Some(going) = self.going.get(&number) else { return true };
        let mut lines = going.names.iter().filter_map(|name| self.by_name.get(name));
        lines.all(|line| line.going.front() == Some(&number))
    }

    /// When somebody may go: the last of its slots.
    fn due(&self, waiter: u64) -> Timestamp {
        let names = self.waiters.get(&waiter).map_or(&[][..], |waiter| &waiter.names);
        let moments = names.iter().filter_map(|name| self.by_name.get(name)?.moment(waiter));
        moments.max().unwrap_or(Timestamp::from_nanos(0))
    }

    /// Whether somebody in one of its lines goes before it.
    fn is_behind(&self, waiter: u64, due: Timestamp) -> bool {
        let Some(me) = self.waiters.get(&waiter) else { return false };
        let lines = me.names.iter().filter_map(|name| self.by_name.get(name));
        let mut before = lines.flat_map(|line| line.people.iter().take_while(|it| **it != waiter));
        before.any(|other| match self.stands_once(*other) {
            true => true,
            // Another limit may hold it for longer: whom only this one holds goes first.
            false => (self.due(*other), *other) < (due, waiter),
        })
    }

    fn stands_once(&self, waiter: u64) -> bool {
        self.waiters.get(&waiter).is_none_or(|waiter| waiter.names.len() == 1)
    }

    /// Calls those who may now be the first to go of some lines, and drops those that are empty.
    fn call_heads(&mut self, names: &Names) -> Wakers {
        let mut wakers = Wakers::new();
        for name in names {
            let Some(line) = self.by_name.get(name) else { continue };
            if line.is_empty() {
                self.by_name.remove(name);
                continue;
            }
            for waiter in &line.people {
                let Some(waiter) = self.waiters.get_mut(waiter) else { continue };
                waiter.called = true;
                wakers.extend(waiter.waker.take());
                if waiter.names.len() == 1 {
                    break;
                }
            }
        }
        wakers
    }

    /// Calls those who come behind somebody who has gone on, and drops lines that are empty.
    fn call_next(&mut self, number: u64, names: &Names) -> Wakers {
        let mut wakers = Wakers::new();
        for name in names {
            let Some(line) = self.by_name.get_mut(name) else { continue };
            line.forget(number);
            if let Some(next) = line.going.front() {
                wakers.extend(self.going.get_mut(next).and_then(|next| next.waker.take()));
            } else if line.is_empty() {
                self.by_name.remove(name);
            }
        }
        wakers
    }
}

fn name_of(part: &Part) -> Name {
    (std::sync::Arc::as_ptr(&part.held.limit).addr(), part.held.key.clone())
}
