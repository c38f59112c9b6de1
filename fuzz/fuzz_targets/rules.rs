//! Any text as rules: what is said of it holds together, and what was loaded answers requests.
//!
//! The first byte gives the options, a line `--- file` parts files, and lines that begin with `#>`
//! are the request that is asked about:
//!
//! ```text
//! #> GET http://a.example/v1/posts?page=2
//! #> x-user-id: ada
//! #> from 2001:db8::1
//! ```
#![no_main]

mod ask;
mod http;

use std::collections::HashSet;
use std::fmt::{Debug, Display};
use std::str::FromStr;

use libfuzzer_sys::fuzz_target;
use tidegate_rules::{
    Diagnostic, File, Loaded, Options, Origin, Paint, Place, Report, Rules, check_lyft,
};

const NAMES: [&str; 3] = ["a.yaml", "b.yaml", "c.yaml"];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let texts = text.splitn(NAMES.len(), "\n--- file\n");
    let files: Vec<_> = NAMES.iter().zip(texts).map(|(name, text)| File { name, text }).collect();
    let mut options = Options::default();
    options.merge_domains = first & 1 != 0;
    options.lyft_compat = first & 2 != 0;

    let Loaded { rules, report } = Rules::load(&files, &options);
    assert_eq!(report.is_ok(), rules.is_some());
    check_report(&report, &files);
    let lyft = check_lyft(&files, options.merge_domains);
    check_report(&lyft, &files);
    if lyft.is_ok() {
        check_superset(&report);
    }

    let again = Rules::load(&files, &options);
    assert_eq!(again.report, report);
    let (Some(rules), Some(again)) = (rules, again.rules) else { return };
    check_rules(&rules, &again, &files);
    ask::check(&rules);
    http::check(&rules, &text);
});

fn check_report(report: &Report, files: &[File<'_>]) {
    let shown = report.to_string();
    let strange = shown.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(strange, None, "a terminal would obey: {shown:?}");
    for found in report.errors.iter().chain(&report.warnings) {
        let Diagnostic { file, place, .. } = found;
        let file = files.iter().find(|known| known.name == file).expect("a file that was given");
        assert!(is_inside(*place, file.text), "{found:?}");
        let plain = found.render(&Paint::default());
        let Paint { error, warning, faint, reset } = Paint::COLOURS;
        let painted = found.render(&Paint::COLOURS);
        let stripped = [error, warning, faint, reset]
            .iter()
            .fold(painted, |text, colour| text.replace(colour, ""));
        assert_eq!(stripped, plain);
    }
}

/// Whether a place is that of a character, or right behind the last one of a line.
fn is_inside(Place { line, column }: Place, text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let Some(line) = line.checked_sub(1) else { return false };
    let line = text.split(['\n', '\r']).nth(line as usize);
    line.is_some_and(|line| (1..=line.chars().count() + 1).contains(&(column as usize)))
}

/// What Lyft's service loads, we load: all but what is said in `docs/migration-from-lyft.md`.
fn check_superset(ours: &Report) {
    let says = |found: &[Diagnostic], what: &str| found.iter().any(|it| it.message.contains(what));
    let known = ours.is_ok()
        // What a map says itself counts here, and may be wrong.
        || says(&ours.warnings, "stands before `<<`")
        // A bound of ours.
        || says(&ours.errors, "the keys and values down to here take more than");
    assert!(known, "Lyft's service loads this, and we say\n{ours}");
}

fn check_rules(rules: &Rules, again: &Rules, files: &[File<'_>]) {
    let mut counters = HashSet::new();
    assert_eq!(rules.all().len(), again.all().len());
    for (rule, same) in rules.all().iter().zip(again.all()) {
        assert!(counters.insert(&rule.counter), "two rules share `{}`", rule.counter);
        let name = |rule: &tidegate_rules::Rule| (rule.id.clone(), rule.counter.clone());
        assert_eq!(name(rule), name(same));
        assert_eq!(rule.limit, same.limit);
        check_text(&rule.limit);
        let Origin { file, place } = rule.origin;
        assert!(is_inside(place, files[file as usize].text), "{:?}", rule.origin);
        let shown = rules.origin(rule.origin);
        assert_eq!(shown, format!("{}:{}", files[file as usize].name, place.line));
    }
}

/// What is printed reads back as the same.
fn check_text<T: Debug + Display + FromStr<Err: Debug> + PartialEq>(value: &T) {
    let text = value.to_string();
    assert_eq!(text.parse::<T>().as_ref().ok(), Some(value), "{text}");
}
