//! What there is to see of a store: counted by whoever does it, read by metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::client::ClientError;
use crate::store::RedisError;

/// A count that only grows, or a number that goes up and down.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What calls of a store are told apart by in [`RedisStats::seconds`].
pub(crate) const OPS: [&str; 5] = ["check", "peek", "give_back", "reserve", "settle"];

/// The upper bounds of the classes that durations are counted in, in microseconds.
const BOUNDS_US: [u64; 12] =
    [50, 100, 200, 400, 800, 1_500, 3_000, 6_000, 10_000, 20_000, 50_000, 100_000];

/// How long calls of one kind took.
#[derive(Debug, Default)]
pub(crate) struct Durations {
    classes: [Count; BOUNDS_US.len() + 1],
    sum_us: Count,
}

impl Durations {
    pub(crate) fn add(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = BOUNDS_US.partition_point(|bound| *bound < us);
        self.classes[class].add(1);
        self.sum_us.add(us.min(u64::from(u32::MAX)));
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Commands that were sent.
    pub(crate) sent: Count,
    /// Commands that wait for their replies, those that nobody waits for any more included.
    pub(crate) in_flight: Count,
    /// How many nodes are not asked, because they have failed.
    pub(crate) breakers_open: Count,
    pub(crate) breakers_opened: Count,
    pub(crate) connections: Count,
    pub(crate) reconnects: Count,
    pub(crate) scripts_loaded: Count,
    pub(crate) errors: Errors,
    pub(crate) denial_hits: Count,
    pub(crate) denial_entries: Count,
    /// Items that were answered without Redis, by the policy that answered.
    pub(crate) fallback_allow: Count,
    pub(crate) fallback_deny: Count,
    pub(crate) fallback_local: Count,
    /// Requests that took back in one slot what another slot refused.
    pub(crate) compensations: Count,
    /// Compensations and settlements that could not be done.
    pub(crate) given_up: Count,
    /// Keys that were carried over to a changed limit.
    pub(crate) carried_over: Count,
    /// Replies that the engine does not agree with: never, if all is well.
    pub(crate) disagreements: Count,
    pub(crate) live_nodes: Count,
    pub(crate) rank: Count,
    pub(crate) seconds: [Durations; OPS.len()],
}

/// Calls that Redis did not answer, by kind.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    pub(crate) deadline: Count,
    pub(crate) full: Count,
    pub(crate) down: Count,
    pub(crate) lost: Count,
    pub(crate) reply: Count,
    pub(crate) other: Count,
}

impl Errors {
    pub(crate) fn add(&self, error: &RedisError) {
        let count = match error {
            RedisError::Client(ClientError::Deadline) => &self.deadline,
            RedisError::Client(ClientError::Full) => &self.full,
            RedisError::Client(ClientError::Down) => &self.down,
            RedisError::Client(ClientError::Lost(_)) => &self.lost,
            RedisError::Client(ClientError::Reply(_)) => &self.reply,
            _ => &self.other,
        };
        count.add(1);
    }
}

/// What there is to see of a store in Redis.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisStats {
    /// Commands that were sent.
    pub sent: u64,
    /// Commands that wait for their replies.
    pub in_flight: u64,
    /// Connections that are up.
    pub connections: u64,
    /// Connections that were made again.
    pub reconnects: u64,
    /// How many nodes are not asked at present, because they have failed.
    pub breakers_open: u64,
    /// How often a node was found to have failed.
    pub breakers_opened: u64,
    /// Why a node is not asked at present.
    pub down_because: Option<String>,
    /// How often a server was given the script.
    pub scripts_loaded: u64,
    /// Calls that Redis did not answer, by kind.
    pub errors: Vec<(&'static str, u64)>,
    /// Refusals by what was known of a key.
    pub denial_hits: u64,
    /// Keys of which a refusal is known.
    pub denial_entries: u64,
    /// Limits that were answered without Redis, by the policy that answered.
    pub fallbacks: Vec<(&'static str, u64)>,
    /// Requests that were refused in one slot after they had taken in another.
    pub compensations: u64,
    /// What should have been given back and could not be.
    pub given_up: u64,
    /// Keys that were carried over to a changed limit.
    pub carried_over: u64,
    /// Replies of the script that the engine does not agree with: none, if all is well.
    pub disagreements: u64,
    /// How many processes share the store, as far as is known.
    pub live_nodes: u64,
    /// How long calls took, by kind.
    pub seconds: Vec<Timing>,
}

/// How long calls of one kind took.
#[derive(Clone, Debug)]
pub struct Timing {
    /// The kind.
    pub op: &'static str,
    /// Upper bounds in seconds with the number of calls in each class, not added up; the last
    /// class has no bound.
    pub classes: Vec<(f64, u64)>,
    /// All durations together, in seconds.
    pub sum: f64,
}

impl Stats {
    pub(crate) fn read(&self) -> RedisStats {
        let errors = &self.errors;
        let errors = [
            ("deadline", &errors.deadline),
            ("full", &errors.full),
            ("down", &errors.down),
            ("lost", &errors.lost),
            ("reply", &errors.reply),
            ("other", &errors.other),
        ];
        let fallbacks = [
            ("allow", &self.fallback_allow),
            ("deny", &self.fallback_deny),
            ("local", &self.fallback_local),
        ];
        let timing = |(op, durations): (&'static str, &Durations)| {
            let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
            let classes = bounds.zip(durations.classes.iter().map(Count::get)).collect();
            Timing { op, classes, sum: durations.sum_us.get() as f64 / 1e6 }
        };
        RedisStats {
            sent: self.sent.get(),
            in_flight: self.in_flight.get(),
            connections: self.connections.get(),
            reconnects: self.reconnects.get(),
            breakers_open: self.breakers_open.get(),
            breakers_opened: self.breakers_opened.get(),
            down_because: None,
            scripts_loaded: self.scripts_loaded.get(),
            errors: errors.map(|(kind, count)| (kind, count.get())).into(),
            denial_hits: self.denial_hits.get(),
            denial_entries: self.denial_entries.get(),
            fallbacks: fallbacks.map(|(policy, count)| (policy, count.get())).into(),
            compensations: self.compensations.get(),
            given_up: self.given_up.get(),
            carried_over: self.carried_over.get(),
            disagreements: self.disagreements.get(),
            live_nodes: self.live_nodes.get().max(1),
            seconds: OPS.into_iter().zip(&self.seconds).map(timing).collect(),
        }
    }
}
