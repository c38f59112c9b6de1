//! What the machine itself did meanwhile: when a processor let nobody run.
//!
//! Machines that share their processors with others stop for tens of milliseconds now and then, and
//! everything on them does. What a thread sees that does nothing but sleep is not the store's doing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::load::Event;

const NAP: Duration = Duration::from_millis(1);
/// A thread that wakes up so much too late was kept from running.
const LATE: Duration = Duration::from_millis(2);
/// How long what has piled up is being worked off.
const AFTER: Duration = Duration::from_millis(10);

/// Threads that sleep, one on each processor.
pub(super) struct Machine {
    stop: Arc<AtomicBool>,
    sleepers: Vec<JoinHandle<Vec<(Instant, Instant)>>>,
}

/// When it stopped, from when until when.
pub(super) struct Stalls(Vec<(Instant, Instant)>);

impl Machine {
    /// Watches from now on.
    pub(super) fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let allowed = sched_getaffinity(None).unwrap();
        let processors = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        let sleepers = processors.map(|processor| {
            let told = Arc::clone(&stop);
            std::thread::spawn(move || sleep_on(processor, &told))
        });
        Self { sleepers: sleepers.collect(), stop }
    }

    /// What was seen.
    pub(super) fn stop(self) -> Stalls {
        self.stop.store(true, Ordering::SeqCst);
        Stalls(self.sleepers.into_iter().flat_map(|sleeper| sleeper.join().unwrap()).collect())
    }
}

fn sleep_on(processor: usize, stop: &AtomicBool) -> Vec<(Instant, Instant)> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).unwrap();
    let mut stalls = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let began = Instant::now();
        std::thread::sleep(NAP);
        if began.elapsed() > NAP + LATE {
            stalls.push((began, Instant::now()));
        }
    }
    stalls
}

impl Stalls {
    /// Whether the machine stopped while somebody waited, or shortly before.
    pub(super) fn touch(&self, event: &Event) -> bool {
        self.0.iter().any(|(from, to)| *from <= event.answered() && event.sent <= *to + AFTER)
    }

    /// The longest.
    pub(super) fn longest(&self) -> Duration {
        self.0.iter().map(|(from, to)| *to - *from).max().unwrap_or_default()
    }
}
