//! Files that mean harm: an error that can be understood, in bounded time, and never a panic.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use common::load;
use tidegate_rules::{File, Report, check_lyft};

/// What is said about a file that has to be answered soon. An unoptimised build on a busy machine
/// is slow; what is meant by harm takes hours.
#[track_caller]
fn soon(text: &str) -> Report {
    let begun = Instant::now();
    let report = load(text).report;
    let _ = report.to_string();
    let lyft = check_lyft(&[File { name: "rules.yaml", text }], false);
    let _ = lyft.to_string();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(30), "took {took:?}");
    report
}

#[track_caller]
fn refused(text: &str, wanted: &str) {
    let report = soon(text);
    let said = report.errors.first().map(|error| error.message.clone()).unwrap_or_default();
    assert!(said.contains(wanted), "`{said}` is not about `{wanted}`");
}

/// Each level holds ten times the one before.
fn laughs(levels: usize, first: &str) -> String {
    let mut text = format!("l0: &l0 {first}\n");
    for level in 1..levels {
        let before = format!("*l{}", level - 1);
        let all = vec![before; 10].join(", ");
        let _ = writeln!(text, "l{level}: &l{level} [{all}]");
    }
    text
}

#[test]
fn a_billion_laughs() {
    let text = laughs(10, "[ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]");
    refused(&text, "more than 16000000 values, aliases written out");
    // Where they would be looked at.
    let text = format!("domain: d\n{}descriptors: *l9\n", laughs(10, "{key: a}"));
    refused(&text, "more than 16000000 values, aliases written out");
    let text = format!("domain: d\ndescriptors:\n  - key: a\n    metadata:\n      x: &x {}\n", {
        let many = vec!["*y"; 1000].join(", ");
        format!("{{y: &y {{ {} }}, z: [{many}]}}", vec!["k: v"; 1000].join(", "))
    });
    let _ = soon(&text);
}

/// 2 KB of aliases within aliases stayed below the bound on values and took nine seconds to read.
#[test]
fn a_million_laughs() {
    let many = |alias: &str, times| vec![alias; times].join(", ");
    let laughs = |times| {
        format!(
            "domain: d
metadata: &a {{key: a, descriptors: [{}]}}
metadata: &b {{key: b, descriptors: [{}]}}
descriptors: [{}]
",
            many("{key: k, rate_limit: {unit: minutes}}", times),
            many("*a", times),
            many("*b", times),
        )
    };
    refused(&laughs(120), "document contains excessive aliasing");
    refused(&laughs(20), "duplicate descriptor composite key");
    // A long text by many aliases: segments of a path were compared with each other, and of what
    // is wrong with a template all was looked into.
    let path: String = (0..3000).map(|n| format!("/{{a{n}}}")).collect();
    let template = "${x}".repeat(3000);
    for entry in [
        format!("match: {{path: '{path}'}}, final: true"),
        format!("descriptors: [{{a: '{template}'}}]"),
    ] {
        let _ = soon(&format!("domain: d\nhttp: [&e {{{entry}}}, {}]\n", many("*e", 800)));
    }
    let pairs: String = (0..3000).map(|n| format!("a{n}: b, ")).collect();
    let _ = soon(&format!(
        "domain: d\nhttp: [&e {{descriptors: [{{{pairs}}}]}}, {}]\n",
        many("*e", 200)
    ));
}

#[test]
fn a_long_text_a_million_times() {
    let long = "x".repeat(1 << 20);
    let mut text = format!("domain: &x {long}\ndescriptors:\n");
    for value in 0..100_000 {
        let _ = writeln!(text, "- {{key: *x, value: {value}}}");
    }
    refused(&text, "more than 16000000 values, aliases written out");
    // Without an alias: every limit below a long key would bear it in its name.
    let mut text = format!("domain: d\ndescriptors:\n- key: {long}\n  descriptors:\n");
    for value in 0..100_000 {
        let _ =
            writeln!(text, "  - {{key: {value}, rate_limit: {{requests_per_unit: 1, unit: day}}}}");
    }
    refused(&text, "the keys and values down to here take more than 4096 bytes");
}

#[test]
fn an_alias_inside_itself() {
    refused("domain: d\ndescriptors: &a [*a]\n", "an alias stands inside what it refers to");
    refused("domain: d\ndescriptors: &a [{key: k, descriptors: *a}]\n", "an alias stands inside");
    refused("domain: d\n<<: &a {<<: *a}\n", "an alias stands inside");
    refused("domain: *nowhere\n", "error loading config file: yaml: line 1: ");
}

#[test]
fn a_thousand_levels() {
    refused(&format!("{}{}", "[".repeat(1000), "]".repeat(1000)), "error loading config file");
    refused(
        &format!("{}a: 1{}", "{a: ".repeat(1000), "}".repeat(1000)),
        "error loading config file",
    );
    let mut text = "domain: d\n".to_owned();
    for level in 0..1000 {
        let _ = writeln!(text, "{0}descriptors:\n{0}- key: k", "  ".repeat(level));
    }
    refused(&text, "error loading config file");
    // In steps, by aliases.
    let mut text = "domain: d\na0: &a0 {key: k}\n".to_owned();
    for level in 1..1000 {
        let _ = writeln!(text, "a{level}: &a{level} {{key: k, descriptors: [*a{}]}}", level - 1);
    }
    refused(&text, "nested more than 100 levels deep");
}

#[test]
fn forty_levels_of_descriptors_are_fine() {
    let mut text = "domain: d\n".to_owned();
    for level in 0..40 {
        let _ = writeln!(text, "{0}descriptors:\n{0}- key: k", "  ".repeat(level));
    }
    assert!(soon(&text).is_ok());
}

#[test]
fn a_file_of_65_mib() {
    refused(&" ".repeat(65 << 20), "the file is larger than 64 MiB");
}

#[test]
fn long_lines_are_shown_in_part() {
    let long = "ü".repeat(1 << 20);
    let text = format!("domain: d\ndescriptors: [{{key: k, stranger: {long}, other: 2}}]\n");
    let report = soon(&text);
    assert_eq!(report.errors.len(), 2);
    assert!(report.to_string().len() < 10_000);
    let (one, two) = (&report.errors[0], &report.errors[1]);
    assert_eq!((one.place.column, two.place.column), (24, 24 + 10 + (1 << 20) + 2));
    assert!(two.to_string().contains("other: 2"), "{two}");
}

#[test]
fn bytes_that_do_not_belong() {
    let refused = [
        "domain: \0\n",
        "domain: d\0\ndescriptors: []\n",
        "# a comment\0\ndomain: d\n",
        "domain: \"a\0b\"\n",
        "domain: d\u{1}\n",
        "domain: \"\\q\"\n",
        "domain: \"\\x4\"\n",
        "domain: \"\\ud800\"\n",
        "domain: \"\\ud800\\ud800\"\n",
        "domain: \"\\udc00\"\n",
        "domain: \"\\U00110000\"\n",
        "domain: 'never ends\n",
        "domain: |9999999999\n",
        "domain: d\n- x\n",
        "domain: d\ndescriptors: [{key: k}, ]]\n",
        "&a &b c: d\n",
        "? [a]\n: b\n",
    ];
    for text in refused {
        let report = soon(text);
        assert!(!report.is_ok(), "{text:?}");
        let said = report.to_string();
        assert!(!said.contains(['\0', '\u{1}']), "{said:?}");
    }
    // Strange, and no more than that is asked of them.
    for text in [
        "domain: \"\\ud83d\\ude00\"\n",
        "%YAML 9.9\n---\ndomain: d\n",
        "domain: d\n\tdescriptors: []\n",
        "? \n",
        "!!binary x: y\n",
        "\u{feff}\u{feff}domain: d\n",
        "\r\r\n\u{85}\u{2028}domain",
    ] {
        let _ = soon(text);
    }
}

#[test]
fn a_byte_order_mark_and_other_line_ends() {
    let text = "\u{feff}domain: d\r\ndescriptors:\r\n  - key: k\r\n    unknown: 1\r\n";
    let report = soon(text);
    let error = &report.errors[0];
    assert_eq!((error.place.line, error.place.column), (4, 5));
    assert_eq!(error.line_text, "    unknown: 1");
}

#[test]
fn a_million_keys_that_nobody_knows() {
    let mut text = "domain: d\n".to_owned();
    for number in 0..1_000_000 {
        let _ = writeln!(text, "stranger{number}: 1");
    }
    let report = soon(&text);
    assert_eq!(report.errors.len(), 1000);
    assert_eq!(report.dropped, 999_000);
    assert!(report.to_string().ends_with("and 999000 more\n"));
}

#[test]
fn what_grows_with_the_square_is_bounded() {
    // Names that no limit has, among many that some have.
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for n in 0..30_000 {
        let _ = writeln!(
            text,
            "- {{key: k{n}, rate_limit: {{requests_per_unit: 1, unit: day, name: n{n}, replaces: [{{name: m{n}}}]}}}}"
        );
    }
    assert_eq!(soon(&text).warnings.len(), 1000);
    // Limits of one descriptor.
    let mut text = "domain: d\ndescriptors:\n- key: k\n  rate_limits:\n".to_owned();
    for _ in 0..50_000 {
        text.push_str("  - {requests_per_unit: 1, unit: day}\n");
    }
    let refused = soon(&text).errors;
    assert_eq!(refused[0].message, "50000 limits on one descriptor; the most is 1000");
    // Many limits, and many who are exempt from all of them.
    let many: Vec<String> = (0..20_000).map(|n| format!("v{n}")).collect();
    let many = many.join(", ");
    let limits = "  - {requests_per_unit: 1, unit: day, exempt: [one]}\n".repeat(1000);
    for above in [
        "defaults: {exempt: [EXEMPT]}\ndescriptors:\n- key: k\n",
        "descriptors:\n- key: k\n  exempt: [EXEMPT]\n",
    ] {
        let above = above.replace("EXEMPT", &many);
        assert!(soon(&format!("domain: d\n{above}  rate_limits:\n{limits}")).is_ok());
    }
    // Many rules, and many requests that lead to none of them.
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    (0..50_000).for_each(|n| text.push_str(&format!("- {{key: rule{n}}}\n")));
    text.push_str("http:\n");
    (0..50_000).for_each(|n| text.push_str(&format!("- descriptors: [{{other{n}: x}}]\n")));
    assert!(soon(&text).is_ok());
    // Patterns that begin and end alike, as keys and as values.
    for way in ["key: '*x{n}*'", "key: k, value: '*x{n}*'"] {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        for n in 0..50_000 {
            let _ = writeln!(text, "- {{{}}}", way.replace("{n}", &n.to_string()));
        }
        assert!(soon(&text).is_ok());
    }
}

#[test]
fn a_path_of_five_million_segments() {
    let path = "/a".repeat(5_000_000);
    let text = format!("domain: d\nhttp: [{{match: {{path: {path}}}, descriptors: [{{a: b}}]}}]\n");
    refused(&text, "a path pattern of 10000000 bytes; the most is 4096");
}

#[test]
fn long_patterns_are_not_all_compared_with_each_other() {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    let long = "a".repeat(4000);
    for n in 0..3000 {
        let _ = writeln!(text, "- {{key: k, value: '*{long}{n:05}*'}}");
    }
    assert!(soon(&text).is_ok());
}

#[test]
fn names_of_limits_have_a_bound_together() {
    // A long key above many limits, each of which is named by the whole way to it.
    let mut text =
        format!("domain: d\ndescriptors:\n- key: {}\n  descriptors:\n", "k".repeat(3900));
    for n in 0..40_000 {
        let _ =
            writeln!(text, "  - {{key: c{n}, rate_limit: {{requests_per_unit: 1, unit: day}}}}");
    }
    let errors = soon(&text).errors;
    assert_eq!(errors.len(), 1);
    assert!(errors[0].message.contains("take more than 256 MiB"), "{}", errors[0]);
}
