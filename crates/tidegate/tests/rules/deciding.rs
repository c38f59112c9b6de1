//! What becomes of a request that meets rules.

use std::time::Duration;

use tidegate::rules::{Descriptor, Entry, Options, Override, Unit};
use tidegate::{
    ManualClock, MemoryStore, Modes, Op, Query, Retry, RuleLimiter, Source, Timestamp, holder_named,
};

use crate::{Ask, check, limiter, limiter_with, opinions, remaining, rules, rules_with};

const TWO: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 3, unit: minute } }
  - { key: ip, rate_limit: { requests_per_unit: 5, unit: minute } }
";

#[test]
fn a_request_with_several_descriptors_is_all_or_nothing() {
    let limiter = limiter(TWO);
    for left in [[2, 4], [1, 3], [0, 2]] {
        let verdict = check(&limiter, &["user=ada", "ip=1"]);
        assert!(verdict.allowed);
        assert_eq!(remaining(&verdict), left);
    }
    let refused = check(&limiter, &["user=ada", "ip=1"]);
    assert!(!refused.allowed);
    assert_eq!((opinions(&refused), remaining(&refused)), (vec![false, true], vec![0, 2]));
    assert_eq!(refused.reported().unwrap().descriptor, 0);
    assert_eq!(&*refused.rule(refused.reported().unwrap()).unwrap().id, "d.user");
}

#[test]
fn descriptors_may_be_independent_as_at_lyft() {
    let mut modes = Modes::default();
    modes.independent = true;
    let limiter = limiter_with(TWO, modes);
    for _ in 0..3 {
        assert!(check(&limiter, &["user=ada", "ip=1"]).allowed);
    }
    let refused = check(&limiter, &["user=ada", "ip=1"]);
    assert!(!refused.allowed);
    // The address was counted all the same.
    assert_eq!(remaining(&refused), [0, 1]);
    assert_eq!(&*refused.rule(refused.reported().unwrap()).unwrap().id, "d.user");
}

#[test]
fn refused_requests_count_only_as_at_lyft() {
    let plain = limiter(TWO);
    let mut options = Options::default();
    options.lyft_compat = true;
    let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
    let like_lyft =
        RuleLimiter::build(MemoryStore::new(), clock, rules_with(TWO, &options), Modes::default());
    for (limiter, left) in [(&plain, 3), (&like_lyft.unwrap(), 0)] {
        let refused = Ask { cost: 100, ..Ask::new(limiter) }.descriptors(&["user=ada"]);
        assert_eq!((refused.allowed, remaining(&refused)), (false, vec![left]));
    }
}

#[test]
fn a_limit_that_comes_with_the_request_may_change_and_forgets_nothing() {
    let limiter = limiter(TWO);
    let ask = |requests_per_unit, cost| {
        let entries = [Entry::new("user", "ada")];
        let limit = Some(Override { requests_per_unit, unit: Unit::Hour });
        let descriptors = [Descriptor { limit, ..Descriptor::new(&entries) }];
        limiter.check(&Query::new("d", &descriptors).cost(cost))
    };
    assert_eq!(remaining(&ask(100, 100)), [0]);
    assert_eq!(remaining(&ask(101, 1)), [0]);
    assert!(!ask(100, 1).allowed && !ask(101, 1).allowed);
}

#[test]
fn several_limits_of_a_descriptor_are_all_or_nothing() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { requests_per_unit: 2, unit: second, name: burst }
      - { requests_per_unit: 100, unit: hour, cost: 10, name: bill }
",
    );
    assert_eq!(remaining(&check(&limiter, &["user=ada"])), [1, 90]);
    assert_eq!(remaining(&check(&limiter, &["user=ada"])), [0, 80]);
    let refused = check(&limiter, &["user=ada"]);
    assert_eq!((refused.allowed, remaining(&refused)), (false, vec![0, 80]));
}

#[test]
fn a_descriptor_may_have_a_cost_of_its_own() {
    let limiter = limiter(TWO);
    let ask = Ask { cost: 2, costs: &[None, Some(4)], ..Ask::new(&limiter) };
    let verdict = ask.descriptors(&["user=ada", "ip=1"]);
    assert_eq!((verdict.allowed, verdict.granted, remaining(&verdict)), (true, 2, vec![1, 1]));
    // Nothing is a look, and holds at exactly the limit.
    let look = Ask { costs: &[Some(1), Some(0)], ..Ask::new(&limiter) };
    assert_eq!(remaining(&look.descriptors(&["user=ada", "ip=1"])), [0, 1]);
}

#[test]
fn one_key_that_is_counted_twice_pays_twice() {
    let limiter = limiter(TWO);
    assert!(!Ask { cost: 2, ..Ask::new(&limiter) }.descriptors(&["user=ada", "user=ada"]).allowed);
    assert_eq!(remaining(&check(&limiter, &["user=ada", "user=ada"])), [1, 1]);
}

#[test]
fn a_limit_in_shadow_refuses_nobody_and_is_not_reported() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - { key: old, rate_limit: { requests_per_unit: 9, unit: minute } }
  - { key: new, shadow_mode: true, rate_limit: { requests_per_unit: 1, unit: minute } }
",
    );
    assert!(check(&limiter, &["old=x", "new=x"]).allowed);
    let verdict = check(&limiter, &["old=x", "new=x"]);
    assert!(verdict.allowed);
    assert_eq!(opinions(&verdict), [true, false]);
    assert_eq!(verdict.limits[1].decision.source, Source::Shadow);
    assert_eq!(verdict.decision.unwrap().remaining, 7);
    // Alone, it leaves nothing to report.
    let alone = check(&limiter, &["new=x"]);
    assert!(alone.allowed && alone.decision.is_none() && alone.reported().is_none());
    let json = alone.to_json();
    assert!(json.contains(r#"],"remaining":0,"retry_after_ns":0,"#), "{json}");
    assert!(json.ends_with(r#""source":"shadow"}"#), "{json}");
}

#[test]
fn quotas_refuse_together_each_with_all_its_limits() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: free
    quota_mode: true
    rate_limits:
      - { requests_per_unit: 1, unit: second }
      - { requests_per_unit: 9, unit: minute }
  - { key: paid, quota_mode: true, rate_limit: { requests_per_unit: 2, unit: minute } }
",
    );
    assert!(check(&limiter, &["free=a", "paid=a"]).allowed);
    // The free quota is over, since one of its limits is; the paid one is not.
    let second = check(&limiter, &["free=a", "paid=a"]);
    assert_eq!((second.allowed, opinions(&second)), (true, vec![false, true, true]));
    assert!(!check(&limiter, &["free=a", "paid=a"]).allowed);
    // The only quota of a request refuses it.
    assert!(!check(&limiter, &["free=a"]).allowed);
}

#[test]
fn all_rules_may_watch_or_be_quotas() {
    let mut shadow = Modes::default();
    shadow.shadow = true;
    let limiter = limiter_with(TWO, shadow);
    for _ in 0..10 {
        assert!(check(&limiter, &["user=ada"]).allowed);
    }
    let mut quota = Modes::default();
    quota.quota = true;
    let limiter = limiter_with(TWO, quota);
    for _ in 0..3 {
        assert!(check(&limiter, &["user=ada"]).allowed);
    }
    assert!(check(&limiter, &["user=ada", "ip=1"]).allowed, "the address is not over");
    assert!(check(&limiter, &["user=ada", "what=ever"]).allowed, "nothing limits `what`");
    assert!(!check(&limiter, &["user=ada"]).allowed);
}

#[test]
fn no_limit_met_is_admitted() {
    let limiter = limiter(TWO);
    let verdict = check(&limiter, &["what=ever"]);
    assert!(verdict.allowed && verdict.limits.is_empty() && verdict.knows_domain);
    assert_eq!(verdict.to_json(), r#"{"allowed":true,"limits":[]}"#);
    let entries = [Entry::new("user", "ada")];
    let descriptors = [Descriptor::new(&entries)];
    let elsewhere = limiter.check(&Query::new("other", &descriptors));
    assert!(elsewhere.allowed && !elsewhere.knows_domain);
}

#[test]
fn a_limit_that_comes_with_the_request_goes_before_the_rules() {
    let limiter = limiter(TWO);
    let entries = [Entry::new("user", "ada")];
    let limit = Some(Override { requests_per_unit: 1, unit: Unit::Hour });
    let descriptors = [Descriptor { limit, ..Descriptor::new(&entries) }];
    let query = Query::new("d", &descriptors);
    assert!(limiter.check(&query).allowed);
    let refused = limiter.check(&query);
    assert!(!refused.allowed && refused.rule(&refused.limits[0]).is_none());
    assert!(refused.to_json().contains(r#""rule":"override.1_per_hour""#), "{}", refused.to_json());
    // The rules' own limit has not been touched.
    assert_eq!(remaining(&check(&limiter, &["user=ada"])), [2]);
    // An unknown domain has no rules to go before.
    assert!(limiter.check(&Query::new("other", &descriptors)).limits.is_empty());
}

#[test]
fn a_limit_that_the_store_cannot_learn_is_seen_not_to_be_asked() {
    let store = MemoryStore::builder().max_limits(2).build();
    let rules = rules(TWO);
    let limiter = RuleLimiter::build(store, ManualClock::new(), rules, Modes::default()).unwrap();
    let entries = [Entry::new("user", "ada")];
    let limit = Some(Override { requests_per_unit: 0, unit: Unit::Hour });
    let descriptors = [Descriptor { limit, ..Descriptor::new(&entries) }];
    let verdict = limiter.check(&Query::new("d", &descriptors));
    assert!(verdict.allowed);
    assert_eq!(verdict.decision.unwrap().source, Source::Fallback);
}

/// Every number was kept by the store, a million of them, and each new one looked at all others.
#[test]
fn limits_that_come_with_requests_are_bounded_and_make_room() {
    let clock = ManualClock::new();
    let store = MemoryStore::new();
    let limiter = RuleLimiter::build(store, clock.clone(), rules(TWO), Modes::default()).unwrap();
    let source = |requests_per_unit: u32| {
        let name = requests_per_unit.to_string();
        let entries = [Entry::new("user", &name)];
        let limit = Some(Override { requests_per_unit, unit: Unit::Second });
        let descriptors = [Descriptor { limit, ..Descriptor::new(&entries) }];
        limiter.check(&Query::new("d", &descriptors)).decision.unwrap().source
    };
    assert!((1..=4096).all(|number| source(number) == Source::Store));
    assert_eq!(source(5000), Source::Fallback, "all are in use");
    assert_eq!(source(7), Source::Store, "those that are known are asked");
    // Once the keys are spent and gone, there is room for others.
    clock.advance(Duration::from_secs(10));
    limiter.store().sweep(limiter.now());
    assert!((10_000..=14_096).any(|number| source(number) == Source::Store));
}

#[test]
fn permits_are_held_by_name_and_released_without_touching_the_rates() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: job
    rate_limits:
      - { requests_per_unit: 1, algorithm: concurrency, name: slots }
      - { requests_per_unit: 9, unit: hour, name: rate }
",
    );
    let by = |name: &str| Ask { holder: Some(holder_named(name)), ..Ask::new(&limiter) };
    assert_eq!(remaining(&by("a").descriptors(&["job=x"])), [0, 8]);
    let refused = by("b").descriptors(&["job=x"]);
    assert_eq!((refused.allowed, remaining(&refused)), (false, vec![0, 8]));
    assert!(matches!(refused.decision.unwrap().retry, Retry::After(_)), "when the lease ends");
    let entries = [Entry::new("job", "x")];
    let descriptors = [Descriptor::new(&entries)];
    let query = Query::new("d", &descriptors).holder(holder_named("a"));
    let released = limiter.release_at(&query, limiter.now());
    assert_eq!((released.limits.len(), remaining(&released)), (1, vec![1]));
    assert_eq!(remaining(&by("b").descriptors(&["job=x"])), [0, 7]);
}

#[test]
fn the_other_operations_reach_the_store() {
    let limiter = limiter(TWO);
    let ask = |op, cost| Ask { op, cost, ..Ask::new(&limiter) }.descriptors(&["user=ada"]);
    assert_eq!(remaining(&ask(Op::Peek, 1)), [3]);
    let verdict = ask(Op::UpTo, 5);
    assert_eq!((verdict.granted, remaining(&verdict)), (3, vec![0]));
    assert_eq!(remaining(&ask(Op::Refund, 2)), [2]);
    assert!(ask(Op::Force, 9).allowed);
    assert_eq!(remaining(&ask(Op::Reset, 0)), [3]);
}

#[test]
fn a_share_of_the_keys_is_limited_and_stays_so() {
    let file = |percent: &str| {
        format!(
            "
domain: d
descriptors:
  - {{ key: user, percent: {percent}, rate_limit: {{ requests_per_unit: 0, unit: second }} }}
"
        )
    };
    let (ten, forty) = (limiter(&file("10%")), limiter(&file("40%")));
    let refused = |limiter, user: &u32| !check(limiter, &[&format!("user={user}")]).allowed;
    let in_ten: Vec<u32> = (0..2000).filter(|user| refused(&ten, user)).collect();
    let in_forty: Vec<u32> = (0..2000).filter(|user| refused(&forty, user)).collect();
    // By chance three standard deviations, but the same keys every time.
    assert!((160..240).contains(&in_ten.len()), "{}", in_ten.len());
    assert!((734..866).contains(&in_forty.len()), "{}", in_forty.len());
    assert!(in_ten.iter().all(|user| in_forty.contains(user)), "a larger share keeps the smaller");
}

#[test]
fn a_day_of_a_time_zone_is_a_day_there() {
    let mut options = Options::default();
    options.check_time_zone = tidegate::check_time_zone;
    let text = "
domain: d
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 1, unit: day, time_zone: America/New_York } }
";
    // 2026-03-08, when clocks go forward: 23 hours from midnight to midnight.
    let midnight = Timestamp::from_secs(1_772_946_000);
    let clock = ManualClock::at(midnight);
    let rules = rules_with(text, &options);
    let limiter =
        RuleLimiter::build(MemoryStore::new(), clock.clone(), rules, Modes::default()).unwrap();
    assert!(check(&limiter, &["user=ada"]).allowed);
    let day = Duration::from_secs(23 * 3600);
    assert_eq!(check(&limiter, &["user=ada"]).decision.unwrap().retry, Retry::After(day));
    clock.advance(day - Duration::from_nanos(1));
    assert!(!check(&limiter, &["user=ada"]).allowed);
    clock.advance(Duration::from_nanos(1));
    assert!(check(&limiter, &["user=ada"]).allowed);
}

#[test]
fn any_store_answers_the_same() {
    let limiter = limiter(TWO);
    let entries = [[Entry::new("user", "ada")], [Entry::new("ip", "1")]];
    let descriptors = entries.each_ref().map(|entries| Descriptor::new(entries));
    let query = Query::new("d", &descriptors).cost(3);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let verdict = runtime.block_on(limiter.ask_async(Op::Check, &query)).unwrap();
    assert_eq!((verdict.allowed, remaining(&verdict)), (true, vec![0, 2]));
    let refused = runtime.block_on(limiter.ask_async(Op::Check, &query)).unwrap();
    assert_eq!((refused.allowed, refused.granted), (false, 0));
}

#[test]
fn rules_change_under_way_and_keys_keep_what_they_used() {
    let limiter = limiter(TWO);
    assert!(Ask { cost: 2, ..Ask::new(&limiter) }.descriptors(&["user=ada"]).allowed);
    limiter.replace(rules(&TWO.replace("requests_per_unit: 3", "requests_per_unit: 10"))).unwrap();
    assert_eq!(remaining(&check(&limiter, &["user=ada"])), [7]);
    // A name and another place in the file change nothing.
    let moved = "
domain: d
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 5, unit: minute } }
  - { key: user, rate_limit: { requests_per_unit: 10, unit: minute, name: per-user } }
";
    limiter.replace(rules(moved)).unwrap();
    assert_eq!(remaining(&check(&limiter, &["user=ada"])), [6]);
}

#[test]
fn a_release_gives_back_nothing_of_a_limit_that_came_with_the_request() {
    let limiter = limiter(TWO);
    let entries = [Entry::new("user", "ada")];
    let limit = Some(Override { requests_per_unit: 1, unit: Unit::Hour });
    let descriptors = [Descriptor { limit, ..Descriptor::new(&entries) }];
    let query = Query::new("d", &descriptors).holder(7);
    assert!(limiter.check(&query).allowed);
    assert!(limiter.release_at(&query, limiter.now()).limits.is_empty());
    assert!(!limiter.check(&query).allowed);
}

#[test]
fn a_quota_is_one_also_if_its_first_limit_watches() {
    let text = "
domain: d
descriptors:
  - key: free
    quota_mode: true
    rate_limits:
      - { requests_per_unit: 9, unit: minute, shadow_mode: true }
      - { requests_per_unit: 1, unit: minute }
  - { key: paid, quota_mode: true, rate_limit: { requests_per_unit: 5, unit: minute } }
";
    for independent in [false, true] {
        let mut modes = Modes::default();
        modes.independent = independent;
        let limiter = limiter_with(text, modes);
        assert!(check(&limiter, &["free=a", "paid=a"]).allowed);
        assert!(check(&limiter, &["free=a", "paid=a"]).allowed, "independent: {independent}");
    }
}

#[test]
fn what_is_granted_is_what_all_descriptors_grant() {
    for independent in [false, true] {
        let mut modes = Modes::default();
        modes.independent = independent;
        let limiter = limiter_with(TWO, modes);
        let ask = Ask { op: Op::UpTo, cost: 9, ..Ask::new(&limiter) };
        assert_eq!(ask.descriptors(&["user=ada", "ip=1"]).granted, 3, "{independent}");
    }
}
