//! One shard of the memory store: tables by size of state, and how a state gets in and out.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Ask, Limit, NARROW_HORIZON, State, Timestamp};

use super::table::{Slot, Table};
use super::value::Value;
use crate::fingerprint::Fingerprint;
use crate::registry::{Registered, Registry};

/// Everything behind one lock.
///
/// States live in the table of their size. Narrow buckets count from `origin`, which is moved when
/// the clock gets too far from it; all others keep absolute times.
///
/// In this order, so that what every check touches is on the cache line of the lock.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Shard {
    origin: Timestamp,
    pub(crate) narrow: Table<[u64; 1]>,
    pairs: Table<[u64; 2]>,
    triples: Table<[u64; 3]>,
    quads: Table<[u64; 4]>,
    lists: Table<Option<State>>,
    /// Says where the next search for somebody to evict starts.
    random: u64,
    /// When all tables were last swept because the bound was met, and how often it was met since.
    swept_at: Timestamp,
    pressed: usize,
    pub(crate) counts: Counts,
}

/// What happened at the bound on keys.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) evicted_spent: u64,
    pub(crate) evicted_live: u64,
    pub(crate) denied: u64,
    pub(crate) allowed: u64,
}

/// How many keys are looked at to find somebody to evict.
const SAMPLE: usize = 16;
/// A linear congruential generator of full period; its upper half is random enough to sample by.
const LCG: (u64, u64) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
/// How often at the most a shard that is full is swept as a whole.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How far before the first moment seen the origin is set, so that a clock may go back.
const MARGIN: u64 = NARROW_HORIZON / 4;

/// What it takes to make room.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) keys_max: usize,
    pub(crate) evicts: bool,
}

/// There is no room for another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// One state of a shard with all that is known about it.
pub(crate) struct Entry<'a> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) limit: &'a Registered,
    pub(crate) state: &'a State,
}

/// Runs a block with the table that holds the states of a limit.
macro_rules! with_table {
    ($shard:expr, $limit:expr, |$table:ident| $block:expr) => {{
        let limit: &Limit = $limit;
        if limit.as_narrow().is_some() {
            let $table = &mut $shard.narrow;
            $block
        } else {
            match limit.state_words() {
                Some(0..=2) => {
                    let $table = &mut $shard.pairs;
                    $block
                }
                Some(3) => {
                    let $table = &mut $shard.triples;
                    $block
                }
                Some(_) => {
                    let $table = &mut $shard.quads;
                    $block
                }
                None => {
                    let $table = &mut $shard.lists;
                    $block
                }
            }
        }
    }};
}

/// Runs a block with each table in turn.
macro_rules! for_each_table {
    ($shard:expr, |$table:ident| $block:expr) => {{
        {
            let $table = &mut $shard.narrow;
            $block
        }
        {
            let $table = &mut $shard.pairs;
            $block
        }
        {
            let $table = &mut $shard.triples;
            $block
        }
        {
            let $table = &mut $shard.quads;
            $block
        }
        {
            let $table = &mut $shard.lists;
            $block
        }
    }};
}

impl Shard {
    pub(crate) fn len(&self) -> usize {
        self.narrow.len()
            + self.pairs.len()
            + self.triples.len()
            + self.quads.len()
            + self.lists.len()
    }

    /// Bytes in tables; the lists of logs and permits come on top.
    pub(crate) fn bytes(&self) -> usize {
        self.narrow.bytes()
            + self.pairs.bytes()
            + self.triples.bytes()
            + self.quads.bytes()
            + self.lists.bytes()
    }

    /// Nanoseconds since the origin, which moves if it is too far away.
    #[inline(always)]
    pub(crate) fn since_origin(&mut self, now: Timestamp, registry: &Registry) -> u64 {
        let since = now.as_nanos().wrapping_sub(self.origin.as_nanos());
        // One comparison for both ends: before the origin, the difference wraps around.
        if since <= NARROW_HORIZON { since } else { self.move_origin(now, registry) }
    }

    #[cold]
    fn move_origin(&mut self, now: Timestamp, registry: &Registry) -> u64 {
        // What is spent by now would not be told from what lies just before the new origin.
        self.narrow.rebuild(in_use(self.origin, &Ask::at(now), registry));
        // Far enough from the end of time that what lies before an origin never seems to be after.
        let origin = now.as_nanos().saturating_sub(MARGIN).min(u64::MAX - NARROW_HORIZON);
        let origin = Timestamp::from_nanos(origin);
        let from = std::mem::replace(&mut self.origin, origin);
        let mut limits = Limits::new(registry);
        for slot in self.narrow.iter_mut() {
            if let Some(narrow) = limits.get(slot.limit).and_then(|known| known.limit().as_narrow())
            {
                slot.value = [narrow.rebase(slot.value[0], from, origin, now)];
            }
        }
        now.as_nanos() - origin.as_nanos()
    }

    /// Whether another key, after `coming` others, would be refused a place.
    pub(crate) fn is_closed(&mut self, ask: &Ask, room: Room<'_>, coming: usize) -> bool {
        let room = Room { keys_max: room.keys_max.saturating_sub(coming), ..room };
        self.make_room(ask, room).is_err()
    }

    /// Whether the key is known under this limit.
    pub(crate) fn knows(&mut self, fingerprint: Fingerprint, limit: &Registered) -> bool {
        with_table!(self, limit.limit(), |table| table.find(fingerprint).is_some())
    }

    /// Lends the state of a key.
    pub(crate) fn look<R>(
        &mut self,
        fingerprint: Fingerprint,
        limit: &Registered,
        look: impl FnOnce(Option<&State>) -> R,
    ) -> R {
        let (core, origin) = (limit.limit(), self.origin);
        with_table!(self, core, |table| match table.find(fingerprint) {
            Some(position) => table.at(position).value.look(core, origin, look),
            None => look(None),
        })
    }

    /// Lets `change` work on the state of a key, and keeps what it leaves.
    ///
    /// With what `change` answers comes whether its work was kept: a new key may find no room.
    pub(crate) fn change<R>(
        &mut self,
        fingerprint: Fingerprint,
        limit: &Registered,
        ask: &Ask,
        room: Room<'_>,
        change: impl FnOnce(&mut Option<State>) -> R,
    ) -> (R, Result<(), Full>) {
        let (core, origin) = (limit.limit(), self.origin);
        let result;
        let state = with_table!(self, core, |table| match table.find(fingerprint) {
            Some(position) => {
                let mut state = table.at_mut(position).value.take_out(core, origin);
                result = change(&mut state);
                match state {
                    Some(state) => table.at_mut(position).value.put_in(state, core, origin),
                    None => drop(table.remove(position)),
                }
                return (result, Ok(()));
            }
            None => {
                let mut state = None;
                result = change(&mut state);
                state
            }
        });
        let kept = match state {
            Some(state) => self.insert(fingerprint, limit, state, ask, room),
            None => Ok(()),
        };
        (result, kept)
    }

    /// Keeps the state of a key that is not there yet.
    pub(crate) fn insert(
        &mut self,
        fingerprint: Fingerprint,
        limit: &Registered,
        state: State,
        ask: &Ask,
        room: Room<'_>,
    ) -> Result<(), Full> {
        self.make_room(ask, room)?;
        let (core, origin) = (limit.limit(), self.origin);
        with_table!(self, core, |table| {
            make_place(table, origin, ask, room.registry);
            let slot = Slot::new(fingerprint, limit.index, Default::default());
            let position = table.insert(slot);
            table.at_mut(position).value.put_in(state, core, origin);
        });
        Ok(())
    }

    /// The same for a narrow bucket, whose state needs no conversion.
    pub(crate) fn insert_narrow(
        &mut self,
        fingerprint: Fingerprint,
        limit: &Registered,
        state: u64,
        ask: &Ask,
        room: Room<'_>,
    ) -> Result<(), Full> {
        self.make_room(ask, room)?;
        make_place(&mut self.narrow, self.origin, ask, room.registry);
        self.narrow.insert(Slot::new(fingerprint, limit.index, [state]));
        Ok(())
    }

    /// Forgets a key under every limit of one id.
    pub(crate) fn forget(&mut self, fingerprint: Fingerprint) {
        for_each_table!(self, |table| if let Some(position) = table.find(fingerprint) {
            table.remove(position);
        });
    }

    /// Carries a key over that was counted under an earlier limit of the same id.
    #[cold]
    pub(crate) fn adopt(
        &mut self,
        fingerprint: Fingerprint,
        limit: &Registered,
        ask: &Ask,
        room: Room<'_>,
    ) {
        let origin = self.origin;
        let mut found = None;
        for_each_table!(self, |table| {
            if let Some(position) = table.find(fingerprint)
                && table.at(position).limit != limit.index
            {
                let mut slot = table.remove(position);
                if let Some(old) = room.registry.get(slot.limit) {
                    let state = slot.value.take_out(old.limit(), origin);
                    found = state.map(|state| (old, state));
                }
            }
        });
        let Some((old, state)) = found else { return };
        let inherited = limit.limit().inherit(old.limit(), &state, ask, limit.inherit());
        if let Some(inherited) = inherited {
            // It had a place until now, so there is one.
            let _ = self.insert(fingerprint, limit, inherited, ask, Room { evicts: true, ..room });
        }
    }

    /// The limit that a key is counted under at present, which may be another of the same id.
    pub(crate) fn limit_of(
        &mut self,
        fingerprint: Fingerprint,
        registry: &Registry,
    ) -> Option<Arc<Registered>> {
        let mut index = None;
        for_each_table!(self, |table| {
            index = index.or(table.find(fingerprint).map(|position| table.at(position).limit));
        });
        registry.get(index?)
    }

    /// Whether a key has to be adopted before it is counted under this limit.
    #[inline(always)]
    pub(crate) fn is_inherited(&mut self, fingerprint: Fingerprint, limit: &Registered) -> bool {
        // A limit that blocks remembers nothing, and leaves what an earlier one remembers alone.
        limit.has_past()
            && limit.limit().state_words() != Some(0)
            && !with_table!(self, limit.limit(), |table| table
                .find(fingerprint)
                .is_some_and(|position| table.at(position).limit == limit.index))
    }

    /// Drops every state that equals no state, and memory that is not needed any more.
    pub(crate) fn sweep(&mut self, ask: &Ask, registry: &Registry) {
        // Moves the origin if need be, so that times are told from it.
        self.since_origin(ask.at.now, registry);
        let origin = self.origin;
        for_each_table!(self, |table| if table.bytes() > 0 {
            table.shrink(in_use(origin, ask, registry));
        });
    }

    /// Shows every state, spent ones included.
    pub(crate) fn for_each(&mut self, registry: &Registry, mut show: impl FnMut(Entry<'_>)) {
        let origin = self.origin;
        let mut limits = Limits::new(registry);
        for_each_table!(self, |table| for slot in table.iter() {
            let Some(limit) = limits.get(slot.limit) else { continue };
            slot.value.look(limit.limit(), origin, |state| {
                if let Some(state) = state {
                    show(Entry { fingerprint: slot.fingerprint(), limit, state });
                }
            });
        });
    }

    /// Makes sure that the shard may hold one more key.
    #[inline]
    fn make_room(&mut self, ask: &Ask, room: Room<'_>) -> Result<(), Full> {
        if self.len() < room.keys_max {
            return Ok(());
        }
        self.clear_out(ask, room)
    }

    /// Drops what is spent; if that is nothing, somebody in use, or says that there is no room.
    #[cold]
    fn clear_out(&mut self, ask: &Ask, room: Room<'_>) -> Result<(), Full> {
        let now = ask.at.now;
        self.pressed += 1;
        let is_due = now < self.swept_at || now.since(self.swept_at) >= SWEEP_INTERVAL;
        // Not sooner than a quarter of the keys were pressed out: a sweep looks at all of them.
        if is_due && self.pressed > self.len() / 4 {
            (self.swept_at, self.pressed) = (now, 0);
            let before = self.len();
            self.sweep(ask, room.registry);
            self.counts.evicted_spent += (before - self.len()) as u64;
        }
        while self.len() >= room.keys_max && self.evict(ask, room) {}
        if self.len() < room.keys_max { Ok(()) } else { Err(Full) }
    }

    /// Drops the least harmful of a few: one that is spent, else, if that is allowed, the one
    /// nearest to full. Says whether it dropped one.
    fn evict(&mut self, ask: &Ask, room: Room<'_>) -> bool {
        let (origin, mut random) = (self.origin, self.random);
        let mut limits = Limits::new(room.registry);
        // The best of every table, so that a flood in one does not cost those in another.
        let mut best: Option<(u64, Fingerprint)> = None;
        for_each_table!(self, |table| {
            if let Some((share, position)) =
                least_harmful(table, &mut random, origin, ask, &mut limits)
                && best.is_none_or(|(least, _)| share < least)
            {
                best = Some((share, table.at(position).fingerprint()));
            }
        });
        self.random = random;
        let Some((share, loser)) = best.filter(|(share, _)| *share == 0 || room.evicts) else {
            return false;
        };
        self.forget(loser);
        match share {
            0 => self.counts.evicted_spent += 1,
            _ => self.counts.evicted_live += 1,
        }
        true
    }
}

/// Makes sure that a table has a free slot.
fn make_place<V: Value>(table: &mut Table<V>, origin: Timestamp, ask: &Ask, registry: &Registry) {
    if table.is_full() {
        table.rebuild(in_use(origin, ask, registry));
    }
}

/// Tells slots that are in use from those that are spent.
fn in_use<'a, V: Value>(
    origin: Timestamp,
    ask: &'a Ask,
    registry: &'a Registry,
) -> impl FnMut(&Slot<V>) -> bool + 'a {
    let mut limits = Limits::new(registry);
    move |slot| {
        let limit = limits.get(slot.limit);
        limit.is_some_and(|limit| !slot.value.is_spent(limit.limit(), origin, ask))
    }
}

/// Of a few keys at random places, the one to lose: the share of its limit that is used (in 2^-32,
/// zero if it is spent) and where it is.
///
/// Each place is drawn by itself: neighbours, looked at together, would in time be all of a kind.
fn least_harmful<V: Value>(
    table: &Table<V>,
    random: &mut u64,
    origin: Timestamp,
    ask: &Ask,
    limits: &mut Limits<'_>,
) -> Option<(u64, usize)> {
    let mut best = None;
    for _ in 0..SAMPLE {
        *random = random.wrapping_mul(LCG.0).wrapping_add(LCG.1);
        let position = table.somebody((*random >> 32) as u32)?;
        let slot = table.at(position);
        let share = match limits.get(slot.limit) {
            None => 0,
            Some(limit) if slot.value.is_spent(limit.limit(), origin, ask) => 0,
            Some(limit) => slot
                .value
                .look(limit.limit(), origin, |state| share_used(limit.limit(), state, ask)),
        };
        if best.is_none_or(|(least, _)| share < least) {
            best = Some((share, position));
        }
    }
    best
}

/// The used share of a limit that is not spent, in 2^-32, at least 1.
fn share_used(limit: &Limit, state: Option<&State>, ask: &Ask) -> u64 {
    let left = limit.peek(state, ask, 0).remaining;
    let used = u128::from(limit.limit().saturating_sub(left));
    let share = (used << 32) / u128::from(limit.limit().max(1));
    u64::try_from(share).unwrap_or(u64::MAX).max(1)
}

/// Limits by index, remembering a few: most shards have few.
struct Limits<'a> {
    registry: &'a Registry,
    known: [Option<(u32, Option<Arc<Registered>>)>; 8],
}

impl<'a> Limits<'a> {
    fn new(registry: &'a Registry) -> Self {
        Self { registry, known: Default::default() }
    }

    fn get(&mut self, index: u32) -> Option<&Registered> {
        let place = &mut self.known[index as usize % 8];
        if place.as_ref().is_none_or(|(known, _)| *known != index) {
            *place = Some((index, self.registry.get(index)));
        }
        place.as_ref()?.1.as_deref()
    }
}
