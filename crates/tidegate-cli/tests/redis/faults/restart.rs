//! Redis is killed and comes back; Redis is halted and goes on; its memory is full.

use std::time::Duration;

use super::{Bound, Trial};
use crate::faults::trial::TIGHT_LIMIT;
use crate::load::{Seen, Source};
use crate::servers::Redis;

/// How soon all has to be as before.
const SOON: Duration = Duration::from_secs(1);

/// A Redis that has every write on disk before it answers.
const LASTING: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[test]
fn redis_is_killed_and_had_written_everything() {
    let mut redis = Redis::start(&LASTING);
    let mut trial = Trial::start(&redis.url());
    trial.hurt();
    redis.kill();
    trial.last();
    // Keys that were never seen: together the services admit one limit of each at the most, and
    // nothing where they deny.
    let local = trial.rush("local_tight", "unseen", 2 * TIGHT_LIMIT);
    let denied = trial.rush("deny_tight", "unseen", 20);
    redis.restart();
    trial.healed();
    let report = trial.end("kill -9, everything on disk", Bound { losses: 0 });
    let report = report.print().check().check_times(true, SOON);
    assert!(report.degraded > 0 && report.opened >= 2.0, "both services noticed");
    let allowed = local.iter().filter(|event| event.seen.is_allowed()).count();
    assert!((1..=TIGHT_LIMIT).contains(&allowed), "{allowed} of a key that nobody had seen");
    assert!(denied.iter().all(|event| event.seen == Seen::Refused(Source::Fallback)));
}

#[test]
fn redis_is_killed_and_had_written_nothing() {
    let mut redis = Redis::start(&[]);
    let mut trial = Trial::start(&redis.url());
    trial.hurt();
    redis.kill();
    trial.last();
    redis.restart();
    trial.healed();
    // All is forgotten once, so that every key admits its limit once more.
    let report = trial.end("kill -9, nothing on disk", Bound { losses: 1 });
    let report = report.print().check().check_times(true, SOON);
    assert!(report.degraded > 0, "it is visible that Redis was away");
}

#[test]
fn redis_is_halted_for_a_while() {
    let redis = Redis::start(&[]);
    let mut trial = Trial::start(&redis.url());
    trial.hurt();
    redis.halt();
    trial.last();
    redis.go_on();
    trial.healed();
    let report = trial.end("SIGSTOP", Bound { losses: 0 });
    let report = report.print().check().check_times(true, SOON);
    assert!(report.degraded > 0 && report.opened >= 2.0);
}

#[test]
fn the_memory_of_redis_is_full() {
    let redis = Redis::start(&["--maxmemory-policy", "noeviction"]);
    let mut trial = Trial::start(&redis.url());
    trial.hurt();
    redis.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    trial.last();
    redis.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    trial.healed();
    let report = trial.end("maxmemory, noeviction", Bound { losses: 0 });
    let report = report.print().check().check_times(true, SOON);
    assert!(report.degraded > 0, "writes fail");
}
