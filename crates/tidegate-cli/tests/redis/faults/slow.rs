//! A network that is slow, silent or cut.

use std::time::Duration;

use super::{Bound, Trial};
use crate::servers::{Mode, Proxy, Redis};

const SOON: Duration = Duration::from_secs(1);

fn network_does(name: &'static str, mode: Mode) {
    let redis = Redis::start(&[]);
    let proxy = Proxy::to(redis.port);
    let mut trial = Trial::start(&proxy.url());
    trial.hurt();
    proxy.set(mode);
    trial.last();
    proxy.set(Mode::Pass);
    trial.healed();
    // What arrives after its deadline is counted by Redis and not by the client, never the other
    // way round.
    let report = trial.end(name, Bound { losses: 0 }).print().check().check_times(true, SOON);
    assert!(report.degraded > 0 && report.opened >= 2.0, "both services noticed");
}

#[test]
fn the_network_delays() {
    network_does("proxy delays 30 ms", Mode::Delay(Duration::from_millis(15)));
}

#[test]
fn the_network_is_silent() {
    network_does("proxy holds everything back", Mode::Stall);
}

#[test]
fn the_network_is_cut() {
    network_does("proxy cuts connections", Mode::Cut);
}
