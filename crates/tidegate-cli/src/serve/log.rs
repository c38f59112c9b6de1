//! Log lines: to stderr, for people or for programs.

use std::io::IsTerminal as _;

use tracing_subscriber::fmt;

use crate::settings::Typed;

/// Begins to log.
pub(super) fn start(typed: &Typed) {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let builder = fmt()
        .with_max_level(typed.log_level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal() && !unwanted);
    match typed.log_json {
        true => builder.json().flatten_event(true).with_current_span(false).init(),
        false => builder.init(),
    }
}
