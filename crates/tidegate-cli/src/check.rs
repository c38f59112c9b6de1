//! `tidegate check`: whether rules are right.

use std::process::ExitCode;
use std::sync::mpsc;

use serde_json::{Value, json};
use tidegate::files::{RuleFiles, WatchOptions};
use tidegate::rules::{Diagnostic, File, Report, check_lyft};

use crate::args::{CheckArgs, Format};
use crate::failure::{Ending, Failure, NO, chain, say, write_to_reader};
use crate::load::{counted, options, paint, shown};

/// Runs the command.
pub(crate) fn run(args: &CheckArgs) -> Ending {
    if args.watch {
        return watch(args);
    }
    let texts = RuleFiles::new(&args.paths).read().map_err(|error| Failure::new(chain(&error)))?;
    let report = check(args, &texts.files());
    answer(args, &report)?;
    Ok(ExitCode::from(if is_fine(args, &report) { 0 } else { NO }))
}

fn check(args: &CheckArgs, files: &[File<'_>]) -> Report {
    let mut report = tidegate::rules::Rules::load(files, &options(&args.loading)).report;
    if args.strict_lyft {
        // What we refuse too has been said already.
        let lyft = check_lyft(files, args.loading.merge_domains).errors;
        let known = |error: &Diagnostic| report.errors.iter().any(|known| is_same(known, error));
        let new: Vec<_> = lyft.into_iter().filter(|error| !known(error)).collect();
        // The message is Lyft's to the letter, so that whose it is has to be said beside it.
        report.errors.extend(new.into_iter().map(|mut error| {
            error.hint.get_or_insert_with(|| "Lyft's service refuses the file".to_owned());
            error
        }));
    }
    report
}

fn is_same(one: &Diagnostic, other: &Diagnostic) -> bool {
    one.file == other.file && (one.place == other.place || one.message == other.message)
}

fn is_fine(args: &CheckArgs, report: &Report) -> bool {
    report.is_ok() && (report.warnings.is_empty() || !args.deny_warnings)
}

/// Tells what was found, and whether anybody reads it.
fn answer(args: &CheckArgs, report: &Report) -> Result<bool, Failure> {
    let line = match args.format {
        Format::Json => as_json(report, is_fine(args, report)).to_string(),
        Format::Text => {
            say(&shown(report, paint()));
            summary(args, report)
        }
    };
    write_to_reader(format!("{line}\n").as_bytes())
}

fn summary(args: &CheckArgs, report: &Report) -> String {
    let found = match (report.errors.len(), report.warnings.len()) {
        (0, 0) => "no warnings".to_owned(),
        (0, warnings) => counted(warnings, "warning"),
        (errors, 0) => counted(errors, "error"),
        (errors, warnings) => {
            format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
        }
    };
    let word = if is_fine(args, report) { "ok" } else { "not ok" };
    let mut line = format!(
        "{word}: {}, {}, {found}",
        counted(report.files, "file"),
        counted(report.rules, "rule")
    );
    if args.strict_lyft && report.is_ok() {
        let them = if report.files == 1 { "it" } else { "them" };
        line.push_str(&format!("; Lyft's service would load {them} too"));
    }
    line
}

fn as_json(report: &Report, fine: bool) -> Value {
    let list = |found: &[Diagnostic]| -> Vec<Value> {
        let one = |found: &Diagnostic| {
            json!({
                "file": found.file,
                "line": found.place.line,
                "column": found.place.column,
                "path": found.path,
                "message": found.message,
                "hint": found.hint,
            })
        };
        found.iter().map(one).collect()
    };
    json!({
        "ok": fine,
        "files": report.files,
        "rules": report.rules,
        "errors": list(&report.errors),
        "warnings": list(&report.warnings),
    })
}

/// Checks again and again, until somebody ends it or nobody reads any more.
fn watch(args: &CheckArgs) -> Ending {
    let files = RuleFiles::new(&args.paths);
    let (sender, changes) = mpsc::channel();
    let settings = WatchOptions::new(options(&args.loading)).on_sighup(true);
    let watch = files.watch(settings, move |_| {
        // Nobody listens any more only when the command ends.
        let _ = sender.send(());
    });
    let _watch = watch.map_err(|error| Failure::new(chain(&error)))?;
    loop {
        match files.read() {
            Ok(texts) if answer(args, &check(args, &texts.files()))? => {}
            Ok(_) => return Ok(ExitCode::SUCCESS),
            Err(error) => say(&format!("{}\n", Failure::new(chain(&error)))),
        }
        if changes.recv().is_err() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
