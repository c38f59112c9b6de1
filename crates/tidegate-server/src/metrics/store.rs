//! What there is to see of the store.

use std::fmt;

use prometheus_client::encoding::NoLabelSet;
use tidegate::MemoryStats;
use tidegate_store_redis::RedisStats;

use super::render::{COUNTER, HISTOGRAM, Out, counters_by, gauge};
use crate::stores::StoreStats;

/// Writes the metrics of a store; each kind has its own.
pub(super) fn encode(stats: &StoreStats, out: &mut Out<'_>) -> fmt::Result {
    match stats {
        StoreStats::Memory(stats) => memory(stats, out),
        StoreStats::Redis(stats) => redis(stats, out),
    }
}

fn memory(stats: &MemoryStats, out: &mut Out<'_>) -> fmt::Result {
    let gauges = [
        ("tidegate_keys", "Keys in memory, some of which may be spent", stats.keys),
        ("tidegate_keys_max", "How many keys are kept at the most", stats.keys_max),
        ("tidegate_store_bytes", "Bytes in the tables of keys", stats.bytes),
        ("tidegate_reservations", "Reservations that wait to be settled", stats.reservations),
    ];
    for (name, help, value) in gauges {
        gauge(out, name, help, value as u64)?;
    }
    let help = "Keys that made room for others, or found none, when memory was full";
    let reasons = [
        ("spent", stats.evicted_spent),
        ("live", stats.evicted_live),
        ("denied", stats.denied_full),
        ("allowed", stats.allowed_full),
    ];
    counters_by(out, "tidegate_evictions", help, "reason", reasons.into_iter())
}

fn redis(stats: &RedisStats, out: &mut Out<'_>) -> fmt::Result {
    seconds(stats, out)?;
    let help = "Calls that Redis did not answer, by why";
    counters_by(out, "tidegate_store_errors", help, "kind", stats.errors.iter().copied())?;
    let help = "Limits that were answered without Redis, by the rule's `on_store_error`";
    let fallbacks = stats.fallbacks.iter().copied();
    counters_by(out, "tidegate_store_fallbacks", help, "policy", fallbacks)?;
    let gauges = [
        (
            "tidegate_breaker_open",
            "Servers that are not asked because they have failed: none, if all is well",
            stats.breakers_open,
        ),
        ("tidegate_store_in_flight", "Commands that wait for the reply of Redis", stats.in_flight),
        ("tidegate_store_connections", "Connections to Redis that are up", stats.connections),
        (
            "tidegate_denial_cache_keys",
            "Keys of which a refusal is remembered",
            stats.denial_entries,
        ),
        (
            "tidegate_store_nodes",
            "Processes that share the store, this one among them, as far as is known",
            stats.live_nodes,
        ),
    ];
    for (name, help, value) in gauges {
        gauge(out, name, help, value)?;
    }
    let counters = [
        ("tidegate_store_commands", "Commands that were sent to Redis", stats.sent),
        (
            "tidegate_breaker_opened",
            "Times that a server was found to have failed",
            stats.breakers_opened,
        ),
        (
            "tidegate_denial_cache_hits",
            "Refusals by what was remembered, without asking Redis",
            stats.denial_hits,
        ),
        ("tidegate_store_reconnects", "Connections that were made again", stats.reconnects),
        (
            "tidegate_store_scripts",
            "Times that a server was given the script",
            stats.scripts_loaded,
        ),
        (
            "tidegate_store_compensations",
            "Requests that gave back in one slot what another refused",
            stats.compensations,
        ),
        (
            "tidegate_store_given_up",
            "What should have been given back, and could not be",
            stats.given_up,
        ),
        (
            "tidegate_store_carried_over",
            "Keys that were carried over to a changed limit",
            stats.carried_over,
        ),
        (
            "tidegate_store_disagreements",
            "Replies that the engine does not agree with: none, if all is well",
            stats.disagreements,
        ),
    ];
    for (name, help, value) in counters {
        let mut metric = out.encode_descriptor(name, help, None, COUNTER)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn seconds(stats: &RedisStats, out: &mut Out<'_>) -> fmt::Result {
    let help = "How long calls of the store took";
    let mut family = out.encode_descriptor("tidegate_store_seconds", help, None, HISTOGRAM)?;
    for timing in &stats.seconds {
        let count = timing.classes.iter().map(|(_, count)| count).sum();
        let labels = [("op", timing.op)];
        let mut metric = family.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(timing.sum, count, &timing.classes, None)?;
    }
    Ok(())
}
