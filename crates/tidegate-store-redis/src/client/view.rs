//! Which servers are masters, and of what, as far as is known.

use std::sync::Arc;

use super::node::Node;
use crate::target::Address;

/// How many slots a cluster has.
pub(super) const SLOTS: usize = 16_384;
/// In a map of slots: nobody's.
pub(super) const NONE: u16 = u16::MAX;
/// More masters than a cluster can have in practice.
pub(super) const MASTERS_MAX: usize = 4_096;

/// The masters at one moment. It is replaced, never changed.
#[derive(Default)]
pub(super) struct View {
    pub(super) masters: Vec<Arc<Node>>,
    /// The index of the master of each slot in a cluster; empty where one master has all.
    pub(super) slots: Vec<u16>,
}

impl View {
    /// One master of all slots.
    pub(super) fn of_one(master: Arc<Node>) -> Self {
        Self { masters: vec![master], slots: Vec::new() }
    }

    /// The index of the master of a slot.
    pub(super) fn master_of(&self, slot: u16) -> Option<usize> {
        let index = match self.slots.get(usize::from(slot)) {
            None => 0,
            Some(index) => usize::from(*index),
        };
        (index < self.masters.len()).then_some(index)
    }

    /// The index of the master there.
    pub(super) fn at(&self, address: &Address) -> Option<usize> {
        self.masters.iter().position(|master| master.address == *address)
    }

    /// The same, but that a slot is this node's; `None` if it is already.
    pub(super) fn with_moved(&self, slot: u16, to: &Arc<Node>) -> Option<Self> {
        let known = self.at(&to.address);
        if known.is_some() && self.master_of(slot) == known || self.masters.len() >= MASTERS_MAX {
            return None;
        }
        let (mut masters, mut slots) = (self.masters.clone(), self.slots.clone());
        let index = known.unwrap_or_else(|| {
            to.set_slot(slot);
            masters.push(Arc::clone(to));
            masters.len() - 1
        });
        slots.resize(SLOTS, NONE);
        *slots.get_mut(usize::from(slot))? = u16::try_from(index).ok()?;
        Some(Self { masters, slots })
    }

    /// Whether all is known, and nobody is down.
    pub(super) fn is_whole(&self) -> bool {
        !self.masters.is_empty()
            && self.masters.iter().all(|master| !master.is_down())
            && !self.slots.contains(&NONE)
    }
}
