//! Files made at random: what Lyft's service loads, we load; what it says, we say; nothing panics.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use common::load;
use proptest::prelude::*;
use tidegate_rules::{File, check_lyft};

/// Writes a file, led by numbers; when they are used up, the rest is plain.
struct Writer<'a> {
    choices: &'a [u8],
    out: String,
}

impl Writer<'_> {
    fn choose<'w>(&mut self, words: &[&'w str]) -> &'w str {
        let (first, rest) = self.choices.split_first().unwrap_or((&0, &[]));
        self.choices = rest;
        words[usize::from(*first) % words.len()]
    }

    fn maybe(&mut self, key: &str, values: &[&str]) {
        let value = self.choose(&[&["-"; 2][..], values].concat());
        if value != "-" {
            self.out += &format!("{key}: {value}, ");
        }
    }

    fn file(&mut self) {
        let domain = self.choose(&["d", "d", "d", "d", "''", "7", "[]"]);
        self.out += &format!("{{domain: {domain}, descriptors: ");
        self.descriptors(0);
        self.out += "}\n";
    }

    fn descriptors(&mut self, depth: usize) {
        self.out += "[";
        for _ in 0..self.choose(&["1", "2", "3", "0"]).parse().unwrap() {
            self.descriptor(depth);
            self.out += ", ";
        }
        self.out += "]";
    }

    fn descriptor(&mut self, depth: usize) {
        self.out += "{";
        let key = self.choose(&["a", "b", "c", "e", "f", "a*", "true", "''", "~", "{}"]);
        self.out += &format!("key: {key}, ");
        self.maybe("value", &["x", "y", "z", "'x*'", "12", "true", "''", "~", "[{}]"]);
        for flag in ["shadow_mode", "quota_mode", "detailed_metric", "share_threshold"] {
            self.maybe(flag, &["false", "false", "~", "false", "true", "no", "'true'", "3"]);
        }
        self.maybe("unit", &["day", "nonsense"]);
        self.maybe("metadata", &["{a: [1.5, ~, {b: c}]}", "{}", "~", "text"]);
        self.maybe("stranger", &["-", "-", "-", "-", "-", "1"]);
        if self.choose(&["yes", "yes", "no"]) == "yes" {
            self.limit();
        }
        if depth < 3 && self.choose(&["no", "no", "yes"]) == "yes" {
            self.out += "descriptors: ";
            self.descriptors(depth + 1);
        }
        self.out += "}";
    }

    fn limit(&mut self) {
        self.out += "rate_limit: {";
        let units =
            ["day", "SECOND", "Week", "year", "minute", "month", "days", "''", "~", "unknown", "5"];
        let unit = self.choose(&units);
        self.out += &format!("unit: {unit}, ");
        self.maybe(
            "requests_per_unit",
            &["1", "0", "0x10", "017", "4294967295", "4294967296", "-1", "'1'", "~"],
        );
        self.maybe("unlimited", &["false", "false", "true", "on", "~", "'no'"]);
        self.maybe("name", &["n", "m", "''", "~", "5"]);
        self.maybe(
            "replaces",
            &["[{name: n}]", "[{name: m}, {name: o}]", "[]", "~", "[{}]", "[{name: ''}]", "[x]"],
        );
        self.maybe("shadow_mode", &["true", "false"]);
        self.out += "}, ";
    }
}

fn written(choices: &[u8]) -> String {
    let mut writer = Writer { choices, out: String::new() };
    writer.file();
    writer.out
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(4000) })]

    #[test]
    fn both_agree(choices in proptest::collection::vec(any::<u8>(), 0..60)) {
        let text = written(&choices);
        let ours = load(&text).report;
        let lyft = check_lyft(&[File { name: "rules.yaml", text: &text }], false);
        match lyft.errors.first() {
            None => prop_assert!(ours.is_ok(), "Lyft loads this\n{text}\n{ours}"),
            Some(first) => {
                // Types are told in other words.
                let types = first.message.contains("cannot unmarshal");
                let same = |message: &str| match types {
                    true => message.contains("error loading config file") || message.contains("metadata"),
                    false => message == first.message,
                };
                let said = ours.errors.iter().any(|error| same(&error.message));
                prop_assert!(said, "Lyft refuses this\n{text}\n{first}\nwe say\n{ours}");
            }
        }
    }

    #[test]
    fn nothing_panics(text in "(domain: d\n)?(descriptors:|http:|- |  |\\{|\\}|\\[|\\]|key: |\\*a|&a |<<: |rate_limit: |\"|'|\\||>|%|\\?|~|1|x|,|:|#|\n|\t|\r|\u{0}|é){0,40}") {
        let report = load(&text).report;
        let _ = report.to_string();
        let _ = check_lyft(&[File { name: "rules.yaml", text: &text }], true).to_string();
        for found in report.errors.iter().chain(&report.warnings) {
            prop_assert!(found.place.line >= 1 && found.place.column >= 1, "{found:?}");
        }
    }
}
