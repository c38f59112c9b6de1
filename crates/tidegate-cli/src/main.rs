//! The `tidegate` command.

mod args;
mod check;
mod config;
mod explain;
mod failure;
mod load;
mod replay;
mod serve;
mod settings;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::generate;

use crate::args::{Args, Command};
use crate::failure::{Ending, NO_QUESTION, say, write_out};

fn main() -> ExitCode {
    // Bad usage ends here with exit code 2, help and version with 0.
    let ending = match Args::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Schema => schema(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            generate(shell, &mut Args::command(), "tidegate", &mut script);
            write_out(&script)
        }
    };
    ending.unwrap_or_else(|failure| {
        say(&format!("{failure}\n"));
        ExitCode::from(NO_QUESTION)
    })
}

fn schema() -> Ending {
    write_out(format!("{:#}\n", tidegate::rules::json_schema()).as_bytes())
}
