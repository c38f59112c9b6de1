//! What was typed.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

/// An exact rate limiter.
///
/// One engine as a library, a service and a gateway. So far the library is there: add the crate
/// `tidegate` to a Rust program. The service and its commands are being built on it.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print a script that completes tidegate's commands in a shell
    #[command(
        after_help = "For example: tidegate completions bash > /etc/bash_completion.d/tidegate"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
}

const AFTER_HELP: &str =
    "Exit codes: 0 fine, 1 the answer is no, 2 the question could not be asked.";
