//! What is counted, under which names.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate::rules::{Descriptor, Entry, File, Options, Override, Rules, Unit};
use tidegate::{ManualClock, MemoryStore, Modes, Op, Query, RuleLimiter};
use tidegate_server::{FrontEnd, GatewayStats, Service, ServiceClock, StoreError, UpstreamStats};
use tidegate_store_redis::{RedisOptions, RedisStore};

const TEXT: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 10, unit: minute }
  - key: watched
    shadow_mode: true
    rate_limit: { requests_per_unit: 1, unit: minute }
  - key: pair
    rate_limits:
      - { requests_per_unit: 1, unit: second }
      - { requests_per_unit: 100, unit: day, cost: 5 }
  - key: tenant
    value_to_metric: true
    descriptors:
      - key: path
        value: /x
        rate_limit: { requests_per_unit: 5, unit: hour }
  - key: soft
    rate_limit: { requests_per_unit: 10, unit: hour, soft: { over: 20%, for: 30s } }
";

fn rules(text: &str) -> Rules {
    let loaded = Rules::load(&[File { name: "api.yaml", text }], &Options::default());
    loaded.rules.ok_or(loaded.report.to_string()).expect("good rules")
}

fn service() -> Service {
    service_with(TEXT, Modes::default())
}

fn service_with(text: &str, modes: Modes) -> Service {
    let clock = ServiceClock::Manual(ManualClock::new());
    let limiter = RuleLimiter::build(MemoryStore::new().into(), clock, rules(text), modes);
    Service::new(limiter.expect("the rules can be enforced"), 0.8)
}

/// What is asked of the memory store is decided when it is first polled.
fn at_once<T>(asked: impl Future<Output = Result<T, StoreError>>) -> T {
    match pin!(asked).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.expect("memory has an answer"),
        Poll::Pending => unreachable!("memory waits for nobody"),
    }
}

/// Asks for one descriptor.
fn ask(service: &Service, op: Op<'_>, entries: &[(&str, &str)], cost: u64) -> bool {
    let entries: Vec<_> = entries.iter().map(|(key, value)| Entry::new(key, value)).collect();
    let descriptors = [Descriptor::new(&entries)];
    let query = Query::new("api", &descriptors).cost(cost);
    at_once(service.ask(FrontEnd::Grpc, op, &query)).allowed
}

/// Every line that has a value, by what stands before it.
fn read(service: &Service) -> BTreeMap<String, f64> {
    let text = service.render_metrics();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pair = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    lines.map(pair).collect()
}

fn decisions(rule: &str, outcome: &str, source: &str) -> String {
    format!(
        "tidegate_decisions_total{{domain=\"api\",rule=\"{rule}\",outcome=\"{outcome}\",\
         source=\"{source}\",front_end=\"grpc\"}}"
    )
}

#[test]
fn a_decision_counts_for_each_rule_that_had_a_part_in_it() {
    let service = service();
    for cost in [7, 2, 5] {
        ask(&service, Op::Check, &[("user", "ada")], cost);
    }
    let told = read(&service);
    assert_eq!(told[&decisions("api.user", "allowed", "store")], 2.0);
    assert_eq!(told[&decisions("api.user", "refused", "store")], 1.0);
    let cost = decisions("api.user", "allowed", "store").replace("decisions", "cost");
    assert_eq!(told[&cost], 9.0);
    assert_eq!(told["tidegate_decision_seconds_count{front_end=\"grpc\"}"], 3.0);
    assert_eq!(told["tidegate_decision_seconds_bucket{le=\"+Inf\",front_end=\"grpc\"}"], 3.0);
}

#[test]
fn looking_and_giving_back_are_no_decisions() {
    let service = service();
    ask(&service, Op::Peek, &[("user", "ada")], 1);
    ask(&service, Op::Refund, &[("user", "ada")], 1);
    ask(&service, Op::Reset, &[("user", "ada")], 1);
    assert!(!service.render_metrics().contains("tidegate_decisions_total{"));
}

#[test]
fn of_a_refused_request_only_those_count_that_refused_it() {
    let service = service();
    assert!(ask(&service, Op::Check, &[("pair", "x")], 1));
    assert!(!ask(&service, Op::Check, &[("pair", "x")], 1));
    let told = read(&service);
    assert_eq!(told[&decisions("api.pair#0", "allowed", "store")], 1.0);
    assert_eq!(told[&decisions("api.pair#0", "refused", "store")], 1.0);
    assert_eq!(told[&decisions("api.pair#1", "allowed", "store")], 1.0);
    assert!(!told.contains_key(&decisions("api.pair#1", "refused", "store")));
    let cost = decisions("api.pair#1", "allowed", "store").replace("decisions", "cost");
    assert_eq!(told[&cost], 5.0, "in units of the limit");
}

#[test]
fn shadow_and_soft_have_words_of_their_own() {
    let service = service();
    for _ in 0..3 {
        assert!(ask(&service, Op::Check, &[("watched", "x")], 1));
    }
    assert!(ask(&service, Op::Check, &[("soft", "x")], 10));
    assert!(ask(&service, Op::Check, &[("soft", "x")], 1));
    let told = read(&service);
    assert_eq!(told[&decisions("api.watched", "allowed", "shadow")], 1.0);
    assert_eq!(told[&decisions("api.watched", "shadow_refused", "shadow")], 2.0);
    assert_eq!(told[&decisions("api.soft", "soft", "store")], 1.0);
}

#[test]
fn lyfts_counters_have_lyfts_names_and_numbers() {
    let service = service();
    for cost in [7, 2, 3] {
        ask(&service, Op::Check, &[("user", "ada")], cost);
    }
    ask(&service, Op::Check, &[("watched", "x")], 1);
    ask(&service, Op::Check, &[("watched", "x")], 2);
    let told = read(&service);
    let of = |name: &str, key: &str| {
        told[&format!("ratelimit_service_rate_limit_{name}{{domain=\"api\",key1=\"{key}\"}}")]
    };
    assert_eq!(of("total_hits", "user"), 12.0);
    assert_eq!(of("within_limit", "user"), 9.0);
    // 8 and up are near: one of the second request, and one of the third, which is over by two.
    assert_eq!(of("near_limit", "user"), 2.0);
    assert_eq!(of("over_limit", "user"), 2.0);
    assert_eq!(of("shadow_mode", "watched"), 2.0);
    assert_eq!(told["ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}"], 5.0);
}

#[test]
fn values_that_rules_ask_for_in_metrics_are_bounded() {
    let service = service();
    for tenant in 0..10_050 {
        ask(&service, Op::Check, &[("tenant", &tenant.to_string()), ("path", "/x")], 1);
    }
    let told = read(&service);
    let total = "ratelimit_service_rate_limit_total_hits";
    let one = format!("{total}{{domain=\"api\",key1=\"tenant_7\",key2=\"path_/x\"}}");
    assert_eq!(told[&one], 1.0);
    let series = told.keys().filter(|name| name.starts_with(total)).count();
    assert!(series <= 10_001, "{series}");
    assert!(told[&format!("{total}{{domain=\"api\",key1=\"other\"}}")] >= 50.0);
}

#[test]
fn of_several_limits_the_first_counts_in_lyfts_series_whatever_they_are_called() {
    let text = "
domain: api
descriptors:
  - key: user
    rate_limits:
      - { name: fast, requests_per_unit: 5, unit: second }
      - { name: slow, requests_per_unit: 50, unit: day }
  - key: path
    value: /a#b
    rate_limit: { requests_per_unit: 5, unit: second }
";
    let service = service_with(text, Modes::default());
    ask(&service, Op::Check, &[("user", "ada")], 1);
    ask(&service, Op::Check, &[("path", "/a#b")], 1);
    let told = read(&service);
    let hits = "ratelimit_service_rate_limit_total_hits";
    assert_eq!(told[&format!("{hits}{{domain=\"api\",key1=\"user\"}}")], 1.0);
    assert_eq!(told[&format!("{hits}{{domain=\"api\",key1=\"path_/a#b\"}}")], 1.0);
}

#[test]
fn where_descriptors_decide_by_themselves_each_counts_what_it_took() {
    let mut modes = Modes::default();
    modes.independent = true;
    let service = service_with(TEXT, modes);
    let (user, pair) = ([Entry::new("user", "ada")], [Entry::new("pair", "x")]);
    let descriptors = [Descriptor::new(&user), Descriptor::new(&pair)];
    for _ in 0..2 {
        let _ = at_once(service.ask(FrontEnd::Grpc, Op::Check, &Query::new("api", &descriptors)));
    }
    let told = read(&service);
    assert_eq!(told[&decisions("api.user", "allowed", "store")], 2.0, "it took both times");
    assert_eq!(told[&decisions("api.pair#0", "refused", "store")], 1.0);
    let within = "ratelimit_service_rate_limit_within_limit{domain=\"api\",key1=\"user\"}";
    assert_eq!(told[within], 2.0);
}

#[test]
fn values_too_long_for_a_label_are_counted_together() {
    let service = service();
    let long = "x".repeat(300);
    ask(&service, Op::Check, &[("tenant", &long), ("path", "/x")], 1);
    assert!(!service.render_metrics().contains(&long));
    let other = "ratelimit_service_rate_limit_total_hits{domain=\"api\",key1=\"other\"}";
    assert_eq!(read(&service)[other], 1.0);
}

#[test]
fn what_is_in_no_rules_is_counted_without_its_names() {
    let service = service();
    ask(&service, Op::Check, &[("nobody", "x")], 1);
    let entries = [Entry::new("user", "ada")];
    let limit = Some(Override { requests_per_unit: 1, unit: Unit::Minute });
    let descriptors = [Descriptor { limit, ..Descriptor::new(&entries) }];
    let _ = at_once(service.ask(FrontEnd::Grpc, Op::Check, &Query::new("api", &descriptors)));
    let descriptors = [Descriptor::new(&entries)];
    let _ = at_once(service.ask(FrontEnd::Http, Op::Check, &Query::new("stranger", &descriptors)));
    let text = service.render_metrics();
    assert!(!text.contains("stranger") && !text.contains("nobody"), "{text}");
    let told = read(&service);
    assert_eq!(told["tidegate_no_match_total{domain=\"api\"}"], 1.0);
    assert_eq!(told["tidegate_no_match_total{domain=\"unknown\"}"], 1.0);
    assert_eq!(told[&decisions("override", "allowed", "store")], 1.0);
}

#[test]
fn counts_outlive_a_reload_and_rules_that_are_gone_do_not() {
    let service = service();
    ask(&service, Op::Check, &[("user", "ada")], 1);
    ask(&service, Op::Check, &[("pair", "x")], 1);
    let text = "
domain: api
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 20, unit: minute }
";
    service.replace(rules(text)).expect("the rules can be enforced");
    service.reload_failed();
    ask(&service, Op::Check, &[("user", "ada")], 1);
    let told = read(&service);
    assert_eq!(told[&decisions("api.user", "allowed", "store")], 2.0);
    assert!(!told.contains_key(&decisions("api.pair#0", "allowed", "store")));
    assert_eq!(told["tidegate_rules_loaded"], 1.0);
    assert_eq!(told["tidegate_reload_total{result=\"ok\"}"], 1.0);
    assert_eq!(told["tidegate_reload_total{result=\"error\"}"], 1.0);
    assert_eq!(told["tidegate_keys"], 3.0);
    let hits = "ratelimit_service_rate_limit_total_hits";
    assert_eq!(told[&format!("{hits}{{domain=\"api\",key1=\"user\"}}")], 2.0);
    assert_eq!(told.keys().filter(|name| name.starts_with(hits)).count(), 1);
}

/// The names of all metrics of ours, as they are told in comments.
fn names(service: &Service) -> BTreeSet<String> {
    let text = service.render_metrics();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE tidegate_"));
    let name = |line: &str| {
        let (name, kind) = line.split_once(' ').expect("a name and a type");
        let end = if kind == "counter" { "_total" } else { "" };
        format!("tidegate_{name}{end}")
    };
    types.map(name).collect()
}

#[tokio::test]
async fn every_metric_is_described_and_every_description_is_of_one() {
    // Nobody listens there, which changes numbers and no names.
    let target = "redis://127.0.0.1:1".parse().expect("a URL");
    let store = RedisStore::open(RedisOptions::new(target)).await.expect("it opens");
    let clock = ServiceClock::Manual(ManualClock::new());
    let limiter = RuleLimiter::build(store.into(), clock, rules(TEXT), Modes::default());
    let redis = names(&Service::new(limiter.expect("the rules can be enforced"), 0.8));
    let service = service();
    service.show_gateway(|| {
        let mut stats = GatewayStats::default();
        stats.upstreams.push(UpstreamStats::new("api 127.0.0.1:3000", true, 0));
        stats
    });
    let memory = names(&service);
    assert!(redis.contains("tidegate_breaker_open") && !memory.contains("tidegate_breaker_open"));

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let rows = page.lines().filter(|line| line.starts_with("| `tidegate_"));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    let named = first.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // Alarms are rows too, and say more than a name.
    let described: BTreeSet<String> =
        named.filter(|name| !name.contains(' ')).map(str::to_owned).collect();
    assert_eq!(described, memory.union(&redis).cloned().collect());
}
