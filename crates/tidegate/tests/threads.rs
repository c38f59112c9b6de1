//! Many threads on one key while time stands still: exactly the limit, not one more or less.

#![allow(clippy::unwrap_used, reason = "tests say what they expect")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::{
    Calendar, CalendarUnit, Each, Inherit, Limit, LimitSpec, Limiter, ManualClock, MemoryStore,
    Rate, Refill,
};

type Clocked = Limiter<MemoryStore, ManualClock>;

const THREADS: usize = 8;
const LIMIT: u64 = 1000;
/// Twice the limit between all of them.
const EACH: u64 = 2 * LIMIT / THREADS as u64;

fn limiter(limits: impl IntoIterator<Item = LimitSpec>) -> Clocked {
    let builder = Limiter::builder().clock(ManualClock::new());
    limits.into_iter().fold(builder, |builder, limit| builder.limit(limit)).build().unwrap()
}

/// What all threads make of it together; each knows its number.
fn sum(work: impl Fn(u64) -> u64 + Sync) -> u64 {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS as u64).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// How many of many checks are admitted.
fn admitted(limiter: &Clocked) -> u64 {
    sum(|_| (0..EACH).filter(|_| limiter.check("user:42").allowed).count() as u64)
}

fn every_algorithm() -> [LimitSpec; 12] {
    let rate = Rate::per_hour(LIMIT);
    let hour = Duration::from_secs(3600);
    [
        Limit::token_bucket(rate),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::token_bucket(rate).refill(Refill::IntervalAligned),
        Limit::token_bucket(Rate::per_hour(7)).burst(LIMIT),
        Limit::leaky_bucket(rate),
        Limit::leaky_queue(rate, LIMIT - 1),
        Limit::fixed_window(rate),
        Limit::sliding_log(rate),
        Limit::sliding_counter(rate),
        Limit::gcra(rate),
        Limit::concurrency(LIMIT),
        // A soft limit admits a quarter more for a while, here all of it.
        Limit::fixed_window(Rate::per_hour(LIMIT * 4 / 5)).soft(25, hour),
    ]
}

#[test]
fn every_algorithm_admits_exactly_its_limit() {
    for limit in every_algorithm() {
        let limiter = limiter([limit]);
        assert_eq!(admitted(&limiter), LIMIT, "{limit}");
        assert_eq!(limiter.peek("user:42").remaining, 0, "{limit}");
    }
}

#[test]
fn a_warm_up_admits_what_one_thread_would_get() {
    let limit = Limit::warm_up(Rate::per_second(10), Duration::from_secs(5));
    let limit = limit.max_delay(Duration::from_secs(60));
    let alone = limiter([limit]);
    let expected = (0..2 * LIMIT).filter(|_| alone.check("user:42").allowed).count() as u64;
    assert!(0 < expected && expected < 2 * LIMIT);
    assert_eq!(admitted(&limiter([limit])), expected);
}

#[test]
fn a_calendar_admits_exactly_its_limit() {
    let day = Calendar::new(CalendarUnit::Day, "Europe/Berlin").unwrap();
    let limiter =
        Limiter::builder().calendar("daily", LIMIT, day).clock(ManualClock::new()).build().unwrap();
    assert_eq!(admitted(&limiter), LIMIT);
}

#[test]
fn three_limits_admit_the_least_of_them_and_none_leaks() {
    let limiter = limiter([
        Limit::per_hour(700),
        Limit::fixed_window(Rate::per_hour(500)),
        Limit::sliding_log(Rate::per_hour(900)),
    ]);
    assert_eq!(admitted(&limiter), 500);
    let left = limiter.on("user:42").cost(0).check_each();
    let left: Vec<u64> = left.each.iter().map(|decision| decision.remaining).collect();
    assert_eq!(left, [200, 0, 400]);
}

#[test]
fn three_buckets_admit_the_least_of_them_and_none_leaks() {
    // All of a kind that is decided in one go.
    let limiter = limiter([Limit::per_hour(700), Limit::per_hour(500), Limit::per_hour(900)]);
    assert_eq!(admitted(&limiter), 500);
    let left = limiter.on("user:42").cost(0).check_each();
    let left: Vec<u64> = left.each.iter().map(|decision| decision.remaining).collect();
    assert_eq!(left, [200, 0, 400]);
}

#[test]
fn a_part_of_the_key_that_all_share_is_exact_too() {
    let limiter = limiter([Limit::per_hour(200), Limit::per_hour(LIMIT)]);
    let admitted = sum(|number| {
        let key = Each((number, "everybody"));
        (0..EACH).filter(|_| limiter.check(&key).allowed).count() as u64
    });
    // Eight times 200 would be more than everybody together may have.
    assert_eq!(admitted, LIMIT);
    let left = |number: u64| limiter.on(&Each((number, "x"))).cost(0).check_each();
    let used: u64 = (0..THREADS as u64).map(|number| 200 - left(number).each[0].remaining).sum();
    assert_eq!(used, LIMIT, "who was refused took nothing from its own");
}

#[test]
fn costs_of_different_size_add_up() {
    for limit in every_algorithm() {
        let limiter = limiter([limit]);
        let taken = sum(|number| {
            let costs = (0..EACH).map(|round| 1 + (number + round) % 7);
            costs.filter(|cost| limiter.on("user:42").cost(*cost).check().allowed).sum()
        });
        // Requests for one unit came last and often, so nothing is left.
        assert_eq!(taken, LIMIT, "{limit}");
    }
}

#[test]
fn parts_of_what_there_is_add_up() {
    for limit in every_algorithm() {
        let limiter = limiter([limit]);
        let taken = sum(|number| {
            (0..EACH).map(|round| limiter.up_to("user:42", 1 + (number + round) % 7)).sum()
        });
        assert_eq!(taken, LIMIT, "{limit}");
    }
}

#[test]
fn what_is_given_back_is_there_again() {
    for limit in every_algorithm() {
        // A slot of a queue comes back only if nobody is behind it.
        if limit.queue.is_some() {
            continue;
        }
        let limiter = limiter([limit]);
        let kept = sum(|number| {
            let mut kept = 0;
            for round in 0..EACH {
                match limiter.on("user:42").cost(3).try_reserve() {
                    Ok(reserved) if (number + round) % 3 == 0 => reserved.cancel(),
                    Ok(reserved) => {
                        reserved.settle(1);
                        kept += 1;
                    }
                    Err(_) => {}
                }
            }
            kept
        });
        assert!(0 < kept && kept <= LIMIT, "{limit}");
        assert_eq!(limiter.up_to("user:42", 2 * LIMIT), LIMIT - kept, "{limit}");
    }
}

#[test]
fn permits_are_never_held_by_more_than_the_limit() {
    let limiter = limiter([Limit::concurrency(3)]);
    let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let entered = sum(|_| {
        let mut entered = 0;
        for _ in 0..2000 {
            let Ok(permit) = limiter.on("user:42").acquire() else { continue };
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            inside.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
            entered += 1;
        }
        entered
    });
    assert!(entered > 0);
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!(limiter.peek("user:42").remaining, 3);
}

#[test]
fn limits_that_change_meanwhile_stay_exact() {
    let limiter = limiter([Limit::per_hour(LIMIT / 2)]);
    let admitted = sum(|number| {
        let mut admitted = 0;
        for round in 0..EACH {
            if number == 0 && round == EACH / 2 {
                let more = [("limit-0", Limit::per_hour(LIMIT))];
                limiter.replace(more, Inherit::Used).unwrap();
            }
            admitted += u64::from(limiter.check("user:42").allowed);
        }
        admitted
    });
    // The last of them may have asked before the limit was raised.
    let rest = (0..LIMIT).filter(|_| limiter.check("user:42").allowed).count() as u64;
    assert_eq!(admitted + rest, LIMIT);
}
