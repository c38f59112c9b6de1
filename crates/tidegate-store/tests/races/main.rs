//! Many threads and few keys: what is admitted is what the limit allows, to the unit.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by unwrapping it")]

#[path = "../support/mod.rs"]
mod support;

mod exact;
mod several;
mod together;

use std::sync::Barrier;

/// How many at once: more than there are cores, so that some are stopped in the middle.
const THREADS: usize = 8;

/// Runs the same work in all threads, begun at the same moment, and adds up what they answer.
fn race(work: impl Fn(usize) -> u64 + Sync) -> u64 {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let racers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(thread)
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    })
}
