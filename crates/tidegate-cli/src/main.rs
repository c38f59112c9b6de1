//! The `tidegate` command.

mod args;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::generate;

use crate::args::{Args, Command};

fn main() -> ExitCode {
    // Bad usage ends here with exit code 2, help and version with 0.
    match Args::parse().command {
        Command::Completions { shell } => {
            let mut script = Vec::new();
            generate(shell, &mut Args::command(), "tidegate", &mut script);
            write_out(&script)
        }
    }
}

/// Data goes to stdout. A reader that has seen enough is no failure.
fn write_out(data: &[u8]) -> ExitCode {
    match io::stdout().write_all(data) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to standard output: {error}");
            ExitCode::from(2)
        }
        _ => ExitCode::SUCCESS,
    }
}
