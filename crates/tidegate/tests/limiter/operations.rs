//! Every way to ask one limit, and that asking async gives the same answers.

use std::time::Duration;

use tidegate::{Decision, Decisions, Limit, ManualClock, MemoryError, Rate, Retry, Source};

use crate::{Clocked, NANOSECOND, SECOND, at_once, every_algorithm, limiter, limiter_of};

#[test]
fn a_check_says_everything_about_itself() {
    let (_, limiter) = limiter(Limit::per_second(5).burst(10));
    let expected = Decision {
        allowed: true,
        limit: 10,
        remaining: 9,
        retry: Retry::Now,
        reset_after: Some(Duration::from_millis(200)),
        delay: Duration::ZERO,
        rule: 0,
        source: Source::Store,
        soft: false,
    };
    assert_eq!(limiter.check("user:42"), expected);
    let refused = limiter.on("user:42").cost(10).check();
    let expected =
        Decision { allowed: false, retry: Retry::After(Duration::from_millis(200)), ..expected };
    assert_eq!(refused, expected);
}

#[test]
fn a_peek_answers_as_a_check_would_and_takes_nothing() {
    for limit in every_algorithm() {
        let (_, limiter) = limiter(limit);
        for cost in [1, 3, 6, 7] {
            let peeked = limiter.on("user:42").cost(cost).peek();
            assert_eq!(limiter.on("user:42").cost(cost).peek(), peeked, "{limit}, cost {cost}");
            assert!(limiter.store().is_empty(), "{limit}, cost {cost}");
            let checked = limiter.on("user:42").cost(cost).check();
            let said = |decision: &Decision| (decision.allowed, decision.retry, decision.delay);
            assert_eq!(said(&peeked), said(&checked), "{limit}, cost {cost}");
            let _ = limiter.reset("user:42");
        }
    }
}

#[test]
fn cost_zero_is_a_peek() {
    for limit in every_algorithm() {
        let (_, limiter) = limiter(limit);
        assert!(limiter.on("user:42").cost(0).check().allowed, "{limit}");
        assert!(limiter.store().is_empty(), "{limit}");
    }
}

#[test]
fn a_refused_request_consumes_nothing() {
    for limit in every_algorithm() {
        let (_, limiter) = limiter(limit);
        assert!(limiter.on("user:42").cost(4).check().allowed, "{limit}");
        let before = limiter.peek("user:42");
        for _ in 0..3 {
            let _ = limiter.on("user:42").cost(u64::MAX - 1).check();
        }
        assert_eq!(limiter.peek("user:42"), before, "{limit}");
    }
}

#[test]
fn more_than_the_limit_can_hold_is_never_admitted() {
    let (_, limiter) = limiter(Limit::per_second(5).burst(10));
    assert!(limiter.on("user:42").cost(10).peek().allowed);
    let refused = limiter.on("user:42").cost(11).check();
    assert_eq!((refused.allowed, refused.retry, refused.remaining), (false, Retry::Never, 10));
}

#[test]
fn up_to_takes_what_there_is() {
    let (_, limiter) = limiter(Limit::per_minute(100));
    assert!(limiter.on("user:42").cost(60).check().allowed);
    let taken = limiter.on("user:42").cost(60).up_to();
    assert_eq!((taken.overall.allowed, taken.granted, taken.overall.remaining), (true, 40, 0));
    // Nothing is a refusal, and says when there is something.
    let nothing = limiter.on("user:42").cost(60).up_to();
    assert_eq!((nothing.overall.allowed, nothing.granted), (false, 0));
    assert_eq!(nothing.overall.retry, Retry::After(Duration::from_millis(600)));
    assert_eq!(limiter.up_to("user:43", 150), 100);
    assert_eq!(limiter.up_to("user:43", 150), 0);
}

#[test]
fn up_to_takes_what_all_limits_have() {
    let (_, limiter) =
        limiter_of([Limit::per_minute(100), Limit::fixed_window(Rate::per_hour(70))]);
    assert_eq!(limiter.up_to("user:42", 200), 70);
    let left = limiter.on("user:42").cost(0).check_each();
    assert_eq!((left.each[0].remaining, left.each[1].remaining), (30, 0));
}

#[test]
fn force_goes_into_debt() {
    let (clock, limiter) = limiter(Limit::per_second(2));
    assert_eq!(limiter.force("user:42").retry, Retry::Now);
    assert_eq!(limiter.force("user:42").remaining, 0);
    // The third is beyond the limit, and is paid for in half a second.
    let debt = limiter.force("user:42");
    assert_eq!((debt.allowed, debt.remaining), (true, 0));
    assert_eq!(debt.retry, Retry::After(SECOND / 2));
    assert_eq!(debt.reset_after, Some(SECOND * 3 / 2));
    // The next waits for its own unit, too.
    assert_eq!(limiter.check("user:42").retry, Retry::After(SECOND));
    clock.advance(SECOND - NANOSECOND);
    assert!(!limiter.check("user:42").allowed);
    clock.advance(NANOSECOND);
    assert!(limiter.check("user:42").allowed);
}

#[test]
fn refund_gives_back_and_never_above_full() {
    let (_, limiter) = limiter(Limit::fixed_window(Rate::per_hour(5)));
    assert!(limiter.on("user:42").cost(4).check().allowed);
    assert_eq!(limiter.refund("user:42", 3).remaining, 4);
    assert_eq!(limiter.refund("user:42", 3).remaining, 5);
    assert_eq!(limiter.on("user:42").cost(u64::MAX).refund().remaining, 5);
    // Of a key that was never seen, nothing comes back.
    assert_eq!(limiter.refund("user:43", 3).remaining, 5);
    assert_eq!(limiter.up_to("user:43", 10), 5);
}

#[test]
fn reset_forgets_a_key_and_no_other() {
    for limit in every_algorithm() {
        let (_, limiter) = limiter(limit);
        for key in ["user:42", "user:43"] {
            assert!(limiter.on(key).cost(4).check().allowed, "{limit}");
        }
        let (used, fresh) = (limiter.peek("user:43"), limiter.peek("user:44"));
        let _ = limiter.reset("user:42");
        assert_eq!(limiter.peek("user:42"), fresh, "{limit}");
        assert_eq!(limiter.peek("user:43"), used, "{limit}");
    }
}

#[test]
fn a_soft_limit_says_so() {
    let (_, limiter) = limiter(Limit::per_minute(10).soft(20, SECOND));
    assert!(!limiter.on("user:42").cost(10).check().soft);
    let above = limiter.on("user:42").cost(2).check();
    assert_eq!((above.allowed, above.soft, above.limit, above.remaining), (true, true, 10, 0));
    assert!(!limiter.check("user:42").allowed);
}

/// An answer in a form that compares.
type Said = (Decision, u64, Vec<Decision>);

fn all_of(decisions: Decisions) -> Said {
    (decisions.overall, decisions.granted, decisions.each.to_vec())
}

fn one(decision: Decision) -> Said {
    (decision, 0, Vec::new())
}

/// Every operation in turn, with time passing in between.
fn ask_everything(clock: &ManualClock, limiter: &Clocked) -> Vec<Said> {
    let mut said = Vec::new();
    for cost in [1, 2, 5, 0, 3] {
        let on = || limiter.on("user:42").cost(cost);
        said.push(one(on().peek()));
        said.push(one(on().check()));
        said.push(all_of(on().check_each()));
        said.push(all_of(on().up_to()));
        clock.advance(SECOND / 7);
        said.push(one(on().force()));
        said.push(one(on().refund()));
        said.push(one(on().check()));
    }
    said.push(one(limiter.on("user:42").reset()));
    said.push(one(limiter.on("user:42").peek()));
    said
}

async fn ask_everything_async(
    clock: &ManualClock,
    limiter: &Clocked,
) -> Result<Vec<Said>, MemoryError> {
    let mut said = Vec::new();
    for cost in [1, 2, 5, 0, 3] {
        let on = || limiter.on("user:42").cost(cost);
        said.push(one(on().peek_async().await?));
        said.push(one(on().check_async().await?));
        said.push(all_of(on().check_each_async().await?));
        said.push(all_of(on().up_to_async().await?));
        clock.advance(SECOND / 7);
        said.push(one(on().force_async().await?));
        said.push(one(on().refund_async().await?));
        said.push(one(on().check_async().await?));
    }
    said.push(one(limiter.on("user:42").reset_async().await?));
    said.push(one(limiter.on("user:42").peek_async().await?));
    Ok(said)
}

#[test]
fn async_forms_give_the_same_answers() {
    let alone = every_algorithm().map(|limit| vec![limit]);
    let together = vec![
        Limit::per_second(6),
        Limit::fixed_window(Rate::per_minute(9)),
        Limit::sliding_log(Rate::per_hour(20)),
    ];
    for limits in alone.into_iter().chain([together]) {
        let (clock, plain) = limiter_of(limits.clone());
        let (other_clock, other) = limiter_of(limits.clone());
        let said = ask_everything(&clock, &plain);
        let said_async = at_once(ask_everything_async(&other_clock, &other)).unwrap();
        assert_eq!(said, said_async, "{limits:?}");
        let (yes, no): (Vec<_>, Vec<_>) = said.iter().partition(|(overall, ..)| overall.allowed);
        let is_warm_up = limits.len() == 1 && limits[0].warm_up.is_some();
        assert!(!yes.is_empty() && (is_warm_up || !no.is_empty()), "both answers: {limits:?}");
    }
}
