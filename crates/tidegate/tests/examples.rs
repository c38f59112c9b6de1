//! The examples run, and the worked ones are exact to the nanosecond.

#![allow(clippy::print_stdout, reason = "examples talk")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tidegate::{Decision, Each, ManualClock, Retry, Timestamp};

#[path = "../examples/concurrency.rs"]
mod concurrency;
#[path = "../examples/quickstart.rs"]
mod quickstart;
#[path = "../examples/reserve_and_settle.rs"]
mod reserve_and_settle;
#[path = "../examples/snapshot.rs"]
mod snapshot;
#[path = "../examples/wait.rs"]
mod wait;
#[path = "../examples/worked_examples.rs"]
mod worked_examples;

type Tested = Result<(), Box<dyn Error>>;

const NANOSECOND: Duration = Duration::from_nanos(1);
/// 2023-11-14 22:13:20 UTC, a Tuesday; in Berlin it is 23:13:20.
const TUESDAY: Timestamp = Timestamp::from_secs(1_700_000_000);

#[test]
fn quickstart_holds_what_it_says() -> Tested {
    Ok(quickstart::main()?)
}

#[test]
fn worked_examples_hold_what_they_say() -> Tested {
    worked_examples::main()
}

#[test]
fn wait_holds_what_it_says() -> Tested {
    wait::main()
}

#[test]
fn reserve_and_settle_holds_what_it_says() -> Tested {
    reserve_and_settle::main()
}

#[test]
fn concurrency_holds_what_it_says() -> Tested {
    concurrency::main()
}

#[test]
fn snapshot_holds_what_it_says() -> Tested {
    snapshot::main()
}

/// `limit` requests are admitted, the next is refused and told `retry`; one nanosecond before that
/// it is still refused, and then admitted. `again` is what is left after that.
fn assert_exact(
    clock: &ManualClock,
    check: impl Fn() -> Decision,
    (limit, again): (u64, u64),
    retry: Duration,
) {
    for nth in 1..=limit {
        let decision = check();
        assert!(decision.allowed, "request {nth} of {limit}");
        assert_eq!((decision.limit, decision.remaining), (limit, limit - nth));
        assert_eq!(decision.retry, Retry::Now);
    }
    let refused = check();
    assert!(!refused.allowed, "one more than {limit}");
    assert_eq!((refused.remaining, refused.retry), (0, Retry::After(retry)));
    clock.advance(retry - NANOSECOND);
    let early = check();
    assert!(!early.allowed, "one nanosecond early");
    assert_eq!(early.retry, Retry::After(NANOSECOND));
    clock.advance(NANOSECOND);
    let decision = check();
    assert!(decision.allowed, "at the moment that was named");
    assert_eq!(decision.remaining, again);
}

#[test]
fn e1_two_articles_per_second() -> Tested {
    let clock = ManualClock::at(TUESDAY);
    let limiter = worked_examples::articles(&clock)?;
    // Tokens come back one by one, so half a second earns the next.
    assert_exact(&clock, || limiter.check("user:42"), (2, 0), Duration::from_millis(500));
    assert!(limiter.check("user:43").allowed, "users have counts of their own");
    Ok(())
}

#[test]
fn e2_ten_accounts_per_day() -> Tested {
    let clock = ManualClock::at(TUESDAY);
    let limiter = worked_examples::accounts(&clock)?;
    let address: IpAddr = Ipv4Addr::new(192, 0, 2, 7).into();
    // Until midnight in Berlin.
    let retry = Duration::from_secs(46 * 60 + 40);
    assert_exact(&clock, || limiter.check(&address), (10, 9), retry);
    // The same address, as a socket that speaks IPv6 sees it.
    let mapped: IpAddr = Ipv4Addr::new(192, 0, 2, 7).to_ipv6_mapped().into();
    assert_eq!(limiter.check(&mapped).remaining, 8);
    Ok(())
}

#[test]
fn e3_five_rewards_per_week() -> Tested {
    let clock = ManualClock::at(TUESDAY);
    let limiter = worked_examples::rewards(&clock)?;
    // Until Monday, midnight in Berlin: five days after the next midnight.
    let retry = Duration::from_secs(5 * 86_400 + 46 * 60 + 40);
    assert_exact(&clock, || limiter.check("device:7f3a"), (5, 4), retry);
    Ok(())
}

#[test]
fn e4_three_hundred_tweets_per_three_hours() -> Tested {
    let clock = ManualClock::at(TUESDAY);
    let limiter = worked_examples::tweets(&clock)?;
    let retry = Duration::from_secs(3 * 3600);
    assert_exact(&clock, || limiter.check("user:42"), (300, 299), retry);
    Ok(())
}

#[test]
fn e4_holds_in_whichever_three_hours_one_looks_at() -> Tested {
    let clock = ManualClock::at(TUESDAY);
    let limiter = worked_examples::tweets(&clock)?;
    let hour = Duration::from_secs(3600);
    for _ in 0..3 {
        assert!(limiter.on("user:42").cost(100).check().allowed);
        clock.advance(hour);
    }
    // The first hundred have just left, the second leave in an hour.
    assert!(limiter.on("user:42").cost(100).check().allowed);
    assert_eq!(limiter.check("user:42").retry, Retry::After(hour));
    Ok(())
}

#[test]
fn e5_three_buckets_for_one_user() -> Tested {
    let clock = ManualClock::at(TUESDAY);
    let [posts, friends, likes] = worked_examples::actions(&clock)?;
    // Days of 24 hours begin at midnight UTC.
    let retry = Duration::from_secs(3600 + 46 * 60 + 40);
    for (limiter, limit) in [(posts, 1), (friends, 150), (likes, 5)] {
        clock.set(TUESDAY);
        assert_exact(&clock, || limiter.check("user:42"), (limit, limit - 1), retry);
    }
    Ok(())
}

#[test]
fn e6_one_bucket_for_the_whole_system() -> Tested {
    let clock = ManualClock::at(TUESDAY);
    let limiter = worked_examples::system(&clock)?;
    assert_exact(&clock, || limiter.check(&()), (10_000, 0), Duration::from_micros(100));
    Ok(())
}

#[test]
fn e7_the_third_in_the_same_second_is_refused() -> Tested {
    let clock = ManualClock::at(TUESDAY + Duration::from_millis(250));
    let limiter = worked_examples::server(&clock)?;
    assert_exact(&clock, || limiter.check(&()), (2, 1), Duration::from_millis(750));
    Ok(())
}

#[test]
fn e8_bursts_for_each_address_and_for_the_endpoint() -> Tested {
    let clock = ManualClock::at(TUESDAY);
    let limiter = worked_examples::endpoint(&clock)?;
    let (one, other) = (Ipv4Addr::new(192, 0, 2, 7), Ipv4Addr::new(192, 0, 2, 8));
    let check = |address| limiter.check(&Each((address, ())));
    assert_exact(&clock, || check(one), (10, 0), Duration::from_millis(200));

    // The endpoint is used up, by whomever; it is the one that speaks.
    let refused = limiter.on(&Each((other, ()))).check_each();
    assert!(!refused.overall.allowed);
    assert_eq!(refused.overall.retry, Retry::After(Duration::from_millis(200)));
    assert_eq!(refused.overall.rule, 1);
    assert_eq!((refused.each[0].allowed, refused.each[0].remaining), (true, 10));
    assert_eq!((refused.each[1].allowed, refused.each[1].remaining), (false, 0));

    // A refused request took nothing from the address: once the endpoint is full, all ten pass.
    clock.advance(Duration::from_secs(2));
    assert_exact(&clock, || check(other), (10, 0), Duration::from_millis(200));
    Ok(())
}
