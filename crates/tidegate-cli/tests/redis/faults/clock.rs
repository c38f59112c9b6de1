//! The clock of one service is an hour off. Redis tells the time, so that it does not matter.

use std::time::{SystemTime, UNIX_EPOCH};

use super::trial::{RULES, TIGHT_LIMIT, patience};
use super::{Bound, Length, Trial};
use crate::servers::Redis;
use crate::services::Services;
use crate::support::serving::Serving;

/// A service that takes it to be an hour later than it is: only the time of day, as with a clock
/// that was set wrong.
fn start_an_hour_ahead(services: &mut Services, store: &str) {
    let mut command = services.command(store, patience());
    command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1");
    command.env("FAKETIME", "+1h").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    services.all.push(Serving::spawn(command));
}

/// The hour of the day at which a service says that it was ready.
fn hour_of_start(serving: &mut Serving) -> u64 {
    let line = serving.wait_for_log("ready");
    let (_, time) = line.split_once('T').unwrap();
    time[..2].parse().unwrap()
}

fn hour() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 3600
}

#[test]
fn the_clock_of_one_service_is_an_hour_ahead() {
    let redis = Redis::start(&[]);
    // Windows of an hour, which must not end meanwhile.
    loop {
        let began = hour();
        let mut services = Services::start(1, &redis.url(), RULES, patience());
        start_an_hour_ahead(&mut services, &redis.url());
        let hours: Vec<u64> = services.all.iter_mut().map(hour_of_start).collect();
        let mut trial = Trial::of(services, Length::wanted());
        trial.hurt();
        let window = trial.rush("hourly", &began.to_string(), TIGHT_LIMIT);
        trial.last();
        trial.healed();
        let report = trial.end("a clock an hour ahead", Bound { losses: 0 }).print().check();
        if hour() != began {
            continue;
        }
        assert_eq!((hours[0] + 1) % 24, hours[1], "it takes it to be an hour later");
        if !Length::wanted().is_full() {
            assert_eq!(report.degraded, 0);
        }
        let allowed = window.iter().filter(|event| event.seen.is_allowed()).count();
        assert_eq!(allowed, TIGHT_LIMIT, "both count in the same window");
        return;
    }
}
