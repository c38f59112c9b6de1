//! Room in which requests are mapped to descriptors: used again, it allocates nothing.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use tidegate::rules::Mapped;

/// How many pieces of room a thread keeps for requests to come.
const SPARE_MAX: usize = 16;

thread_local! {
    /// For those who wait for nobody.
    static AT_HAND: RefCell<Mapped> = RefCell::default();
    /// For those who may wait.
    static SPARE: RefCell<Vec<Mapped>> = const { RefCell::new(Vec::new()) };
}

/// A piece of room; dropped, it is kept for the next request of the thread.
#[derive(Debug, Default)]
pub struct Room(Mapped);

impl Room {
    /// Does something that waits for nobody in room that stays where it is.
    pub fn at_hand<T>(work: impl FnOnce(&mut Mapped) -> T) -> T {
        AT_HAND.with(|mapped| match mapped.try_borrow_mut() {
            Ok(mut mapped) => work(&mut mapped),
            // A program that asks while it is asked.
            Err(_) => work(&mut Mapped::new()),
        })
    }

    /// One that was used before, or a new one.
    #[must_use]
    pub fn take() -> Self {
        Self(SPARE.with_borrow_mut(Vec::pop).unwrap_or_default())
    }
}

impl Deref for Room {
    type Target = Mapped;

    fn deref(&self) -> &Mapped {
        &self.0
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut Mapped {
        &mut self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mapped = std::mem::take(&mut self.0);
        // While a thread ends there is nothing to keep it in.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(mapped);
            }
        });
    }
}
