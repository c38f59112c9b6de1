//! Prints a line whenever rules change: edit a file, swap a link, or send SIGHUP.
//!
//! `cargo run -p tidegate --features files --example watch_rules -- rules.yaml more-rules/`
//!
//! It ends at the end of its input.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::io::Read as _;

use tidegate::files::{ReadError, RuleFiles, WatchOptions};
use tidegate::rules::{Loaded, Options};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    watch(RuleFiles::new(std::env::args_os().skip(1)))
}

/// Watches until there is no more input.
pub(crate) fn watch(files: RuleFiles) -> Result<(), Box<dyn Error>> {
    let texts = files.read()?;
    let first = Ok(texts.load(&Options::default()));
    let options = WatchOptions::new(Options::default()).since(texts).on_sighup(true);
    let watch = files.watch(options, |reload| {
        println!("{:?}: {}", reload.cause, outcome(&reload.loaded));
    })?;
    if let Some(notice) = watch.notice() {
        println!("notice: {notice}");
    }
    // Only now may others rely on being heard.
    println!("watching: {}", outcome(&first));
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// In a line, what came of it.
fn outcome(loaded: &Result<Loaded, ReadError>) -> String {
    match loaded {
        Ok(Loaded { rules: Some(rules), report }) => {
            format!("{} rules in {} files", rules.all().len(), report.files)
        }
        Ok(Loaded { report, .. }) => format!("the old rules stay, {} errors", report.errors.len()),
        Err(error) => format!("the old rules stay: {error}"),
    }
}
