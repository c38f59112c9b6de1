//! The master dies and its replica takes over: under Sentinels, and in a cluster.

use std::time::Duration;

use super::{Bound, Trial};
use crate::servers::{Cluster, Sentinels};

/// From the new master's taking over: Sentinels and cluster tell of it at once, or are asked.
const SOON: Duration = Duration::from_secs(1);

#[test]
fn sentinels_choose_another_master() {
    let mut redis = Sentinels::start(&[]);
    let mut trial = Trial::start(&redis.url());
    trial.hurt();
    redis.master.kill();
    redis.wait_for_failover();
    trial.healed();
    // What the replica had not received yet is lost: at the worst everything, once.
    let report = trial.end("Sentinel failover", Bound { losses: 1 });
    let report = report.print().check().check_times(true, SOON);
    assert!(report.degraded > 0 && report.opened >= 2.0, "both services noticed");
}

#[test]
fn a_replica_takes_over_in_a_cluster() {
    let mut redis = Cluster::with_replicas(&[]);
    let mut trial = Trial::start(&redis.url());
    trial.hurt();
    // The one that most keys are at, whichever it is: all have some.
    redis.masters[0].kill();
    redis.wait_for_failover(0);
    trial.healed();
    let report = trial.end("Cluster failover", Bound { losses: 1 });
    report.print().check().check_times(false, SOON);
}
