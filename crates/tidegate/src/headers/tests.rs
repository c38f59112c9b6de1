use tidegate_rules::{Descriptor, Entry, File, Options, Rules};
use tidegate_store::{MemoryStore, OnFull, Op};

use super::*;
use crate::{Exception, ManualClock, Modes, Query, RuleLimiter};

type Limiter = RuleLimiter<MemoryStore, ManualClock>;

fn limiter_on(store: MemoryStore, rules: &str) -> (Limiter, ManualClock) {
    let text = format!("domain: d\ndescriptors:\n{rules}");
    let loaded = Rules::load(&[File { name: "d.yaml", text: &text }], &Options::default());
    let rules = loaded.rules.unwrap_or_else(|| panic!("{}", loaded.report));
    let clock = ManualClock::new();
    (RuleLimiter::build(store, clock.clone(), rules, Modes::default()).unwrap(), clock)
}

fn limiter(rules: &str) -> (Limiter, ManualClock) {
    limiter_on(MemoryStore::new(), rules)
}

fn ask(limiter: &Limiter, cost: u64, keys: &[&str]) -> Verdict {
    let entries: Vec<[Entry<'_>; 1]> = keys.iter().map(|key| [Entry::new(key, "v")]).collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
    limiter.ask(Op::Check, &Query::new("d", &descriptors).cost(cost))
}

fn shown(verdict: &Verdict) -> String {
    let headers = Headers::of(verdict);
    let lines = headers.iter().map(|(field, value)| format!("{}: {value}\n", field.name()));
    lines.collect()
}

fn problem(verdict: &Verdict) -> String {
    let mut out = String::new();
    write_problem(&mut out, verdict, 429);
    out
}

#[test]
fn an_admission_tells_what_is_left() {
    let (limiter, clock) = limiter(
        "  - { key: a, rate_limit: { requests_per_unit: 3, unit: second, algorithm: token_bucket } }",
    );
    assert_eq!(
        shown(&ask(&limiter, 2, &["a"])),
        "x-ratelimit-limit: 3\nx-ratelimit-remaining: 1\nx-ratelimit-reset: 1\n\
         ratelimit-policy: \"d.a\";q=3;w=1\nratelimit: \"d.a\";r=1;t=1\n"
    );
    clock.advance(Duration::from_secs(9));
    assert_eq!(
        shown(&limiter.peek(&Query::new("d", &[Descriptor::new(&[Entry::new("a", "v")])]))),
        "x-ratelimit-limit: 3\nx-ratelimit-remaining: 3\nx-ratelimit-reset: 0\n\
         ratelimit-policy: \"d.a\";q=3;w=1\nratelimit: \"d.a\";r=3;t=0\n"
    );
}

#[test]
fn a_refusal_tells_when_to_come_back() {
    let (limiter, clock) = limiter(
        "  - { key: a, rate_limit: { requests_per_unit: 1, per: 10s, algorithm: token_bucket } }",
    );
    assert!(ask(&limiter, 1, &["a"]).allowed);
    clock.advance(Duration::from_millis(1));
    let refused = ask(&limiter, 1, &["a"]);
    assert_eq!(
        shown(&refused),
        "cache-control: no-store\nx-ratelimit-limit: 1\nx-ratelimit-remaining: 0\n\
         x-ratelimit-reset: 10\nretry-after: 10\nx-ratelimit-retry-after: 10\n\
         ratelimit-policy: \"d.a\";q=1;w=10\nratelimit: \"d.a\";r=0;t=10\n"
    );
    assert_eq!(
        problem(&refused),
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
         \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
         \"status\":429,\"detail\":\"the limit `d.a` of 1 is reached; try again in 10 s\",\
         \"violated-policies\":[\"d.a\"],\"retry_after_seconds\":10}"
    );
    // Whole seconds, rounded up, and never none.
    clock.advance(Duration::from_nanos(9_998_999_999));
    assert_eq!(retry_after(&ask(&limiter, 1, &["a"])), Some(1));
    clock.advance(Duration::from_nanos(1));
    assert_eq!(retry_after(&ask(&limiter, 1, &["a"])), None);
}

#[test]
fn what_never_fits_has_no_time() {
    let (limiter, _) = limiter(
        "  - { key: a, rate_limit: { requests_per_unit: 2, unit: hour } }\n  \
         - { key: b, rate_limit: { requests_per_unit: 0, unit: hour } }",
    );
    let refused = ask(&limiter, 3, &["a"]);
    assert!(!shown(&refused).contains("retry-after"), "{}", shown(&refused));
    assert!(shown(&refused).ends_with("ratelimit: \"d.a\";r=2\n"), "{}", shown(&refused));
    assert!(problem(&refused).ends_with(
        "\"detail\":\"the limit `d.a` of 2 never admits so much\",\"violated-policies\":[\"d.a\"]}"
    ));
    // Of a limit that blocks nothing is ever earned, so that it has no window.
    assert!(shown(&ask(&limiter, 1, &["b"])).contains("ratelimit-policy: \"d.b\";q=0\n"));
}

#[test]
fn permits_are_told_as_such() {
    let (limiter, _) = limiter(
        "  - { key: a, rate_limit: { requests_per_unit: 1, algorithm: concurrency, lease: none } }",
    );
    let held = shown(&ask(&limiter, 1, &["a"]));
    assert_eq!(
        held,
        "x-ratelimit-limit: 1\nx-ratelimit-remaining: 0\n\
         ratelimit-policy: \"d.a\";q=1;qu=\"concurrent-requests\"\nratelimit: \"d.a\";r=0\n"
    );
    let refused = ask(&limiter, 1, &["a"]);
    assert!(!shown(&refused).contains("retry-after"));
    assert!(problem(&refused).contains("try again when others have ended"));
}

#[test]
fn of_several_the_tightest_speaks_and_all_are_listed() {
    let (limiter, _) = limiter(
        "  - { key: a, rate_limit: { requests_per_unit: 10, unit: hour } }\n  \
         - { key: b, rate_limit: { requests_per_unit: 2, unit: day, algorithm: token_bucket } }\n  \
         - { key: s, shadow_mode: true, rate_limit: { requests_per_unit: 1, unit: day } }",
    );
    let both = shown(&ask(&limiter, 1, &["a", "s", "b"]));
    assert!(both.contains("x-ratelimit-limit: 2\nx-ratelimit-remaining: 1\n"), "{both}");
    assert!(
        both.contains("ratelimit-policy: \"d.a\";q=10;w=3600, \"d.b\";q=2;w=86400\n"),
        "{both}"
    );
    assert!(both.contains("ratelimit: \"d.b\";r=1;t=43200\n"), "{both}");
    // A limit that only watches is nothing that a client can act on.
    assert_eq!(shown(&ask(&limiter, 1, &["s"])), "");
    assert_eq!(shown(&ask(&limiter, 1, &["nothing"])), "");
}

#[test]
fn names_are_strings_of_structured_fields() {
    let written = |id: &str| {
        let mut out = String::new();
        write_name(&mut out, id);
        out
    };
    assert_eq!(written("d.user_ada"), "\"d.user_ada\"");
    assert_eq!(written(r#"a "b" \c 100%"#), r#""a \"b\" \\c 100%""#);
    assert_eq!(written("größe 5%\n"), "\"gr%c3%b6%c3%9fe 5%25%0a\"");
    assert_eq!(written(&"x".repeat(1000)).len(), NAME_BYTES_MAX + 2);
    assert_eq!(written(""), "\"\"");
}

#[test]
fn policies_have_a_bound() {
    let rules: String = (0..200)
        .map(|n| {
            format!("  - {{ key: k{n:03}, rate_limit: {{ requests_per_unit: 5, unit: hour }} }}\n")
        })
        .collect();
    let (limiter, _) = limiter(&rules);
    let keys: Vec<String> = (0..200).map(|n| format!("k{n:03}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let headers = Headers::of(&ask(&limiter, 1, &keys));
    let policy = headers.iter().find(|(field, _)| *field == Field::Policy).unwrap().1;
    assert!(policy.len() <= POLICIES_BYTES_MAX && policy.len() > POLICIES_BYTES_MAX - 32);
    assert!(policy.ends_with(";w=3600"), "{policy}");
}

#[test]
fn numbers_are_those_of_structured_fields() {
    let written = |number| {
        let mut out = String::new();
        write_number(&mut out, number);
        out
    };
    assert_eq!(written(0), "0");
    assert_eq!(written(10), "10");
    assert_eq!(written(u64::MAX), "999999999999999");
    let mut out = String::new();
    push_number(&mut out, u64::MAX);
    assert_eq!(out, u64::MAX.to_string());
}

#[test]
fn resets_can_be_told_as_a_time() {
    let (limiter, clock) =
        limiter("  - { key: a, rate_limit: { requests_per_unit: 1, unit: minute } }");
    clock.set(Timestamp::from_nanos(1_700_000_040_500_000_000));
    let verdict = ask(&limiter, 1, &["a"]);
    let mut headers = Headers::default();
    headers.write(&verdict, ResetForm::Epoch(limiter.now()));
    let reset = headers.iter().find(|(field, _)| *field == Field::Reset).unwrap().1;
    assert_eq!(reset, "1700000100");
}

#[test]
fn a_soft_limit_says_so() {
    let (limiter, _) = limiter(
        "  - key: a\n    rate_limit: { requests_per_unit: 10, unit: hour, soft: { over: 20%, for: 30s } }",
    );
    assert!(!shown(&ask(&limiter, 10, &["a"])).contains("soft"));
    assert!(shown(&ask(&limiter, 1, &["a"])).ends_with("x-ratelimit-soft: 1\n"));
}

#[test]
fn a_blocked_key_is_told_of_abnormal_usage() {
    let (limiter, clock) =
        limiter("  - { key: a, rate_limit: { requests_per_unit: 9, unit: hour } }");
    let entries = [Entry::new("a", "v")];
    limiter.except("d", &entries, Exception::Block, Duration::from_secs(60)).unwrap();
    clock.advance(Duration::from_millis(500));
    let refused = ask(&limiter, 1, &["a"]);
    assert!(shown(&refused).contains("retry-after: 60\n"), "{}", shown(&refused));
    assert!(shown(&refused).contains("ratelimit: \"block\";r=0;t=60\n"), "{}", shown(&refused));
    assert_eq!(
        problem(&refused),
        "{\"type\":\"https://iana.org/assignments/http-problem-types#abnormal-usage-detected\",\
         \"title\":\"Request cannot be satisfied because of abnormal usage\",\"status\":429,\
         \"detail\":\"the key is blocked; try again in 60 s\",\
         \"violated-policies\":[\"block\"],\"retry_after_seconds\":60}"
    );
}

#[test]
fn a_store_without_room_is_no_quota() {
    let store = MemoryStore::builder().max_keys(1).shards(1).on_full(OnFull::Deny).build();
    let (limiter, _) = limiter_on(
        store,
        "  - { key: a, rate_limit: { requests_per_unit: 9, unit: hour } }\n  \
         - { key: b, rate_limit: { requests_per_unit: 9, unit: hour } }",
    );
    assert!(ask(&limiter, 1, &["a"]).allowed);
    let refused = ask(&limiter, 1, &["b"]);
    assert!(refused.is_unanswered());
    assert!(problem(&refused).contains("#temporary-reduced-capacity"), "{}", problem(&refused));
    assert!(!ask(&limiter, 9, &["a"]).is_unanswered());
}

#[test]
fn every_field_is_at_the_position_of_its_number() {
    for (at, field) in Field::ALL.into_iter().enumerate() {
        assert_eq!(field as usize, at);
        assert_eq!(field.name(), field.name().to_ascii_lowercase());
    }
}

#[test]
fn a_refusal_can_be_told_later_than_it_holds() {
    let (limiter, _clock) = limiter(
        "  - { key: a, rate_limit: { requests_per_unit: 1, unit: hour, algorithm: gcra } }",
    );
    assert!(ask(&limiter, 1, &["a"]).allowed);
    let (verdict, form) = (ask(&limiter, 1, &["a"]), Form::default().later(7));
    let mut headers = Headers::default();
    headers.write_as(&verdict, &form);
    let told: Vec<_> = headers.iter().filter(|(_, value)| value.contains("3607")).collect();
    assert_eq!(
        told,
        [
            (Field::RetryAfter, "3607"),
            (Field::XRetryAfter, "3607"),
            (Field::RateLimit, "\"d.a\";r=0;t=3607"),
        ]
    );
    let mut problem = String::new();
    write_problem_as(&mut problem, &verdict, 429, &form);
    assert!(problem.ends_with("\"retry_after_seconds\":3607}"), "{problem}");
    assert!(problem.contains("try again in 3607 s"), "{problem}");
}

#[test]
fn grpc_has_words_of_its_own() {
    let (limiter, _clock) = limiter(
        "  - { key: a, rate_limit: { name: 'für 5% ', requests_per_unit: 0, unit: hour } }",
    );
    let verdict = ask(&limiter, 1, &["a"]);
    let mut message = String::new();
    write_grpc_message(&mut message, &verdict, &Form::default());
    assert_eq!(message, "the limit `f%C3%BCr 5%25 ` of 0 never admits so much");
    assert_eq!(grpc_code(&verdict), 8);
}

#[test]
fn scripts_may_see_what_is_said_of_limits() {
    for field in Field::ALL {
        let is_exposed = EXPOSED.split(", ").any(|name| name == field.name());
        assert_eq!(is_exposed, field != Field::CacheControl, "{field:?}");
    }
}

#[test]
fn the_stricter_of_two_is_told() {
    for (theirs, ours, wanted) in [
        ("0", "1", true),
        ("1", "1", true),
        ("2", "1", false),
        (" 2 ", "1", false),
        ("many", "1", true),
        ("", "1", true),
        ("-1", "1", true),
        ("99999999999999999999", "1", true),
    ] {
        assert_eq!(stays(theirs.as_bytes(), ours), wanted, "{theirs} beside {ours}");
    }
    assert!(stays(&[0xff], "1"));
}
