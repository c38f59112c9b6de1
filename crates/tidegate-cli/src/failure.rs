//! Why a question could not be asked, and how a command ends.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// The answer is no.
pub(crate) const NO: u8 = 1;
/// The question could not be asked.
pub(crate) const NO_QUESTION: u8 = 2;

/// Something that keeps a command from its work.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, with where it happened.
    pub(crate) fn within(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

/// An error with all that led to it, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Talks to people, on stderr. That nobody listens is no reason to stop.
pub(crate) fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// How a command ends.
pub(crate) type Ending = Result<ExitCode, Failure>;

/// Writes data to standard output. A reader that has seen enough is no failure.
pub(crate) fn write_out(data: &[u8]) -> Ending {
    write_to_reader(data).map(|_| ExitCode::SUCCESS)
}

/// Writes data to standard output, and says whether anybody still reads there.
pub(crate) fn write_to_reader(data: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    is_read(out.write_all(data).and_then(|()| out.flush()))
}

/// Ends with `code`, unless the writing failed.
pub(crate) fn finish(written: io::Result<()>, code: ExitCode) -> Ending {
    is_read(written).map(|_| code)
}

fn is_read(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
    }
}
