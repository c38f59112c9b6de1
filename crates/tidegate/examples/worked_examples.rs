//! Limits that everybody meets sooner or later, each as one limiter.
//!
//! `cargo run -p tidegate --example worked_examples`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tidegate::{Calendar, CalendarUnit, Each, Limit, Limiter, ManualClock, MemoryStore, Rate};

/// A limiter by a clock that stands still, so that the numbers below are exact. Leave `clock` out
/// and it goes by the machine's.
pub(crate) type Clocked = Limiter<MemoryStore, ManualClock>;
type Built<T = Clocked> = Result<T, Box<dyn Error>>;

/// E1: a user may post at most 2 new articles per second.
pub(crate) fn articles(clock: &ManualClock) -> Built {
    Ok(Limiter::builder().limit(Limit::per_second(2)).clock(clock.clone()).build()?)
}

/// E2: one address may create at most 10 accounts per day, from midnight to midnight.
pub(crate) fn accounts(clock: &ManualClock) -> Built {
    let day = Calendar::new(CalendarUnit::Day, "Europe/Berlin")?;
    Ok(Limiter::builder().calendar("accounts", 10, day).clock(clock.clone()).build()?)
}

/// E3: one device may claim a reward at most 5 times per week, from Monday on.
pub(crate) fn rewards(clock: &ManualClock) -> Built {
    let week = Calendar::new(CalendarUnit::Week, "Europe/Berlin")?;
    Ok(Limiter::builder().calendar("rewards", 5, week).clock(clock.clone()).build()?)
}

/// E4: 300 tweets per 3 hours per user, in whichever 3 hours one looks at.
pub(crate) fn tweets(clock: &ManualClock) -> Built {
    let limit = Limit::sliding_log(Rate::new(300, Duration::from_secs(3 * 3600)));
    Ok(Limiter::builder().limit(limit).clock(clock.clone()).build()?)
}

/// E5: per user and day, counted apart: 1 post, 150 new friends, 5 likes.
pub(crate) fn actions(clock: &ManualClock) -> Built<[Clocked; 3]> {
    let per_day = |units| {
        let limit = Limit::fixed_window(Rate::per_day(units));
        Limiter::builder().limit(limit).clock(clock.clone()).build()
    };
    Ok([per_day(1)?, per_day(150)?, per_day(5)?])
}

/// E6: 10,000 requests per second for the whole system, whoever sends them.
pub(crate) fn system(clock: &ManualClock) -> Built {
    Ok(Limiter::builder().limit(Limit::per_second(10_000)).clock(clock.clone()).build()?)
}

/// E7: a server that answers 2 requests in each second, and the third with a 429.
pub(crate) fn server(clock: &ManualClock) -> Built {
    let limit = Limit::fixed_window(Rate::per_second(2));
    Ok(Limiter::builder().limit(limit).clock(clock.clone()).build()?)
}

/// E8: 5 per second with bursts of 10 for each address, and the same for the whole endpoint. A
/// request passes both or takes nothing from either.
pub(crate) fn endpoint(clock: &ManualClock) -> Built {
    let limit = Limit::per_second(5).burst(10);
    let builder = Limiter::builder().named("per address", limit).named("endpoint", limit);
    Ok(builder.clock(clock.clone()).build()?)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let clock = ManualClock::new();
    // How many of so many requests are admitted, all at the same moment.
    let says = |what: &str, asked: u64, limit: u64, check: &dyn Fn() -> bool| {
        let admitted = (0..asked).filter(|_| check()).count() as u64;
        println!("{what}: {admitted} of {asked}");
        assert_eq!(admitted, limit, "{what}");
    };
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    let limiter = articles(&clock)?;
    says("articles per second", 5, 2, &|| limiter.check("user:42").allowed);
    let limiter = accounts(&clock)?;
    says("accounts per day", 20, 10, &|| limiter.check(&address).allowed);
    let limiter = rewards(&clock)?;
    says("rewards per week", 20, 5, &|| limiter.check("device:7f3a").allowed);
    let limiter = tweets(&clock)?;
    says("tweets per 3 hours", 400, 300, &|| limiter.check("user:42").allowed);
    let [posts, friends, likes] = actions(&clock)?;
    says("posts per day", 20, 1, &|| posts.check("user:42").allowed);
    says("friends per day", 200, 150, &|| friends.check("user:42").allowed);
    says("likes per day", 20, 5, &|| likes.check("user:42").allowed);
    let limiter = system(&clock)?;
    says("requests of the system", 12_000, 10_000, &|| limiter.check(&()).allowed);
    let limiter = server(&clock)?;
    says("requests of a second", 3, 2, &|| limiter.check(&()).allowed);
    let limiter = endpoint(&clock)?;
    says("endpoint, one address", 20, 10, &|| limiter.check(&Each((address, ()))).allowed);
    Ok(())
}
