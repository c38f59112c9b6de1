//! Limits that change while they are used.

use std::error::Error;

use tidegate::{
    Calendar, CalendarUnit, Inherit, Limit, LimitSpec, Limiter, Limits, ManualClock, Rate, Retry,
};

use crate::{Clocked, SECOND, limiter};

/// Replaces the only limit of a limiter.
fn replace(limiter: &Clocked, limit: LimitSpec, inherit: Inherit) {
    limiter.replace([("limit-0", limit)], inherit).unwrap();
}

/// With 60 of 100 used: what is left of a new limit of 200, and of 20.
const LEFT: [(Inherit, u64, u64); 5] = [
    (Inherit::Used, 140, 0),
    (Inherit::AsIs, 40, 20),
    (Inherit::Proportional, 80, 8),
    (Inherit::Additive, 140, 20),
    (Inherit::Reset, 200, 20),
];

#[test]
fn what_was_used_is_carried_over_as_asked() {
    let kinds: [fn(u64) -> LimitSpec; 4] = [
        |units| Limit::per_hour(units),
        |units| Limit::fixed_window(Rate::per_hour(units)),
        |units| Limit::sliding_log(Rate::per_hour(units)),
        |units| Limit::sliding_counter(Rate::per_hour(units)),
    ];
    for kind in kinds {
        for (inherit, of_200, of_20) in LEFT {
            for (new, left) in [(200, of_200), (20, of_20)] {
                let (_, limiter) = limiter(kind(100));
                assert!(limiter.on("user:42").cost(60).check().allowed);
                replace(&limiter, kind(new), inherit);
                let what = format!("{} from 100 to {new}, {inherit:?}", kind(new));
                assert_eq!(limiter.peek("user:42").remaining, left, "{what}");
                assert_eq!(limiter.peek("user:42").limit, new, "{what}");
                // The peek has not changed that.
                assert_eq!(limiter.up_to("user:42", 1000), left, "{what}");
                assert!(!limiter.check("user:42").allowed, "{what}");
                // A key that was never seen has the whole new limit.
                assert_eq!(limiter.up_to("user:43", 1000), new, "{what}");
            }
        }
    }
}

#[test]
fn what_was_used_survives_a_change_of_algorithm() {
    let (_, limiter) = limiter(Limit::per_hour(100));
    assert!(limiter.on("user:42").cost(60).check().allowed);
    replace(&limiter, Limit::fixed_window(Rate::per_hour(100)), Inherit::Used);
    assert_eq!(limiter.peek("user:42").remaining, 40);
    replace(&limiter, Limit::sliding_log(Rate::per_hour(80)), Inherit::Used);
    assert_eq!(limiter.peek("user:42").remaining, 20);
    assert_eq!(limiter.up_to("user:42", 100), 20);
}

#[test]
fn a_limit_may_come_back() {
    let (_, limiter) = limiter(Limit::per_hour(100));
    assert!(limiter.on("user:42").cost(60).check().allowed);
    replace(&limiter, Limit::per_hour(200), Inherit::Used);
    assert!(limiter.on("user:42").cost(10).check().allowed);
    replace(&limiter, Limit::per_hour(100), Inherit::Used);
    assert_eq!(limiter.check("user:42").remaining, 29);
}

#[test]
fn another_name_is_another_limit() {
    let (_, limiter) = limiter(Limit::per_hour(100));
    assert!(limiter.on("user:42").cost(60).check().allowed);
    limiter.replace([("hourly", Limit::per_hour(100))], Inherit::Used).unwrap();
    assert_eq!(limiter.check("user:42").remaining, 99);
}

#[test]
fn every_handle_sees_the_new_limits() {
    let (_, limiter) = limiter(Limit::per_hour(1));
    let clone = limiter.clone();
    assert!(clone.check("user:42").allowed);
    assert!(!clone.check("user:42").allowed);
    let limits =
        [("limit-0", Limit::per_hour(3)), ("at once", Limit::concurrency(1).without_lease())];
    limiter.replace(limits, Inherit::Used).unwrap();
    let ids: Vec<String> = clone.limits().iter().map(|limit| limit.id().to_owned()).collect();
    assert_eq!(ids, ["limit-0", "at once"]);
    let permit = clone.on("user:42").acquire().unwrap();
    // The new limit is enforced beside the old one, which has one of three left.
    let refused = clone.on("user:42").check_each();
    assert_eq!(refused.overall.retry, Retry::Unknown);
    assert_eq!(refused.each[0].remaining, 1);
    drop(permit);
}

#[test]
fn permits_stay_in_flight() {
    for inherit in [Inherit::Used, Inherit::AsIs, Inherit::Reset] {
        let (_, limiter) = limiter(Limit::concurrency(2));
        let held = [(); 2].map(|()| limiter.on("user:42").acquire().unwrap());
        replace(&limiter, Limit::concurrency(3), inherit);
        let third = limiter.on("user:42").acquire().unwrap();
        assert!(limiter.on("user:42").acquire().is_err(), "{inherit:?}");
        drop(held);
        assert_eq!(limiter.peek("user:42").remaining, 2, "{inherit:?}");
        drop(third);
        assert_eq!(limiter.peek("user:42").remaining, 3, "{inherit:?}");
    }
}

#[test]
fn a_reservation_outlives_the_limit_it_was_made_under() {
    let (_, limiter) = limiter(Limit::fixed_window(Rate::per_hour(100)));
    let reservation = limiter.on("user:42").cost(60).try_reserve().unwrap();
    replace(&limiter, Limit::fixed_window(Rate::per_hour(200)), Inherit::Used);
    assert_eq!(limiter.peek("user:42").remaining, 140);
    reservation.settle(10);
    assert_eq!(limiter.peek("user:42").remaining, 190);
}

#[test]
fn what_cannot_be_built_changes_nothing() {
    let (clock, limiter) = limiter(Limit::per_second(2));
    assert!(limiter.check("user:42").allowed);
    let good = ("limit-0", Limit::per_second(50));
    let wrong = Limit::fixed_window(Rate::per_second(5)).burst(10);
    let error = limiter.replace(Limits::new(), Inherit::Used).unwrap_err();
    assert_eq!(error.to_string(), "a limiter needs at least one limit; add one with `limit`");
    let error = limiter.replace([good, ("new", wrong)], Inherit::Used).unwrap_err();
    assert_eq!(error.to_string(), "limit `new` cannot be built");
    let reason = error.source().map(ToString::to_string);
    assert_eq!(reason.as_deref(), Some("`burst` has no meaning for `fixed_window`"));
    let error = limiter.replace([good, good], Inherit::Used).unwrap_err();
    assert_eq!(error.to_string(), "two limits are named `limit-0`");

    assert_eq!(limiter.limits().len(), 1);
    let decision = limiter.check("user:42");
    assert_eq!((decision.allowed, decision.limit, decision.remaining), (true, 2, 0));
    assert_eq!(limiter.check("user:42").retry, Retry::After(SECOND / 2));
    clock.advance(SECOND / 2);
    assert!(limiter.check("user:42").allowed);
}

#[test]
fn names_are_what_carries_over_between_limiters_of_a_store() {
    let store = std::sync::Arc::new(tidegate::MemoryStore::new());
    let clock = ManualClock::new();
    let build = |limit| {
        Limiter::builder()
            .named("api", limit)
            .store(std::sync::Arc::clone(&store))
            .clock(clock.clone())
            .build_on()
            .unwrap()
    };
    let old = build(Limit::per_hour(100));
    assert!(old.on("user:42").cost(60).check().allowed);
    // A limiter that is built later, as by a program that reads its settings again.
    let new = build(Limit::per_hour(80));
    assert_eq!(new.check("user:42").remaining, 19);
}

#[test]
fn calendars_may_be_replaced_too() {
    // 2023-11-14 22:13:20 UTC; midnight is in Berlin first.
    let (_, limiter) = limiter(Limit::per_hour(1));
    let berlin = Calendar::new(CalendarUnit::Day, "Europe/Berlin").unwrap();
    let error = limiter.replace([("daily", berlin.limit(5))], Inherit::Used).unwrap_err();
    assert_eq!(
        error.to_string(),
        "limit `daily` follows a calendar; add it with `calendar` instead of `limit`"
    );
    let limits = Limits::new().calendar("daily", 5, berlin.clone()).limit(Limit::per_hour(9));
    limiter.replace(limits, Inherit::Used).unwrap();
    let ids: Vec<String> = limiter.limits().iter().map(|limit| limit.id().to_owned()).collect();
    assert_eq!(ids, ["daily", "limit-1"]);
    let decisions = limiter.on("user:42").cost(4).check_each();
    assert_eq!(decisions.each[0].reset_after, Some(2800 * SECOND));
    limiter.replace(Limits::new().calendar("daily", 7, berlin), Inherit::Used).unwrap();
    let decision = limiter.check("user:42");
    assert_eq!((decision.remaining, decision.reset_after), (2, Some(2800 * SECOND)));
}
