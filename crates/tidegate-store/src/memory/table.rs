//! A hash table that keeps fingerprints instead of keys, and little else.
//!
//! Open addressing with linear probing. A slot is its fingerprint, the limit it was counted under
//! and the state, so that a look-up touches one cache line, and usually only one. Slots are freed
//! by shifting their successors back, so there are no tombstones to pile up.

use crate::fingerprint::Fingerprint;

/// One key under one limit; an id of zero is an empty slot.
#[derive(Clone, Default)]
pub(crate) struct Slot<V> {
    id: u64,
    place: u32,
    /// The index of the limit that the value was counted under.
    pub(crate) limit: u32,
    pub(crate) value: V,
}

impl<V> Slot<V> {
    pub(crate) fn new(fingerprint: Fingerprint, limit: u32, value: V) -> Self {
        // One id in 2^64 gives way to the mark of an empty slot.
        Self { id: fingerprint.id.max(1), place: fingerprint.place, limit, value }
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint { id: self.id, place: self.place }
    }

    fn is_empty(&self) -> bool {
        self.id == 0
    }

    #[inline(always)]
    fn is(&self, fingerprint: Fingerprint) -> bool {
        self.id == fingerprint.id.max(1)
    }
}

/// The table. It never grows by itself: see [`Table::is_full`] and [`Table::rebuild`].
pub(crate) struct Table<V> {
    slots: Vec<Slot<V>>,
    len: usize,
}

/// Slots of the smallest table.
const SLOTS_MIN: usize = 8;
/// Slots up to which room is spent on speed: the limits of one key stand in a row, and rows that
/// run into each other are long to walk. In a larger table memory counts for more.
const SLOTS_SMALL: usize = 1024;

/// How many a table of so many slots may hold: half of it if it is small, else four fifths.
fn most_in(slots: usize) -> usize {
    if slots <= SLOTS_SMALL { slots / 2 } else { slots * 4 / 5 }
}

/// The slots of a table that may hold so many.
fn slots_for(most: usize) -> usize {
    let roomy = most * 2 + SLOTS_MIN;
    if roomy <= SLOTS_SMALL { roomy } else { (most * 5 / 4 + SLOTS_MIN).max(SLOTS_SMALL + 1) }
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }
}

impl<V: Default + Clone> Table<V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether one more would fill it so far that probing gets long.
    pub(crate) fn is_full(&self) -> bool {
        self.len + 1 > most_in(self.slots.len())
    }

    /// Where a fingerprint would stand if nobody were in the way.
    #[inline(always)]
    fn home(&self, place: u32) -> usize {
        // Scaled to the table: any size will do, not only powers of two, which keeps the table at
        // least 64% full as it grows by quarters.
        ((u64::from(place) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn next(&self, position: usize) -> usize {
        let next = position + 1;
        if next == self.slots.len() { 0 } else { next }
    }

    /// The position of a fingerprint.
    #[inline(always)]
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        self.find_from(fingerprint, self.home(fingerprint.place))
    }

    /// The same, looking first from where it probably is.
    #[inline(always)]
    pub(crate) fn find_near(&self, fingerprint: Fingerprint, after: usize) -> Option<usize> {
        match self.find_from(fingerprint, self.next(after)) {
            Some(position) => Some(position),
            None => self.find(fingerprint),
        }
    }

    #[inline(always)]
    fn find_from(&self, fingerprint: Fingerprint, mut position: usize) -> Option<usize> {
        loop {
            let slot = &self.slots[position];
            if slot.is(fingerprint) {
                return Some(position);
            }
            if slot.is_empty() {
                return None;
            }
            position = self.next(position);
        }
    }

    #[inline(always)]
    pub(crate) fn at(&self, position: usize) -> &Slot<V> {
        &self.slots[position]
    }

    #[inline(always)]
    pub(crate) fn at_mut(&mut self, position: usize) -> &mut Slot<V> {
        &mut self.slots[position]
    }

    /// Adds a slot that is not there yet to a table that is not full, and says where.
    pub(crate) fn insert(&mut self, slot: Slot<V>) -> usize {
        debug_assert!(!self.is_full(), "rebuild before inserting");
        let mut position = self.home(slot.place);
        while !self.slots[position].is_empty() {
            position = self.next(position);
        }
        self.slots[position] = slot;
        self.len += 1;
        position
    }

    /// Frees a position and closes the gap.
    pub(crate) fn remove(&mut self, position: usize) -> Slot<V> {
        let mut gap = position;
        let removed = std::mem::take(&mut self.slots[gap]);
        self.len -= 1;
        let mut probe = self.next(gap);
        while !self.slots[probe].is_empty() {
            let home = self.home(self.slots[probe].place);
            // It may move back to the gap unless its home lies between the two, going round.
            let stays = if gap <= probe {
                gap < home && home <= probe
            } else {
                gap < home || home <= probe
            };
            if !stays {
                self.slots.swap(gap, probe);
                gap = probe;
            }
            probe = self.next(probe);
        }
        removed
    }

    /// Keeps the slots that `keep` wants, and makes room for a quarter more of them. The table does
    /// not get smaller: what has come once comes again.
    pub(crate) fn rebuild(&mut self, keep: impl FnMut(&Slot<V>) -> bool) {
        self.resize(self.slots.len(), keep);
    }

    /// Keeps the slots that `keep` wants, in a table of their size.
    pub(crate) fn shrink(&mut self, keep: impl FnMut(&Slot<V>) -> bool) {
        self.resize(0, keep);
    }

    fn resize(&mut self, least: usize, mut keep: impl FnMut(&Slot<V>) -> bool) {
        let mut wanted = |slot: &Slot<V>| !slot.is_empty() && keep(slot);
        let kept = self.slots.iter().filter(|slot| wanted(slot)).count();
        let slots = least.max(slots_for(kept + kept / 4 + 1));
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); slots]);
        self.len = 0;
        for slot in old {
            if wanted(&slot) {
                self.insert(slot);
            }
        }
    }

    /// All slots in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot<V>> {
        self.slots.iter().filter(|slot| !slot.is_empty())
    }

    /// All slots in use, to change their values.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot<V>> {
        self.slots.iter_mut().filter(|slot| !slot.is_empty())
    }

    /// Where somebody stands at or after a random place, going round; `None` in an empty table.
    ///
    /// Tables that are looked into for somebody to evict are well filled, so it is not far.
    pub(crate) fn somebody(&self, random: u32) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut position = self.home(random);
        while self.slots[position].is_empty() {
            position = self.next(position);
        }
        Some(position)
    }

    /// The size of the table in memory, in bytes, without what values own elsewhere.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<V>>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn fingerprint(key: u64) -> Fingerprint {
        // Few different homes, so that runs of neighbours form and wrap around the end.
        Fingerprint { id: key << 40 | 1, place: (key % 7) as u32 * (u32::MAX / 7) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Whatever is added and removed, the table holds what a plain map holds.
        #[test]
        fn behaves_like_a_map(steps in prop::collection::vec((0u64..60, 0u8..4), 1..300)) {
            let mut table = Table::<[u64; 1]>::default();
            let mut model = HashMap::new();
            for (count, (key, what)) in steps.into_iter().enumerate() {
                let count = count as u64;
                match (table.find(fingerprint(key)), what) {
                    (Some(position), 0 | 1) => {
                        let removed = table.remove(position);
                        prop_assert_eq!(model.remove(&key), Some(removed.value[0]));
                    }
                    (Some(position), _) => {
                        table.at_mut(position).value = [count];
                        prop_assert!(model.insert(key, count).is_some());
                    }
                    (None, 3) => table.shrink(|slot| slot.value[0] % 5 != 0),
                    (None, _) => {
                        if table.is_full() {
                            table.rebuild(|_| true);
                        }
                        table.insert(Slot::new(fingerprint(key), 0, [count]));
                        prop_assert!(model.insert(key, count).is_none());
                    }
                }
                if what == 3 {
                    model.retain(|key, _| table.find(fingerprint(*key)).is_some());
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.iter().count(), model.len());
                for (key, value) in &model {
                    let position = table.find(fingerprint(*key));
                    prop_assert_eq!(position.map(|at| table.at(at).value[0]), Some(*value));
                }
            }
        }
    }

    #[test]
    fn the_reserved_fingerprint_is_a_key_like_any_other() {
        let zero = Fingerprint { id: 0, place: 9 };
        let mut table = Table::<[u64; 1]>::default();
        table.rebuild(|_| true);
        table.insert(Slot::new(zero, 0, [5]));
        assert_eq!(table.find(zero).map(|position| table.at(position).value), Some([5]));
    }
}
