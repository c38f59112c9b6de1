//! The scripts of Redis are forgotten.

use super::trial::patience;
use super::{Bound, Trial};
use crate::servers::Redis;

#[test]
fn scripts_are_flushed_and_nobody_notices() {
    let redis = Redis::start(&[]);
    let mut trial = Trial::with(&redis.url(), patience());
    let loads = redis.calls("script|load");
    trial.hurt();
    redis.ask(&["SCRIPT", "FLUSH"]);
    trial.last();
    redis.ask(&["SCRIPT", "FLUSH"]);
    trial.healed();
    let report = trial.end("SCRIPT FLUSH", Bound { losses: 0 }).print().check();
    assert_eq!(report.degraded, 0, "the script is given again within the request");
    assert!(redis.calls("script|load") > loads);
}
