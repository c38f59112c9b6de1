//! Lyft's format: what loads, what is refused and in which words, what is warned of, what matches.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use common::{errors, load, met, met_with_keys, rules, warnings, with_limit};
use tidegate_rules::{
    Descriptor, Entry, File, Found, Loaded, Options, Override, Reached, Rules, Unit, check_lyft,
};

/// What Lyft's service would say first.
fn lyft(text: &str) -> Option<String> {
    let report = check_lyft(&[File { name: "rules.yaml", text }], false);
    report.errors.into_iter().next().map(|error| error.message)
}

fn merged(texts: &[&str], merge_domains: bool) -> Loaded {
    let names = ["a.yaml", "b.yaml", "c.yaml"];
    let files: Vec<_> = names.iter().zip(texts).map(|(name, text)| File { name, text }).collect();
    let mut options = Options::default();
    options.merge_domains = merge_domains;
    Rules::load(&files, &options)
}

const DOMAIN: &str = "domain: d\n";

/// A list of descriptors in the domain `d`.
fn list(descriptors: &str) -> String {
    format!("{DOMAIN}descriptors: [{descriptors}]\n")
}

#[test]
fn both_refuse_with_the_same_words() {
    let minute = "rate_limit: {requests_per_unit: 1, unit: minute}";
    let cases = [
        ("descriptors: []".to_owned(), "config file cannot have empty domain"),
        ("domain: ''".to_owned(), "config file cannot have empty domain"),
        ("# nothing at all".to_owned(), "config file cannot have empty domain"),
        (list("{value: v}"), "descriptor has empty key"),
        (list("{key: ''}"), "descriptor has empty key"),
        (
            list("{key: a, value: b}, {key: a, value: b}"),
            "duplicate descriptor composite key 'd.a_b'",
        ),
        (
            list("{key: a, descriptors: [{key: b}, {key: b}]}"),
            "duplicate descriptor composite key 'd.a.b'",
        ),
        (
            with_limit("requests_per_unit: 1, unit: fortnight"),
            "invalid rate limit unit 'fortnight'",
        ),
        (with_limit("requests_per_unit: 1, unit: unknown"), "invalid rate limit unit 'unknown'"),
        (with_limit("requests_per_unit: 1"), "invalid rate limit unit ''"),
        (
            with_limit("unlimited: true, unit: Day"),
            "should not specify rate limit unit when unlimited",
        ),
        (
            with_limit("requests_per_unit: 1, unit: day, replaces: [{name: ''}]"),
            "should not have an empty replaces entry",
        ),
        (
            with_limit("requests_per_unit: 1, unit: day, replaces: [{}]"),
            "should not have an empty replaces entry",
        ),
        (
            with_limit("requests_per_unit: 1, unit: day, name: n, replaces: [{name: n}]"),
            "replaces should not contain name of same descriptor",
        ),
        (
            list(&format!("{{key: a, value: b, share_threshold: true, {minute}}}")),
            "share_threshold can only be used with wildcard values (containing '*'), but found key 'a_b'",
        ),
        (list("{key: a, limits: {}}"), "config error, unknown key 'limits'"),
        (list("{key: a, '<<': {}}"), "config error, unknown key '<<'"),
        (list("{key: a, 7: b}"), "config error, key is not of type string: 7"),
        (list("{key: a, 0.25: b}"), "config error, key is not of type string: 0.25"),
        (list("{key: a, true: b}"), "config error, key is not of type string: true"),
        (list("{key: a, yes: b}"), "config error, key is not of type string: true"),
        (list("~"), "config error, yaml file contains list of type other than map: <nil>"),
        (list("text"), "config error, yaml file contains list of type other than map: text"),
        (list("[a, b]"), "config error, yaml file contains list of type other than map: [a b]"),
        (
            list("{key: a, <<: b}"),
            "error loading config file: yaml: map merge requires map or sequence of maps as the value",
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(errors(&text), [wanted], "{text}");
        assert_eq!(lyft(&text).as_deref(), Some(wanted), "{text}");
    }
}

#[test]
fn types_are_refused_by_both() {
    let cases = [
        ("requests_per_unit: -1, unit: day", "!!int `-1` into uint32"),
        ("requests_per_unit: 4294967296, unit: day", "!!int `4294967296` into uint32"),
        ("requests_per_unit: '10', unit: day", "!!str `10` into uint32"),
        ("requests_per_unit: many, unit: day", "!!str `many` into uint32"),
        ("requests_per_unit: true, unit: day", "!!bool `true` into uint32"),
        ("requests_per_unit: [{name: a}], unit: day", "!!seq into uint32"),
        ("unlimited: 'yes'", "!!str `yes` into bool"),
        ("requests_per_unit: 1, unit: {unit: day}", "!!map into string"),
    ];
    for (limit, wanted) in cases {
        let text = with_limit(limit);
        let wanted = format!("line 4: cannot unmarshal {wanted}");
        let ours = errors(&text);
        assert!(ours[0].starts_with("error loading config file: yaml: "), "{ours:?}");
        assert!(ours[0].ends_with(&wanted), "{ours:?}");
        let theirs = lyft(&text).unwrap();
        assert_eq!(
            theirs,
            format!("error loading config file: yaml: unmarshal errors:\n  {wanted}")
        );
    }
    // Its YAML library shows the beginning of a value, and lists all of them.
    let text =
        list("{key: a, shadow_mode: 'quite a bit', rate_limit: {requests_per_unit: x, unit: day}}");
    assert_eq!(
        lyft(&text).unwrap(),
        "error loading config file: yaml: unmarshal errors:\n  \
         line 2: cannot unmarshal !!str `quite a...` into bool\n  \
         line 2: cannot unmarshal !!str `x` into uint32"
    );
    assert!(
        lyft("- a").unwrap().ends_with("cannot unmarshal !!seq into map[interface {}]interface {}")
    );
    assert!(lyft("domain: [a").unwrap().starts_with("error loading config file: yaml: line "));
}

#[test]
fn numbers_that_lyft_does_not_know() {
    // Ours is text, as it was meant.
    for value in ["1.5", "1e3", "-.inf", "99999999999999999999"] {
        let text = list(&format!("{{key: a, value: {value}}}"));
        assert_eq!(lyft(&text).as_deref(), Some("error checking config"), "{value}");
        assert!(load(&text).rules.is_some(), "{value}");
    }
    for value in ["'1.5'", "!!str 1.5", "15", "2001-01-01", "0x1f"] {
        assert_eq!(lyft(&list(&format!("{{key: a, value: {value}}}"))), None, "{value}");
    }
}

#[test]
fn ours_alone_is_called_ours() {
    let text = with_limit("requests_per_unit: 1, per: 30s");
    let report = check_lyft(&[File { name: "rules.yaml", text: &text }], false);
    assert_eq!(
        report.to_string(),
        "rules.yaml:4:41: config error, unknown key 'per'\n  \
         4 |     rate_limit: { requests_per_unit: 1, per: 30s }\n    \
         |                                         ^^^\n  \
         in: descriptors[0].rate_limit\n  \
         hint: `per` is tidegate's; Lyft's service refuses the file\n"
    );
}

#[test]
fn lyft_looks_at_names_first_then_types_then_the_tree() {
    let wrong_tree = "{value: v}";
    let wrong_type = "{key: a, shadow_mode: 3}";
    let wrong_name = "{key: b, stranger: 3}";
    let all = list(&[wrong_tree, wrong_type, wrong_name].join(", "));
    assert_eq!(lyft(&all).unwrap(), "config error, unknown key 'stranger'");
    let two = list(&[wrong_tree, wrong_type].join(", "));
    assert!(lyft(&two).unwrap().contains("into bool"));
    // Ours names everything at once.
    assert_eq!(errors(&all).len(), 3);
}

#[test]
fn one_error_for_each_file_is_foretold() {
    let files = [
        File { name: "a", text: "domain: d\ndescriptors: [{key: a, x: 1, y: 2}]" },
        File { name: "b", text: "domain: e" },
        File { name: "c", text: "domain: e" },
    ];
    let report = check_lyft(&files, false);
    let said: Vec<_> = report.errors.iter().map(|error| (&*error.file, &*error.message)).collect();
    assert_eq!(
        said,
        [("a", "config error, unknown key 'x'"), ("c", "duplicate domain 'e' in config file")]
    );
    assert_eq!(check_lyft(&files[1..], true).errors, []);
}

/// `{key: a_b}` and `{key: a, value: b}` are the same to Lyft's service and two things to us.
#[test]
fn keys_are_not_joined_to_values() {
    let text = list(
        "{key: a_b, rate_limit: {requests_per_unit: 1, unit: day, name: joined}}, \
         {key: a, value: b, rate_limit: {requests_per_unit: 1, unit: day, name: apart}}",
    );
    assert_eq!(lyft(&text).unwrap(), "duplicate descriptor composite key 'd.a_b'");
    let rules = rules(&text);
    assert_eq!(met(&rules, &[("a", "b")]), ["apart"]);
    assert_eq!(met(&rules, &[("a_b", "")]), ["joined"]);
    let keys = |entries| met_with_keys(&rules, &[entries]).1;
    assert_ne!(keys(&[("a", "b")]), keys(&[("a_b", "")]));
}

#[test]
fn what_lyft_ignores_is_warned_of() {
    let day = "requests_per_unit: 1, unit: day";
    let cases = [
        (
            list(&format!("{{key: a, rate_limit: {{{day}, shadow_mode: true}}}}")),
            "`shadow_mode` inside `rate_limit` is ignored, as at Lyft",
        ),
        (list("{key: a, unit: day}"), "`unit` has no meaning in a descriptor and is ignored"),
        (
            list(&format!("{{key: a, rate_limit: {{{day}, quota_mode: true}}}}")),
            "`quota_mode` has no meaning in a limit and is ignored",
        ),
        ("domain: d\nkey: a".to_owned(), "`key` has no meaning in the file and is ignored"),
        (
            list(&format!("{{key: a, rate_limit: {{{day}, unit: hour}}}}")),
            "`unit` is given twice; the last one counts",
        ),
        ("domain: d\n---\ndomain: e\n".to_owned(), "only the first document of a file is read"),
        (list("{key: a, value: ''}"), "an empty `value` is none: every value matches"),
        (
            with_limit("unlimited: true, unit: fortnight"),
            "`unit: fortnight` has no meaning when unlimited",
        ),
        (
            with_limit(&format!("{day}, replaces: [{{name: nobody}}]")),
            "replaces 'nobody', but no limit of the domain has that name",
        ),
        (
            with_limit("unit: day"),
            "`requests_per_unit` is missing, which is 0 and refuses everything",
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(warnings(&text), [wanted], "{text}");
        assert_eq!(lyft(&text), None, "{text}");
    }
}

#[test]
fn a_key_before_a_merge_is_warned_of() {
    let text = "
domain: d
descriptors:
  - key: a
    rate_limit: &base { requests_per_unit: 1, unit: day }
  - key: b
    rate_limit: { unit: hour, <<: *base }
  - key: c
    rate_limit: { <<: *base, unit: hour }
";
    let wanted = "`unit` stands before `<<`, which gives it too; it counts here, but not at Lyft";
    assert_eq!(warnings(text), [wanted]);
    let units: Vec<_> = rules(text).all().iter().map(|rule| rule.unit.unwrap()).collect();
    assert_eq!(units, [Unit::Day, Unit::Hour, Unit::Hour]);
}

#[test]
fn the_last_of_two_keys_counts() {
    let rules = rules(&with_limit("requests_per_unit: 1, unit: day, requests_per_unit: 2"));
    assert_eq!(rules.all()[0].requests_per_unit, 2);
}

#[test]
fn values_are_text() {
    let limit = "rate_limit: {requests_per_unit: 1, unit: day}";
    for value in ["123", "true", "010", "1_000", "yes", "0x1f"] {
        let text = list(&format!("{{key: a, value: {value}, {limit}}}"));
        assert_eq!(warnings(&text), [""; 0], "{value}");
        let rules = rules(&text);
        assert_eq!(met(&rules, &[("a", value)]).len(), 1, "{value}");
        assert_eq!(met(&rules, &[("a", "other")]).len(), 0, "{value}");
    }
}

#[test]
fn anchors_and_merges() {
    let text = "
domain: d
descriptors:
  - key: a
    rate_limit: &base
      unit: hour
      requests_per_unit: 5
  - key: b
    rate_limit: *base
  - key: c
    rate_limit:
      <<: *base
      requests_per_unit: 7
  - key: e
    rate_limit:
      <<: [{ unit: day }, *base, { requests_per_unit: 9 }]
";
    assert_eq!(warnings(text), [""; 0]);
    assert_eq!(lyft(text), None);
    let rules = rules(text);
    let numbers: Vec<_> =
        rules.all().iter().map(|rule| (rule.requests_per_unit, rule.unit.unwrap())).collect();
    assert_eq!(numbers, [(5, Unit::Hour), (5, Unit::Hour), (7, Unit::Hour), (5, Unit::Day)]);
}

#[test]
fn units_in_any_case_with_lyfts_lengths() {
    let lengths = [1, 60, 3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400];
    for (unit, seconds) in Unit::ALL.into_iter().zip(lengths) {
        for name in [unit.as_str().to_owned(), unit.as_str().to_uppercase()] {
            let rule = common::limit(&format!("requests_per_unit: 3, unit: {name}"));
            assert_eq!(rule.unit, Some(unit));
            assert_eq!(unit.length().as_secs(), seconds);
            assert_eq!(rule.limit.limit(), 3);
        }
    }
}

/// A tree with a limit named after its place for every descriptor that has one.
fn tree() -> Rules {
    let limit =
        |name: &str| format!("rate_limit: {{requests_per_unit: 1, unit: day, name: {name}}}");
    rules(&format!(
        "
domain: d
descriptors:
  - {{ key: user, value: ada, {ada} }}
  - {{ key: user, value: 'a*', {a} }}
  - {{ key: user, value: 'a*a*', {never} }}
  - {{ key: user, value: '*z', {z} }}
  - {{ key: user, value: guest }}
  - {{ key: user, value: team, descriptors: [ {{ key: path, value: /x, {path} }} ] }}
  - {{ key: user, {any} }}
  - {{ key: 'x-*', {header} }}
  - {{ key: mid, value: 'a*b*c', {mid} }}
",
        ada = limit("ada"),
        a = limit("a"),
        never = limit("never"),
        z = limit("z"),
        path = limit("path"),
        any = limit("any"),
        header = limit("header"),
        mid = limit("mid"),
    ))
}

#[test]
fn exact_then_the_first_pattern_then_the_key() {
    let rules = tree();
    let cases = [
        ("ada", "ada"),
        ("adam", "a"),
        ("a", "a"),
        ("abcaz", "a"),
        ("fritz", "z"),
        ("bob", "any"),
        ("", "any"),
    ];
    for (user, wanted) in cases {
        assert_eq!(met(&rules, &[("user", user)]), [wanted], "{user}");
    }
    let never = load(&list("{key: u, value: 'a*'}, {key: u, value: 'a*a*'}")).report.warnings;
    assert_eq!(never[0].message, "`a*a*` can never match");
}

#[test]
fn stars_anywhere() {
    let rules = tree();
    for (value, matches) in [
        ("abc", true),
        ("a1b2c", true),
        ("abbcc", true),
        ("ac", false),
        ("xabc", false),
        ("abcx", false),
    ] {
        assert_eq!(met(&rules, &[("mid", value)]).len(), usize::from(matches), "{value}");
    }
    assert_eq!(met(&rules, &[("x-anything", "at all")]), ["header"]);
    assert_eq!(met(&rules, &[("y-anything", "at all")]).len(), 0);
}

#[test]
fn depth_is_equal_and_nobody_turns_back() {
    let rules = tree();
    assert_eq!(met(&rules, &[("user", "team"), ("path", "/x")]), ["path"]);
    // No limit above, no limit below, and the key alone is not tried after an exact child.
    for entries in [
        &[("user", "team")][..],
        &[("user", "team"), ("path", "/y")],
        &[("user", "ada"), ("path", "/x")],
        &[("user", "team"), ("path", "/x"), ("more", "")],
        &[("user", "guest")],
        &[("stranger", "x")],
        &[],
    ] {
        assert_eq!(met(&rules, entries).len(), 0, "{entries:?}");
    }
}

#[test]
fn a_pattern_is_for_its_key_unless_compatible() {
    let text = list("{key: user, value: '*', rate_limit: {requests_per_unit: 1, unit: day}}");
    for (lyft_compat, wanted) in [(false, 0), (true, 1)] {
        let mut options = Options::default();
        options.lyft_compat = lyft_compat;
        let loaded = Rules::load(&[File { name: "a", text: &text }], &options);
        let rules = loaded.rules.unwrap();
        assert_eq!(met(&rules, &[("user_id", "7")]).len(), wanted);
        assert_eq!(met(&rules, &[("user", "7")]).len(), 1);
        assert_eq!(rules.all()[0].limit.spec().count_rejected, lyft_compat);
    }
}

#[test]
fn sharing_at_any_level() {
    let limit = "rate_limit: {requests_per_unit: 1, unit: day}";
    let text = list(&format!(
        "{{key: org, value: 'o-*', share_threshold: true, descriptors: [\
           {{key: user, {limit}}}, {{key: file, value: 'f*', share_threshold: true, {limit}}}]}}, \
         {{key: org, value: o-own, descriptors: [{{key: user, {limit}}}]}}, \
         {{key: 'h-*', share_threshold: true, {limit}}}, \
         {{key: plain, value: 'p*', {limit}}}"
    ));
    let rules = rules(&text);
    let key = |entries: &[(&str, &str)]| met_with_keys(&rules, &[entries]).1.remove(0);
    // Above: the pattern stands for the organisation, the user is still its own.
    assert_eq!(key(&[("org", "o-1"), ("user", "a")]), key(&[("org", "o-2"), ("user", "a")]));
    assert_ne!(key(&[("org", "o-1"), ("user", "a")]), key(&[("org", "o-1"), ("user", "b")]));
    // At both levels.
    assert_eq!(key(&[("org", "o-1"), ("file", "f1")]), key(&[("org", "o-2"), ("file", "f2")]));
    // A sibling with the exact value has its own.
    assert_ne!(key(&[("org", "o-own"), ("user", "a")]), key(&[("org", "o-1"), ("user", "a")]));
    // A pattern of keys shares keys and values.
    assert_eq!(key(&[("h-a", "1")]), key(&[("h-b", "2")]));
    // Without it every value counts for itself.
    assert_ne!(key(&[("plain", "p1")]), key(&[("plain", "p2")]));
    // The pattern as a value is not the pattern.
    assert_ne!(key(&[("org", "o-*"), ("user", "a")]), key(&[("org", "o-own"), ("user", "a")]));
}

#[test]
fn unlimited_meets_nothing() {
    let rules = rules(&with_limit("unlimited: true"));
    let entries = [Entry::new("k", "v")];
    let mut found = Found::new();
    rules.find("d", &[Descriptor::new(&entries)], &mut found);
    assert_eq!((found.limits.len(), &found.reached[0]), (0, &Reached::Unlimited));
}

#[test]
fn replacing() {
    let rules = rules(
        "
domain: d
descriptors:
  - { key: all, rate_limit: { requests_per_unit: 9, unit: day, name: all } }
  - { key: vip, rate_limit: { requests_per_unit: 99, unit: day, name: vip, replaces: [{ name: all }] } }
  - { key: free, rate_limit: { unlimited: true, replaces: [{ name: all }, { name: vip }] } }
  - { key: one, rate_limit: { requests_per_unit: 1, unit: day, name: one, replaces: [{ name: two }] } }
  - { key: two, rate_limit: { requests_per_unit: 2, unit: day, name: two, replaces: [{ name: one }] } }
",
    );
    let met = |keys: &[&str]| {
        let entries: Vec<_> = keys.iter().map(|key| vec![(*key, "x")]).collect();
        let entries: Vec<_> = entries.iter().map(|entries| &entries[..]).collect();
        met_with_keys(&rules, &entries).0
    };
    assert_eq!(met(&["all"]), ["all"]);
    assert_eq!(met(&["all", "vip"]), ["vip"]);
    assert_eq!(met(&["vip", "all", "all"]), ["vip"]);
    assert_eq!(met(&["all", "free", "vip"]), [""; 0]);
    assert_eq!(met(&["one", "two"]), [""; 0], "each replaces the other");
    assert_eq!(met(&["one", "all"]), ["one", "all"]);
}

#[test]
fn overriding() {
    let rules = rules(&with_limit("requests_per_unit: 1, unit: day, name: n"));
    let limit = Override { requests_per_unit: 7, unit: Unit::Hour };
    let entries = [Entry::new("k", "v"), Entry::new("other", "")];
    let descriptor = Descriptor { limit: Some(limit), ..Descriptor::new(&entries) };
    let mut found = Found::new();
    rules.find("d", &[descriptor], &mut found);
    assert_eq!(found.limits.len(), 0);
    assert_eq!(found.reached[0], Reached::Override(limit));
    assert_eq!(rules.stats_key("d", &found, 0, &entries).unwrap(), "d.k_v.other");
    assert!(!found.override_key(0).is_empty());
    // A domain that nobody knows is not rescued by it.
    rules.find("elsewhere", &[descriptor], &mut found);
    assert_eq!((found.knows_domain, &found.reached[0]), (false, &Reached::Nothing));
}

#[test]
fn keys_of_statistics() {
    let limit = "rate_limit: {requests_per_unit: 1, unit: day}";
    let rules = rules(&list(&format!(
        "{{key: a, value: v, descriptors: [{{key: b, {limit}}}, {{key: c, detailed_metric: true, {limit}}}]}}, \
         {{key: w, value: 'x*', {limit}}}, \
         {{key: m, value_to_metric: true, descriptors: [{{key: n, {limit}}}]}}, \
         {{key: s, value: 'y*', share_threshold: true, detailed_metric: true, {limit}}}"
    )));
    let stats = |entries: &[(&str, &str)]| {
        let entries: Vec<_> = entries.iter().map(|(key, value)| Entry::new(key, value)).collect();
        let mut found = Found::new();
        rules.find("d", &[Descriptor::new(&entries)], &mut found);
        rules.stats_key("d", &found, 0, &entries)
    };
    assert_eq!(stats(&[("a", "v"), ("b", "1")]).unwrap(), "d.a_v.b");
    assert_eq!(stats(&[("a", "v"), ("c", "1")]).unwrap(), "d.a_v.c_1");
    assert_eq!(stats(&[("w", "xyz")]).unwrap(), "d.w_x*");
    assert_eq!(stats(&[("m", "1"), ("n", "2")]).unwrap(), "d.m_1.n");
    assert_eq!(stats(&[("s", "y1")]).unwrap(), "d.s_y*");
    assert_eq!(stats(&[("a", "other")]), None);
}

#[test]
fn domains_are_joined_on_request_in_the_order_of_files() {
    let (one, two) = (
        list("{key: a, value: 'x*', rate_limit: {requests_per_unit: 1, unit: day, name: first}}"),
        list("{key: a, value: '*', rate_limit: {requests_per_unit: 1, unit: day, name: second}}"),
    );
    let report = merged(&[&one, &two], false).report;
    assert_eq!(report.errors[0].message, "duplicate domain 'd' in config file");
    assert_eq!(report.errors[0].file, "b.yaml");
    let rules = merged(&[&one, &two], true).rules.unwrap();
    assert_eq!(met(&rules, &[("a", "xy")]), ["first"]);
    let rules = merged(&[&two, &one], true).rules.unwrap();
    assert_eq!(met(&rules, &[("a", "xy")]), ["second"]);
    let report = merged(&[&one, &two, &one], true).report;
    assert_eq!(report.errors[0].message, "duplicate descriptor composite key 'd.a_x*'");
    assert_eq!(report.errors[0].file, "c.yaml");
}

#[test]
fn nothing_per_unit_blocks() {
    for limit in ["requests_per_unit: 0, unit: day", "unit: day"] {
        let rule = common::limit(limit);
        assert_eq!((rule.requests_per_unit, rule.limit.limit()), (0, 0));
    }
}

#[test]
fn metadata_is_free() {
    let text = list(
        "{key: a, rate_limit: {requests_per_unit: 1, unit: day}, metadata: \
           {<<: {tier: base, more: 1}, tier: gold, weight: 1.5, tags: [a, {b: 18446744073709551615}]}}",
    );
    assert_eq!(lyft(&text), None);
    let rules = rules(&text);
    let entries = [Entry::new("a", "")];
    let mut found = Found::new();
    rules.find("d", &[Descriptor::new(&entries)], &mut found);
    let wanted = serde_json::json!({
        "tier": "gold", "more": 1, "weight": 1.5, "tags": ["a", {"b": 18446744073709551615_f64}],
    });
    assert_eq!(rules.metadata(&found, 0), Some(&wanted));
    assert_eq!(
        errors(&list("{key: a, metadata: text}")),
        ["error parsing metadata: a map is needed, found text"]
    );
}

#[test]
fn shadow_and_quota_belong_to_the_descriptor() {
    let limit = "rate_limit: {requests_per_unit: 1, unit: day}";
    let text = list(&format!(
        "{{key: a, shadow_mode: true, {limit}}}, {{key: b, quota_mode: true, {limit}}}, {{key: c, {limit}}}"
    ));
    let rules = rules(&text);
    let flags: Vec<_> = rules.all().iter().map(|rule| (rule.shadow, rule.quota)).collect();
    assert_eq!(flags, [(true, false), (false, true), (false, false)]);
}
