//! How long things took.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The upper ends of the buckets, in nanoseconds.
const BOUNDS_NS: [u64; 16] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
];

/// Threads count in places of their own, so that they do not wait for each other's.
const PLACES: usize = 4;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PLACE: usize = THREADS.fetch_add(1, Relaxed) % PLACES;
}

/// Counts by how long something took.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    places: [Place; PLACES],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Place {
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(super) fn observe(&self, time: Duration) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.iter().position(|bound| time_ns <= *bound);
        let place = &self.places[PLACE.with(|place| *place)];
        place.buckets[bucket.unwrap_or(BOUNDS_NS.len())].fetch_add(1, Relaxed);
        place.sum_ns.fetch_add(time_ns, Relaxed);
    }

    /// How many were counted.
    pub(super) fn count(&self) -> u64 {
        let buckets = self.places.iter().flat_map(|place| &place.buckets);
        buckets.map(|bucket| bucket.load(Relaxed)).sum()
    }

    /// The sum in seconds, and how many took up to so many seconds and longer than the one before.
    pub(super) fn read(&self) -> (f64, Vec<(f64, u64)>) {
        let sum_ns: u64 = self.places.iter().map(|place| place.sum_ns.load(Relaxed)).sum();
        let bounds = BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
        let buckets = bounds.enumerate().map(|(index, bound)| {
            (bound, self.places.iter().map(|place| place.buckets[index].load(Relaxed)).sum())
        });
        (sum_ns as f64 / 1e9, buckets.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for ns in [0, 250, 251, 1_000_000_000, 1_000_000_001] {
            histogram.observe(Duration::from_nanos(ns));
        }
        let (sum, buckets) = histogram.read();
        let filled: Vec<_> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(250e-9, 2), (500e-9, 1), (1.0, 1), (f64::INFINITY, 1)]);
        assert_eq!(histogram.count(), 5);
        assert!((sum - 2.000000502).abs() < 1e-9, "{sum}");
    }
}
