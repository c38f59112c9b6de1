//! What the statuses of an answer say.

use std::time::Duration;

use tidegate::{DESCRIPTORS_MAX, Timestamp};
use tidegate_proto::Code::{Ok as Fine, OverLimit};
use tidegate_proto::{DescriptorStatus, RateLimitDescriptor, RateLimitUnit, Unit};
use tonic::Code;

use crate::support::{
    NOW, Running, Setup, ask, codes, descriptor, domain, only, request, seconds, send, with_limit,
};

#[tokio::test]
async fn a_fixed_window_from_the_first_request_to_the_next_window() {
    let rules = "
  - key: user
    rate_limit: { name: per-user, requests_per_unit: 2, unit: minute }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    for (code, remaining) in [(Fine, 1), (Fine, 0), (OverLimit, 0)] {
        let response = ask(&mut client, &["user=ada"]).await;
        assert_eq!(response.overall_code(), code);
        let status = only(&response);
        assert_eq!((status.code(), status.limit_remaining), (code, remaining));
        // To the window's end, also for those who may go on.
        assert_eq!(seconds(status), 26);
        let limit = status.current_limit.clone().unwrap();
        assert_eq!(
            (limit.requests_per_unit, limit.unit(), &*limit.name),
            (2, Unit::Minute, "per-user")
        );
        assert!(response.response_headers_to_add.is_empty());
        assert_eq!(response.dynamic_metadata, None);
    }
    assert_eq!(only(&ask(&mut client, &["user=bob"]).await).limit_remaining, 1);
    running.advance(Duration::from_secs(26) - Duration::from_nanos(1));
    let response = ask(&mut client, &["user=ada"]).await;
    assert_eq!((response.overall_code(), seconds(only(&response))), (OverLimit, 1));
    running.advance(Duration::from_nanos(1));
    let response = ask(&mut client, &["user=ada"]).await;
    assert_eq!((response.overall_code(), seconds(only(&response))), (Fine, 60));
}

#[tokio::test]
async fn a_window_that_counted_nothing_ends_all_the_same() {
    let rules = "
  - { key: plain, rate_limit: { requests_per_unit: 5, unit: minute } }
  - { key: blocked, rate_limit: { requests_per_unit: 0, unit: hour } }
  - { key: own, rate_limit: { requests_per_unit: 5, unit: minute, align: first_request } }
  - { key: berlin, rate_limit: { requests_per_unit: 5, unit: day, time_zone: Europe/Berlin } }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    // More than fits, so that nothing is counted.
    for (key, end) in [("plain", 26), ("own", 60), ("berlin", 86_400 - 3600 - 1234)] {
        let asked = request(&[RateLimitDescriptor {
            hits_addend: Some(6),
            ..descriptor(&format!("{key}=x"))
        }]);
        let response = send(&mut client, asked).await.unwrap();
        assert_eq!(response.overall_code(), OverLimit, "{key}");
        assert_eq!(only(&response).limit_remaining, 5, "{key}: a refusal takes nothing");
        assert_eq!(seconds(only(&response)), end, "{key}");
    }
    let response = ask(&mut client, &["blocked=x"]).await;
    assert_eq!((response.overall_code(), seconds(only(&response))), (OverLimit, 3600 - 1234));
    // A window of its own has an end of its own once it counts.
    ask(&mut client, &["own=x"]).await;
    running.advance(Duration::from_secs(20));
    assert_eq!(seconds(only(&ask(&mut client, &["own=x"]).await)), 40);
}

#[tokio::test]
async fn other_algorithms_tell_the_retry_or_when_all_is_new() {
    let rules = "
  - key: bucket
    rate_limit: { requests_per_unit: 2, unit: minute, burst: 4, algorithm: token_bucket }
  - { key: fast, rate_limit: { requests_per_unit: 10, unit: second, algorithm: gcra } }
  - { key: few, rate_limit: { requests_per_unit: 1, algorithm: concurrency, lease: 10s } }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    for used in 1..=4 {
        let response = ask(&mut client, &["bucket=x"]).await;
        assert_eq!((response.overall_code(), seconds(only(&response))), (Fine, used * 30));
        assert_eq!(i64::from(only(&response).limit_remaining), 4 - used);
        assert_eq!(only(&response).current_limit.clone().unwrap().requests_per_unit, 2);
    }
    running.advance(Duration::from_millis(500));
    let response = ask(&mut client, &["bucket=x"]).await;
    // 29.5 seconds, and nobody comes early.
    assert_eq!((response.overall_code(), seconds(only(&response))), (OverLimit, 30));
    // More than it ever holds: what can be said is when it is full.
    let asked = request(&[RateLimitDescriptor { hits_addend: Some(5), ..descriptor("bucket=x") }]);
    let response = send(&mut client, asked).await.unwrap();
    assert_eq!((response.overall_code(), seconds(only(&response))), (OverLimit, 120));

    assert_eq!(seconds(only(&ask(&mut client, &["fast=x"]).await)), 1, "at least one");
    ask(&mut client, &["few=x"]).await;
    let response = ask(&mut client, &["few=x"]).await;
    assert_eq!((response.overall_code(), seconds(only(&response))), (OverLimit, 10));
}

#[tokio::test]
async fn units_are_those_of_the_rules_where_there_is_one() {
    let rules = "
  - { key: second, rate_limit: { requests_per_unit: 9, unit: second } }
  - { key: minute, rate_limit: { requests_per_unit: 9, unit: minute } }
  - { key: hour, rate_limit: { requests_per_unit: 9, unit: hour } }
  - { key: day, rate_limit: { requests_per_unit: 9, unit: day } }
  - { key: week, rate_limit: { requests_per_unit: 9, unit: week } }
  - { key: month, rate_limit: { requests_per_unit: 9, unit: month } }
  - { key: year, rate_limit: { requests_per_unit: 9, unit: year } }
  - { key: sixty, rate_limit: { requests_per_unit: 9, per: 60m } }
  - { key: odd, rate_limit: { requests_per_unit: 9, per: 30s } }
  - { key: many, rate_limit: { requests_per_unit: 9, unit: hour, unit_multiplier: 3 } }
  - { key: permits, rate_limit: { requests_per_unit: 9, algorithm: concurrency } }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    let units = [
        ("second", Unit::Second),
        ("minute", Unit::Minute),
        ("hour", Unit::Hour),
        ("day", Unit::Day),
        ("week", Unit::Week),
        ("month", Unit::Month),
        ("year", Unit::Year),
        ("sixty", Unit::Hour),
        ("odd", Unit::Unknown),
        ("many", Unit::Unknown),
        ("permits", Unit::Unknown),
    ];
    for (key, unit) in units {
        let response = ask(&mut client, &[&format!("{key}=x")]).await;
        let limit = only(&response).current_limit.clone().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit(), &*limit.name), (9, unit, ""), "{key}");
    }
}

#[tokio::test]
async fn no_limit_and_unlimited_are_two_things() {
    let running = Running::with("  - { key: free, rate_limit: { unlimited: true } }\n").await;
    let mut client = running.client().await;
    let nothing = DescriptorStatus { code: Fine.into(), ..DescriptorStatus::default() };
    let free = DescriptorStatus { limit_remaining: u32::MAX, ..nothing.clone() };
    let response = ask(&mut client, &["free=x", "other=x", "free=x sub=y"]).await;
    assert_eq!(response.statuses, [free, nothing.clone(), nothing.clone()]);
    assert_eq!(response.overall_code(), Fine);

    let mut elsewhere = request(&[descriptor("free=x")]);
    elsewhere.domain = "nobody's".into();
    let response = send(&mut client, elsewhere).await.unwrap();
    assert_eq!((response.overall_code(), response.statuses), (Fine, vec![nothing]));
}

#[tokio::test]
async fn a_limit_in_shadow_refuses_nobody() {
    let rules = "
  - { key: user, shadow_mode: true, rate_limit: { requests_per_unit: 1, unit: minute } }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    for _ in 0..3 {
        let response = ask(&mut client, &["user=ada"]).await;
        assert_eq!((response.overall_code(), codes(&response)), (Fine, vec![Fine]));
        assert_eq!(only(&response).limit_remaining, 0);
        assert_eq!(only(&response).current_limit.clone().unwrap().requests_per_unit, 1);
    }
}

#[tokio::test]
async fn all_in_shadow_says_who_is_over_and_lets_pass() {
    let mut setup = Setup::new(&domain(
        "  - { key: user, rate_limit: { requests_per_unit: 1, unit: minute } }\n",
    ));
    setup.modes.shadow = true;
    let running = setup.start().await;
    let mut client = running.client().await;
    ask(&mut client, &["user=ada"]).await;
    let response = ask(&mut client, &["user=ada"]).await;
    assert_eq!((response.overall_code(), codes(&response)), (Fine, vec![OverLimit]));
}

#[tokio::test]
async fn of_quotas_one_is_enough() {
    let rules = "
  - { key: a, quota_mode: true, rate_limit: { requests_per_unit: 1, unit: minute } }
  - { key: b, quota_mode: true, rate_limit: { requests_per_unit: 2, unit: minute } }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    for (code, each) in
        [(Fine, [Fine, Fine]), (Fine, [OverLimit, Fine]), (OverLimit, [OverLimit, OverLimit])]
    {
        let response = ask(&mut client, &["a=x", "b=x"]).await;
        assert_eq!((response.overall_code(), codes(&response)), (code, each.to_vec()));
    }
}

#[tokio::test]
async fn several_limits_of_a_descriptor_have_one_status() {
    let rules = "
  - key: user
    rate_limits:
      - { name: often, requests_per_unit: 3, unit: second, algorithm: token_bucket }
      - { name: daily, requests_per_unit: 4, unit: day }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    let told = async |client: &mut _| {
        let response = ask(client, &["user=ada"]).await;
        let status = only(&response).clone();
        let name = status.current_limit.as_ref().unwrap().name.clone();
        (status.code(), name, status.limit_remaining, seconds(&status))
    };
    // The one nearest to its end.
    assert_eq!(told(&mut client).await, (Fine, "often".into(), 2, 1));
    told(&mut client).await;
    told(&mut client).await;
    assert_eq!(told(&mut client).await, (OverLimit, "often".into(), 0, 1));
    running.advance(Duration::from_secs(2));
    assert_eq!(told(&mut client).await, (Fine, "daily".into(), 0, 86_400 - 1236));
    // The one that refuses.
    assert_eq!(told(&mut client).await, (OverLimit, "daily".into(), 0, 86_400 - 1236));
}

#[tokio::test]
async fn a_limit_that_watches_is_told_only_where_no_other_is() {
    let rules = "
  - key: user
    rate_limits:
      - { name: watching, requests_per_unit: 1, unit: second, shadow_mode: true }
      - { name: real, requests_per_unit: 3, unit: day }
  - key: guest
    rate_limits:
      - { name: wide, requests_per_unit: 9, unit: day, shadow_mode: true }
      - { name: tight, requests_per_unit: 1, unit: day, shadow_mode: true }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    ask(&mut client, &["user=ada", "guest=bob"]).await;
    let response = ask(&mut client, &["user=ada", "guest=bob"]).await;
    assert_eq!((response.overall_code(), codes(&response)), (Fine, vec![Fine, Fine]));
    let told = response
        .statuses
        .iter()
        .map(|status| (&*status.current_limit.as_ref().unwrap().name, status.limit_remaining));
    assert_eq!(told.collect::<Vec<_>>(), [("real", 1), ("tight", 0)]);
}

#[tokio::test]
async fn a_descriptor_that_refuses_spares_the_others() {
    let rules = "
  - { key: a, rate_limit: { requests_per_unit: 1, unit: minute } }
  - { key: b, rate_limit: { requests_per_unit: 9, unit: minute } }
";
    let running = Running::with(rules).await;
    let mut client = running.client().await;
    ask(&mut client, &["a=x", "b=x"]).await;
    for _ in 0..3 {
        let response = ask(&mut client, &["a=x", "b=x", "c=x"]).await;
        assert_eq!(response.overall_code(), OverLimit);
        assert_eq!(codes(&response), [OverLimit, Fine, Fine]);
        assert_eq!(response.statuses[1].limit_remaining, 8);
    }
}

#[tokio::test]
async fn a_limit_that_comes_along_stands_in_for_the_rules() {
    let running =
        Running::with("  - { key: user, rate_limit: { requests_per_unit: 100, unit: day } }\n")
            .await;
    let mut client = running.client().await;
    let until = |length: u64| i64::try_from(length - 1234 % length).unwrap();
    for (unit, wire, end) in [
        (RateLimitUnit::Second, Unit::Second, 1),
        (RateLimitUnit::Minute, Unit::Minute, until(60)),
        (RateLimitUnit::Hour, Unit::Hour, until(3600)),
        (RateLimitUnit::Day, Unit::Day, until(86_400)),
        (RateLimitUnit::Month, Unit::Month, until(30 * 86_400)),
        (RateLimitUnit::Year, Unit::Year, until(365 * 86_400)),
    ] {
        let asked = request(&[with_limit("user=ada", 1, unit)]);
        for code in [Fine, OverLimit] {
            let response = send(&mut client, asked.clone()).await.unwrap();
            assert_eq!(response.overall_code(), code, "{unit:?}");
            let limit = only(&response).current_limit.clone().unwrap();
            assert_eq!((limit.requests_per_unit, limit.unit(), &*limit.name), (1, wire, ""));
            assert_eq!(seconds(only(&response)), end, "{unit:?}");
        }
    }
    let none = request(&[with_limit("user=eve", 0, RateLimitUnit::Hour)]);
    let response = send(&mut client, none).await.unwrap();
    assert_eq!((response.overall_code(), seconds(only(&response))), (OverLimit, until(3600)));
}

#[tokio::test]
async fn what_is_no_question_is_told_so() {
    let running =
        Running::with("  - { key: user, rate_limit: { requests_per_unit: 1, unit: day } }\n").await;
    let mut client = running.client().await;
    let good = descriptor("user=ada");
    let mut wrong = Vec::new();
    let mut nowhere = request(std::slice::from_ref(&good));
    nowhere.domain.clear();
    wrong.push((nowhere, "rate limit domain must not be empty"));
    wrong.push((request(&[]), "rate limit descriptor list must not be empty"));
    let many = vec![descriptor("other=x"); DESCRIPTORS_MAX + 1];
    wrong.push((request(&many), "more than 1000 descriptors: it has 1001"));
    let empty = RateLimitDescriptor::default();
    wrong.push((request(&[good.clone(), empty]), "descriptors[1] has no entries"));
    let unknown = with_limit("user=ada", 1, RateLimitUnit::Unknown);
    wrong.push((
        request(&[good.clone(), unknown.clone()]),
        "descriptors[1] has no known unit: UNKNOWN",
    ));
    for strange in [7, 99, -1] {
        let mut limit = unknown.clone();
        limit.limit.as_mut().unwrap().unit = strange;
        wrong.push((request(&[good.clone(), limit]), "no known unit"));
    }
    for (asked, told) in wrong {
        let status = send(&mut client, asked).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(told), "{status}");
    }
    // None of them has cost anything.
    assert_eq!(ask(&mut client, &["user=ada"]).await.overall_code(), Fine);
    let full = vec![descriptor("other=x"); DESCRIPTORS_MAX];
    assert_eq!(send(&mut client, request(&full)).await.unwrap().statuses.len(), DESCRIPTORS_MAX);
}

#[tokio::test]
async fn a_clock_that_goes_back_makes_no_answer_shorter() {
    let running =
        Running::with("  - { key: user, rate_limit: { requests_per_unit: 1, unit: minute } }\n")
            .await;
    let mut client = running.client().await;
    ask(&mut client, &["user=ada"]).await;
    running.clock.set(Timestamp::from_secs(NOW.as_nanos() / 1_000_000_000 - 100));
    let response = ask(&mut client, &["user=ada"]).await;
    assert_eq!((response.overall_code(), seconds(only(&response))), (OverLimit, 126));
}
