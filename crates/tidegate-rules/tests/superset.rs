//! What the rules have beyond Lyft's format: every field's default, its company, its refusals.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::time::Duration;

use common::{
    errors, limit, limit_errors, load, met, met_with_keys, report, rules, warnings, with_limit,
};
use tidegate_core::{AlgorithmName, Align, Compare, Lease, Refill};
use tidegate_rules::{Excess, File, OnStoreError, Options, Rules, Unit};

const DAY: &str = "requests_per_unit: 10, unit: day";

/// What is said of fields that are added to a limit of ten per day.
#[track_caller]
fn refused(fields: &str, wanted: &str) {
    let column = with_limit(&format!("{DAY}, {fields}"));
    let column = column.lines().nth(3).unwrap().find(DAY).unwrap() + DAY.len() + 3;
    let said = limit_errors(&format!("{DAY}, {fields}"));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].ends_with(wanted), "{fields}: {said:?}");
    assert!(said[0].starts_with("4:"), "{fields}: {said:?}");
    let found: usize = said[0][2..].split(' ').next().unwrap().parse().unwrap();
    assert!(found >= column || wanted.contains("needs"), "{fields}: {said:?} before {column}");
}

fn ten(fields: &str) -> tidegate_rules::Rule {
    limit(&format!("{DAY}, {fields}"))
}

#[test]
fn without_a_field_its_default_holds() {
    let rule = limit(DAY);
    let spec = rule.limit.spec();
    assert_eq!(spec.algorithm, AlgorithmName::FixedWindow);
    assert_eq!((spec.align, spec.count_rejected, spec.soft.is_none()), (Align::Epoch, false, true));
    assert_eq!((rule.cost, rule.shadow, rule.quota, rule.enabled), (1, false, false, true));
    assert_eq!((rule.percent_bp, rule.exempt.is_none(), rule.calendar), (10_000, true, None));
    assert_eq!((rule.excess, rule.on_store_error), (Excess::Reject, OnStoreError::Allow));
    assert_eq!((rule.name, &*rule.id), (None, "d.k"));
    let bucket = ten("algorithm: token_bucket");
    assert_eq!((bucket.limit.limit(), bucket.limit.spec().refill), (10, Refill::Greedy));
    assert_eq!(bucket.limit.spec().initial, None);
    let counter = ten("algorithm: sliding_window_counter");
    assert_eq!(counter.limit.spec().compare, Compare::Floor);
    let queue = ten("algorithm: leaky_bucket, queue: {size: 4}");
    assert_eq!((queue.limit.limit(), queue.limit.spec().queue.unwrap().max_delay), (5, None));
    let cold = ten("algorithm: warm_up, warm_up: {period: 4s}");
    assert_eq!(cold.limit.spec().warm_up.unwrap().cold_factor, 3);
}

#[test]
fn every_algorithm_can_be_written() {
    for name in AlgorithmName::ALL {
        let fields = match name {
            AlgorithmName::Concurrency => "requests_per_unit: 10".to_owned(),
            AlgorithmName::WarmUp => format!("{DAY}, warm_up: {{period: 4s, cold_factor: 3}}"),
            _ => DAY.to_owned(),
        };
        let rule = limit(&format!("{fields}, algorithm: {name}"));
        assert_eq!(rule.limit.algorithm(), name);
        assert_eq!(rule.requests_per_unit, 10);
    }
    refused("algorithm: leaky", "`leaky` is not a value of `algorithm`");
}

#[test]
fn fields_and_their_company() {
    let bucket = ten("algorithm: token_bucket, burst: 20, refill: interval_aligned, initial: 3");
    let spec = bucket.limit.spec();
    assert_eq!((bucket.limit.limit(), spec.refill), (20, Refill::IntervalAligned));
    assert_eq!(spec.initial, Some(3));
    for algorithm in ["token_bucket", "leaky_bucket", "gcra"] {
        assert_eq!(ten(&format!("algorithm: {algorithm}, burst: 7")).limit.limit(), 7);
    }
    assert_eq!(ten("align: first_request").limit.spec().align, Align::FirstRequest);
    let exact = ten("algorithm: sliding_window_counter, compare: exact");
    assert_eq!(exact.limit.spec().compare, Compare::Exact);
    let permits = limit("requests_per_unit: 3, algorithm: concurrency, lease: 5s");
    assert_eq!(permits.limit.spec().lease, Some(Lease::For(Duration::from_secs(5))));
    assert_eq!(permits.unit, None);
    for algorithm in ["fixed_window", "sliding_window_log"] {
        let rule = ten(&format!("algorithm: {algorithm}, count_rejected: true"));
        assert!(rule.limit.counts_rejected());
    }
    let soft = ten("soft: {over: 20%, for: 30s}").limit.spec().soft.unwrap();
    assert_eq!((soft.over_bp, soft.span), (2000, Duration::from_secs(30)));
    assert_eq!(ten("cost: 5").cost, 5);
    assert_eq!(ten("on_store_error: local").on_store_error, OnStoreError::Local);
    assert_eq!(ten("on_store_error: deny").on_store_error, OnStoreError::Deny);
    assert_eq!(ten("consistency: exact").limit, limit(DAY).limit);
    assert_eq!(ten("excess: queue").excess, Excess::Queue);
    let delayed = ten("algorithm: leaky_bucket, queue: {size: 4, max_delay: 5s}, excess: delay");
    assert_eq!(delayed.excess, Excess::Delay);
}

#[test]
fn fields_in_the_wrong_company() {
    let not_with =
        |field: &str, algorithm: &str| format!("`{field}` has no meaning for `{algorithm}`");
    let window = "fixed_window";
    let cases = [
        ("burst: 5", "burst", window),
        ("burst: 5, algorithm: sliding_window_log", "burst", "sliding_window_log"),
        ("refill: interval", "refill", window),
        ("refill: interval, algorithm: gcra", "refill", "gcra"),
        ("align: first_request, algorithm: gcra", "align", "gcra"),
        ("compare: exact", "compare", window),
        ("initial: 1", "initial", window),
        ("queue: {size: 1}", "queue", window),
        ("queue: {size: 1}, algorithm: token_bucket", "queue", "token_bucket"),
        ("lease: 5s", "lease", window),
        ("warm_up: {period: 4s}", "warm_up", window),
        ("count_rejected: true, algorithm: gcra", "count_rejected", "gcra"),
        ("soft: {over: 1%, for: 1s}, algorithm: warm_up, warm_up: {period: 4s}", "soft", "warm_up"),
        ("time_zone: UTC, algorithm: gcra", "time_zone", "gcra"),
    ];
    for (fields, field, algorithm) in cases {
        refused(fields, &not_with(field, algorithm));
    }
    assert_eq!(
        limit_errors(&format!("algorithm: concurrency, {DAY}")),
        ["4:66 `unit` has no meaning for `concurrency`"]
    );
}

#[test]
fn values_out_of_bounds() {
    refused("burst: 0, algorithm: gcra", "`burst` is 0; it has to be at least 1");
    refused("unit_multiplier: 0", "`unit_multiplier` is 0; it has to be at least 1");
    refused("cost: 0", "`cost` is 0; it has to be at least 1");
    refused("initial: 11, algorithm: gcra", "`initial` is 11, but the bucket holds only 10");
    refused("consistency: leased", "consistency `leased` is not built yet");
    refused("consistency: eventual", "consistency `eventual` is not built yet");
    refused("excess: delay", "`excess: delay` needs `queue`");
    refused("excess: drop", "`drop` is not a value of `excess`");
    refused("percent: 101%", "`percent` is above 100%");
    refused("percent: some", "`some` is not a percentage");
    refused("warm_up: {cold_factor: 3}, algorithm: warm_up", "`period` is missing");
    refused("soft: {over: 10%}", "`for` is missing");
    refused("queue: {max_delay: 5s}, algorithm: leaky_bucket", "`size` is missing");
    refused("per: 5s", "`unit` and `per` exclude each other");
    refused("time_zone: UTC, align: epoch", "`time_zone` and `align` exclude each other");
    refused("algorithm: warm_up", "`warm_up` needs `warm_up`");
    let said = limit_errors("requests_per_unit: 4294967296, unit: day");
    assert!(said[0].ends_with("cannot unmarshal !!int `4294967296` into uint32"), "{said:?}");
    assert_eq!(limit("requests_per_unit: 4294967295, unit: day").requests_per_unit, u32::MAX);
}

#[test]
fn periods() {
    let period = |fields: &str| limit(&format!("requests_per_unit: 1, {fields}"));
    assert_eq!(period("unit: hour, unit_multiplier: 3").unit, None);
    assert_eq!(period("per: 60s").unit, Some(Unit::Minute));
    assert_eq!(period("per: 60s").limit, period("unit: minute").limit);
    assert_eq!(period("unit: second, unit_multiplier: 60").limit, period("per: 1m").limit);
    for (text, nanos) in [
        ("500ms", 500_000_000),
        ("10s", 10_000_000_000),
        ("5m", 300_000_000_000),
        ("3h", 10_800_000_000_000),
        ("7d", 604_800_000_000_000_u64),
    ] {
        let found = period(&format!("per: {text}")).limit.spec().rate.period;
        assert_eq!(found, Duration::from_nanos(nanos), "{text}");
    }
    for wrong in ["30", "1h30m", "1.5s", "-5s", "s", "5 minutes", "''", "[5s]"] {
        let said = limit_errors(&format!("requests_per_unit: 1, per: {wrong}"));
        assert!(said[0].contains("is not a duration"), "{wrong}: {said:?}");
    }
    assert_eq!(limit_errors("requests_per_unit: 1, per: 0s"), ["4:41 a period of 0 is none"]);
    assert_eq!(period("per: 400d").limit.limit(), 1);
    assert_eq!(
        limit_errors("requests_per_unit: 1, per: 401d"),
        ["4:41 the period is 401 days; the longest is 400"]
    );
    assert_eq!(
        limit_errors("requests_per_unit: 1, unit: year, unit_multiplier: 2"),
        ["4:53 the period is 730 days; the longest is 400"]
    );
    let said = limit_errors("requests_per_unit: 1, unit: year, unit_multiplier: 4294967295");
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(
        limit_errors("requests_per_unit: 1, per: 5s, unit_multiplier: 2"),
        ["4:50 `unit_multiplier` goes with `unit`, not with `per`"]
    );
}

#[test]
fn calendars() {
    for unit in ["day", "week", "month", "year"] {
        let rule = limit(&format!("requests_per_unit: 1, unit: {unit}, time_zone: Europe/Berlin"));
        let zone = rule.calendar.unwrap();
        assert_eq!((zone.unit.as_str(), &*zone.name), (unit, "Europe/Berlin"));
        assert!(rule.limit.needs_calendar());
    }
    let wanted = "`time_zone` needs `unit: day`, `week`, `month` or `year` and no multiplier";
    for period in ["unit: hour", "unit: day, unit_multiplier: 2", "per: 24h"] {
        let said = limit_errors(&format!("requests_per_unit: 1, {period}, time_zone: UTC"));
        assert_eq!(said.len(), 1);
        assert!(said[0].ends_with(wanted), "{said:?}");
    }
    let mut options = Options::default();
    options.check_time_zone = |name| match name {
        "UTC" => Ok(()),
        _ => Err(format!("`{name}` is not a time zone")),
    };
    let text = with_limit("requests_per_unit: 1, unit: day, time_zone: Mars/Olympus");
    let report = Rules::load(&[File { name: "a", text: &text }], &options).report;
    assert_eq!(report.errors[0].message, "`Mars/Olympus` is not a time zone");
    assert_eq!(report.errors[0].path, "descriptors[0].rate_limit.time_zone");
}

#[test]
fn percentages() {
    assert_eq!(ten("percent: 0.5%").percent_bp, 50);
    assert_eq!(ten("percent: 20").percent_bp, 2000);
    assert_eq!(ten("percent: 100%").percent_bp, 10_000);
    let text = with_limit(&format!("{DAY}, percent: 0%"));
    assert_eq!(warnings(&text), ["`percent` is 0: the limit applies to nobody"]);
    // The same keys always, about as many as it says, and all of them in a larger share.
    let at = |percent: u32| {
        let rules = rules(&with_limit(&format!("{DAY}, percent: {percent}%")));
        let users = (0..2000).map(|user| user.to_string());
        users.filter(|user| !met(&rules, &[("k", user)]).is_empty()).collect::<Vec<_>>()
    };
    let (few, many) = (at(10), at(40));
    assert_eq!(few, at(10));
    assert!((120..280).contains(&few.len()), "{}", few.len());
    assert!((700..900).contains(&many.len()), "{}", many.len());
    assert!(few.iter().all(|user| many.contains(user)));
}

#[test]
fn turned_off() {
    let rules = rules(
        "
domain: d
descriptors:
  - { key: a, rate_limit: { requests_per_unit: 1, unit: day, enabled: false } }
  - { key: b, enabled: false, rate_limit: { requests_per_unit: 1, unit: day } }
  - { key: c, enabled: false, descriptors: [{ key: e, rate_limit: { requests_per_unit: 1, unit: day } }] }
",
    );
    assert_eq!(met(&rules, &[("a", "x")]), [""; 0]);
    assert_eq!(met(&rules, &[("b", "x")]), [""; 0]);
    // Only the limits of the descriptor itself.
    assert_eq!(met(&rules, &[("c", "x"), ("e", "x")]), ["d.c.e"]);
}

#[test]
fn exempt() {
    let rules = rules(
        "
domain: d
defaults: { exempt: [everywhere] }
descriptors:
  - key: ip
    exempt: [10.0.0.0/8]
    rate_limits:
      - { requests_per_unit: 1, unit: second, name: one, exempt: ['2001:db8::/32', monitor] }
      - { requests_per_unit: 1, unit: day, name: two }
",
    );
    let both = ["one", "two"];
    assert_eq!(met(&rules, &[("ip", "192.0.2.1")]), both);
    assert_eq!(met(&rules, &[("ip", "10.1.2.3")]), [""; 0]);
    assert_eq!(met(&rules, &[("ip", "::ffff:10.1.2.3")]), [""; 0]);
    assert_eq!(met(&rules, &[("ip", "everywhere")]), [""; 0]);
    assert_eq!(met(&rules, &[("ip", "2001:db8::1")]), ["two"]);
    assert_eq!(met(&rules, &[("ip", "monitor")]), ["two"]);
    assert_eq!(met(&rules, &[("ip", "monitors")]), both);
    refused("exempt: 10.0.0.0/8", "cannot unmarshal !!str `10.0.0.0/8` into list");
}

#[test]
fn defaults_of_a_domain() {
    let text = "
domain: d
defaults:
  algorithm: gcra
  on_store_error: deny
  shadow_mode: true
  percent: 50%
  lease: 9s
  compare: exact
  refill: interval
  time_zone: Europe/Berlin
  soft: { over: 10%, for: 5s }
  count_rejected: true
descriptors:
  - { key: a, rate_limit: { requests_per_unit: 5, unit: day } }
  - { key: b, rate_limit: { requests_per_unit: 5, unit: day, algorithm: fixed_window, percent: 100%, on_store_error: allow } }
  - { key: c, rate_limit: { requests_per_unit: 5, algorithm: concurrency } }
  - { key: e, rate_limit: { requests_per_unit: 5, unit: second, algorithm: token_bucket } }
  - { key: f, rate_limit: { requests_per_unit: 5, unit: hour, algorithm: fixed_window } }
";
    assert_eq!(warnings(text), [""; 0]);
    let rules = rules(text);
    let [a, b, c, e, f] = rules.all() else { panic!("five limits") };
    assert_eq!((a.limit.algorithm(), a.on_store_error), (AlgorithmName::Gcra, OnStoreError::Deny));
    assert_eq!((a.shadow, a.percent_bp, a.calendar.is_none()), (true, 5000, true));
    assert_eq!(a.limit.spec().soft.unwrap().over_bp, 1000);
    assert_eq!((b.on_store_error, b.percent_bp), (OnStoreError::Allow, 10_000));
    assert!(b.calendar.is_some() && b.limit.counts_rejected());
    assert_eq!(c.limit.spec().lease, Some(Lease::For(Duration::from_secs(9))));
    assert_eq!((c.limit.spec().soft, e.limit.spec().refill), (None, Refill::Interval));
    assert!(f.calendar.is_none());
    let said = errors("domain: d\ndefaults: {burst: 5}\n");
    assert_eq!(said, ["config error, unknown key 'burst'"]);
}

const TWO: &str = "
domain: d
descriptors:
  - key: k
    rate_limits:
      - { requests_per_unit: 10, unit: second, name: fast }
      - { requests_per_unit: 99, unit: day }
      - { requests_per_unit: 50, unit: hour, shadow_mode: true }
";

#[test]
fn several_limits() {
    let rules = rules(TWO);
    assert_eq!(met(&rules, &[("k", "x")]), ["fast", "d.k#1", "d.k#2"]);
    let shadow: Vec<_> = rules.all().iter().map(|rule| rule.shadow).collect();
    assert_eq!(shadow, [false, false, true]);
    let both = "domain: d\ndescriptors:\n- key: k\n  rate_limit: {}\n  rate_limits: []\n";
    assert_eq!(errors(both)[0], "`rate_limit` and `rate_limits` exclude each other");
    let twice = TWO.replace("unit: day", "unit: day, name: fast");
    assert_eq!(errors(&twice), ["two limits of this descriptor are named `fast`"]);
    let none = TWO.replace("requests_per_unit: 99, unit: day", "unlimited: true");
    assert_eq!(errors(&none), ["`unlimited` has no meaning beside other limits"]);
    let report = report(&TWO.replace("unit: day", "unit: days"));
    assert_eq!(report.errors[0].path, "descriptors[0].rate_limits[1].unit");
}

#[test]
fn counters_outlive_names_and_order() {
    let counters = |text: &str| {
        let rules = rules(text);
        rules.all().iter().map(|rule| rule.counter.to_string()).collect::<Vec<_>>()
    };
    // One limit: whatever it is called.
    let one = |fields: &str| counters(&with_limit(fields));
    assert_eq!(one(DAY), one("requests_per_unit: 10, unit: day, name: new"));
    assert_eq!(one(DAY), one("requests_per_unit: 20, unit: hour, algorithm: gcra"));
    // Several: by name where they have one, else by position.
    let swapped = "
domain: d
descriptors:
  - key: k
    rate_limits:
      - { requests_per_unit: 1, unit: day, name: b }
      - { requests_per_unit: 1, unit: second, name: a }
";
    let straight = swapped.replace("name: b", "name: x").replace("name: a", "name: b");
    let straight = straight.replace("name: x", "name: a");
    let (mut one, mut two) = (counters(swapped), counters(&straight));
    one.sort();
    two.sort();
    assert_eq!(one, two);
    let all = counters(TWO);
    assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 3);
    // Names of another place do not matter.
    let elsewhere = counters(&TWO.replace("key: k", "key: other"));
    assert!(all.iter().all(|counter| !elsewhere.contains(counter)));
}

#[test]
fn beside_unlimited_nothing_counts() {
    let text = with_limit("unlimited: true, requests_per_unit: 5, burst: 7, name: n");
    assert_eq!(
        warnings(&text),
        [
            "`requests_per_unit` has no meaning when unlimited",
            "`burst` has no meaning when unlimited"
        ]
    );
    let said = limit_errors("unlimited: true, requests_per_unit: many");
    assert!(said[0].ends_with("cannot unmarshal !!str `many` into uint32"), "{said:?}");
}

#[test]
fn rule_ids() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: a
    value: v
    descriptors:
      - { key: b, rate_limit: { requests_per_unit: 1, unit: day } }
      - { key: c, rate_limit: { requests_per_unit: 1, unit: day, name: named } }
      - { key: e, rate_limits: [{ requests_per_unit: 1, unit: day }] }
",
    );
    let ids: Vec<_> = rules.all().iter().map(|rule| &*rule.id).collect();
    assert_eq!(ids, ["d.a_v.b", "named", "d.a_v.e#0"]);
    assert_eq!(rules.origin(rules.all()[1].origin), "rules.yaml:8");
}

#[test]
fn one_mistake_is_one_message() {
    for fields in [
        "unlimited: 'yes'",
        "algorithm: unknown, requests_per_unit: 1, unit: day",
        "request_per_unit: 5, unit: day",
        "requests_per_unit: 5, units: day",
    ] {
        let report = load(&with_limit(fields)).report;
        assert_eq!((report.errors.len(), report.warnings.len()), (1, 0), "{report}");
    }
}

#[test]
fn a_multiple_of_a_unit_is_no_calendar() {
    for fields in ["unit: hour, unit_multiplier: 24", "unit: day, unit_multiplier: 7", "per: 1d"] {
        let said = limit_errors(&format!("requests_per_unit: 1, {fields}, time_zone: UTC"));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("and no multiplier"), "{fields}: {said:?}");
        // The time zone of the domain is for the limits that can follow one.
        let text = format!(
            "domain: d\ndefaults: {{time_zone: UTC}}\ndescriptors:\n\
             - {{key: k, rate_limit: {{requests_per_unit: 1, {fields}}}}}\n"
        );
        assert_eq!(rules(&text).all()[0].calendar, None, "{fields}");
    }
    let days = "requests_per_unit: 1, unit: day, unit_multiplier: 1, time_zone: UTC";
    assert_eq!(limit(days).calendar.unwrap().unit, Unit::Day);
}

#[test]
fn a_descriptor_may_refuse_where_the_domain_watches() {
    let file = |beside: &str, inside: &str| {
        format!(
            "domain: d\ndefaults: {{shadow_mode: true}}\ndescriptors:\n\
             - {{key: k, {beside} rate_limits: [{{requests_per_unit: 1, unit: day, {inside}}}]}}\n"
        )
    };
    for (beside, inside, shadow) in [
        ("", "", true),
        ("shadow_mode: false,", "", false),
        ("", "shadow_mode: false", false),
        ("shadow_mode: false,", "shadow_mode: true", true),
        ("shadow_mode: true,", "shadow_mode: false", true),
    ] {
        let found = rules(&file(beside, inside)).all()[0].shadow;
        assert_eq!(found, shadow, "beside: {beside} inside: {inside}");
    }
}

#[test]
fn an_unlimited_rule_that_is_off_replaces_nothing() {
    let file = |enabled: bool| {
        format!(
            "domain: d\ndescriptors:\n\
             - {{key: ip, rate_limit: {{requests_per_unit: 1, unit: day, name: per-ip}}}}\n\
             - {{key: vip, enabled: {enabled}, rate_limit: {{unlimited: true, replaces: [{{name: per-ip}}]}}}}\n"
        )
    };
    let met = |enabled| {
        let rules = rules(&file(enabled));
        met_with_keys(&rules, &[&[("ip", "1")], &[("vip", "ada")]]).0
    };
    assert!(met(true).is_empty());
    assert_eq!(met(false), ["per-ip"]);
}

#[test]
fn one_mistake_hides_no_other() {
    let said = limit_errors("requests_per_unit: 1, unit: minutes, excess: drop");
    assert_eq!(said.len(), 2, "{said:?}");
    refused("exempt: [~]", "`exempt` is a list of texts, found nothing");
    let shared = "domain: d
descriptors:
- {key: k, value: 'a*', share_threshold: true, percent: 10%, rate_limit: {requests_per_unit: 1, unit: day}}
";
    assert!(warnings(shared)[0].contains("`percent` covers all or nothing here"));
}
