//! Rules from files, for every command that needs some.

use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

use tidegate::files::RuleFiles;
use tidegate::rules::{Loaded, Options, Paint, Report, Rules};
use tidegate::{Modes, check_time_zone};

use crate::args::Loading;
use crate::failure::{Failure, chain, say};

/// How rules are to be read.
pub(crate) fn options(loading: &Loading) -> Options {
    let mut options = Options::default();
    options.merge_domains = loading.merge_domains;
    options.lyft_compat = loading.lyft_compat;
    options.check_time_zone = check_time_zone;
    options
}

/// What holds for all of them.
pub(crate) fn modes(loading: &Loading) -> Modes {
    let mut modes = Modes::default();
    modes.independent = loading.lyft_compat;
    modes
}

/// Loads rules, and says what came of it.
pub(crate) fn load(paths: &[PathBuf], loading: &Loading) -> Result<Loaded, Failure> {
    let loaded = RuleFiles::new(paths).load(&options(loading));
    loaded.map_err(|error| Failure::new(chain(&error)))
}

/// Rules that can be used. Everything found in them goes to stderr.
pub(crate) fn rules(paths: &[PathBuf], loading: &Loading) -> Result<Rules, Failure> {
    let Loaded { rules, report } = load(paths, loading)?;
    say(&shown(&report, paint()));
    rules.ok_or_else(|| {
        let count = report.errors.len() + report.dropped;
        Failure::new(format!("the rules have {}", counted(count, "error")))
            .hint("`tidegate check` says the same, and more for programs with --format json")
    })
}

/// All findings for people.
pub(crate) fn shown(report: &Report, paint: Paint) -> String {
    let found = report.errors.iter().chain(&report.warnings);
    let mut text: String = found.map(|found| found.render(&paint) + "\n").collect();
    if report.dropped > 0 {
        text.push_str(&format!("and {} more\n", report.dropped));
    }
    text
}

/// The colours of stderr: none unless it is a terminal, and none if nobody wants them.
pub(crate) fn paint() -> Paint {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if stderr().is_terminal() && !unwanted { Paint::COLOURS } else { Paint::default() }
}

/// `1 error`, `2 errors`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
