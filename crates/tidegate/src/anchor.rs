//! Where a clock's readings are anchored, shared by all threads and never in anybody's way.

#[cfg(tidegate_loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(tidegate_loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A straight line from a raw reading to wall time.
///
/// Time is `wall` plus what has passed since `raw`, but never less than `floor` plus half of it:
/// when the wall clock is set back, readings go on at half speed until they meet it again. They
/// neither go back nor stand still.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) raw: u64,
    pub(crate) wall: u64,
    pub(crate) floor: u64,
}

impl Anchor {
    #[inline(always)]
    pub(crate) fn time(&self, elapsed: u64) -> u64 {
        (self.wall.wrapping_add(elapsed)).max(self.floor.wrapping_add(elapsed / 2))
    }
}

/// An anchor that one thread replaces while others read it.
///
/// Two places: readers use the one that `version` points to, the writer fills the other and then
/// moves `version`. A reader that finds the version unchanged read a whole anchor, because its
/// place is only written again after the version has moved. Nobody waits for a writer that was
/// suspended half-way.
#[derive(Debug)]
pub(crate) struct SharedAnchor {
    version: AtomicU64,
    places: [[AtomicU64; 3]; 2],
}

impl SharedAnchor {
    pub(crate) fn new(anchor: Anchor) -> Self {
        let place = || [anchor.raw, anchor.wall, anchor.floor].map(AtomicU64::new);
        Self { version: AtomicU64::new(0), places: [place(), place()] }
    }

    #[inline(always)]
    pub(crate) fn load(&self) -> Anchor {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let [raw, wall, floor] = &self.places[(version & 1) as usize];
            let anchor = Anchor {
                raw: raw.load(Ordering::Relaxed),
                wall: wall.load(Ordering::Relaxed),
                floor: floor.load(Ordering::Relaxed),
            };
            // Orders the reads above before the second look at the version.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return anchor;
            }
        }
    }

    /// Replaces the anchor. Only one thread at a time may do so.
    pub(crate) fn store(&self, anchor: Anchor) {
        let version = self.version.load(Ordering::Relaxed);
        // Orders the move of the version that readers may still rely on before the writes below.
        fence(Ordering::Release);
        let [raw, wall, floor] = &self.places[(version.wrapping_add(1) & 1) as usize];
        raw.store(anchor.raw, Ordering::Relaxed);
        wall.store(anchor.wall, Ordering::Relaxed);
        floor.store(anchor.floor, Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(all(test, tidegate_loom))]
mod tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Every interleaving of a reader with two replacements reads one of the three anchors whole.
    #[test]
    fn readers_never_see_half_an_anchor() {
        loom::model(|| {
            let whole = |n: u64| Anchor { raw: n, wall: n, floor: n };
            let shared = Arc::new(SharedAnchor::new(whole(1)));
            let writer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.store(whole(2));
                    shared.store(whole(3));
                })
            };
            let seen = shared.load();
            assert_eq!((seen.raw, seen.wall), (seen.wall, seen.floor));
            writer.join().unwrap();
            assert_eq!(shared.load(), whole(3));
        });
    }
}
