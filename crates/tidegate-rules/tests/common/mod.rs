//! What the tests of rules share.
#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use tidegate_rules::{Descriptor, Entry, File, Found, Loaded, Options, Report, Rule, Rules};

/// Loads one file.
pub(crate) fn load(text: &str) -> Loaded {
    Rules::load(&[File { name: "rules.yaml", text }], &Options::default())
}

/// Loads one file that has to be right.
#[track_caller]
pub(crate) fn rules(text: &str) -> Rules {
    let Loaded { rules, report } = load(text);
    rules.unwrap_or_else(|| panic!("{report}\n{text}"))
}

/// What is said about one file.
pub(crate) fn report(text: &str) -> Report {
    load(text).report
}

/// The messages of all errors.
pub(crate) fn errors(text: &str) -> Vec<String> {
    report(text).errors.into_iter().map(|error| error.message).collect()
}

/// The messages of all warnings of a file that loads.
#[track_caller]
pub(crate) fn warnings(text: &str) -> Vec<String> {
    let report = report(text);
    assert!(report.is_ok(), "{report}");
    report.warnings.into_iter().map(|warning| warning.message).collect()
}

/// A file with one descriptor, whose key is `k`, and this limit in braces.
pub(crate) fn with_limit(limit: &str) -> String {
    format!("domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{ {limit} }}\n")
}

/// The one limit of such a file.
#[track_caller]
pub(crate) fn limit(limit: &str) -> Rule {
    rules(&with_limit(limit)).all()[0].clone()
}

/// The errors of such a file: the message, the line and the column.
pub(crate) fn limit_errors(limit: &str) -> Vec<String> {
    let shown = |error: &tidegate_rules::Diagnostic| {
        format!("{}:{} {}", error.place.line, error.place.column, error.message)
    };
    report(&with_limit(limit)).errors.iter().map(shown).collect()
}

/// The ids of the limits that a descriptor meets in domain `d`.
pub(crate) fn met(rules: &Rules, entries: &[(&str, &str)]) -> Vec<String> {
    let (ids, _) = met_with_keys(rules, &[entries]);
    ids
}

/// The ids of the limits that descriptors meet in domain `d`, and the keys that they count.
pub(crate) fn met_with_keys(
    rules: &Rules,
    descriptors: &[&[(&str, &str)]],
) -> (Vec<String>, Vec<Vec<u8>>) {
    let entries: Vec<Vec<Entry<'_>>> = descriptors
        .iter()
        .map(|entries| entries.iter().map(|(key, value)| Entry::new(key, value)).collect())
        .collect();
    let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
    let mut found = Found::new();
    rules.find("d", &descriptors, &mut found);
    let ids = found.limits.iter().map(|met| met.rule.id.to_string()).collect();
    let keys = found.limits.iter().map(|met| found.key(met).to_vec()).collect();
    (ids, keys)
}
