//! Running the command, with files and with input.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared by several test programs, each of which uses a part and may fail"
)]

pub mod redis;
pub mod serving;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Runs the command without input.
pub fn tidegate(arguments: &[&str]) -> Output {
    run(arguments, "")
}

/// The command, with the environment of somebody who has not set anything.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env_remove("NO_COLOR");
    command
}

/// Runs the command with input.
pub fn run(arguments: &[&str], input: impl AsRef<[u8]>) -> Output {
    run_command(command(arguments), input)
}

/// Runs a command with input.
pub fn run_command(mut command: Command, input: impl AsRef<[u8]>) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_owned();
    // Written beside, since whoever does not read its answers blocks the one who gives them.
    let writer = std::thread::spawn(move || {
        // It may end before it has read all.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The example that is shipped.
pub fn example() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules.yaml");
    root.to_str().unwrap().to_owned()
}

/// A folder in which the command runs, so that it names files as they are named here.
pub struct Folder {
    folder: TempDir,
}

impl Folder {
    pub fn new(files: &[(&str, &str)]) -> Self {
        let folder = Self { folder: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file, at once: whoever watches never sees half of it.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let new = path.with_extension("tmp");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.current_dir(self.path());
        command
    }

    /// Runs the command, and gives its exit code, stdout and stderr.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        Ended::from(run_command(self.command(arguments), ""))
    }
}

/// How the command ended, and what it said.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let code = output.status.code();
        Self { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// A file with rules.
pub struct Rules {
    folder: TempDir,
}

impl Rules {
    pub fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rules.yaml"), text).unwrap();
        Self { folder }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("rules.yaml")
    }

    /// Replays lines, and gives the answers and how it ended.
    pub fn replay(&self, lines: &str) -> (Vec<Value>, Option<i32>) {
        replay(self.path().to_str().unwrap(), lines)
    }
}

/// Replays lines under the rules of a path, in memory and in Redis, which say the same.
pub fn replay(rules: &str, lines: &str) -> (Vec<Value>, Option<i32>) {
    let output = run(&["replay", "--rules", rules], lines);
    let again = || command(&["replay", "--rules", rules]);
    redis::assert_same_in_redis(again, lines.as_bytes(), &output);
    let answers = text(&output.stdout);
    let answers = answers.lines().map(|line| serde_json::from_str(line).unwrap());
    (answers.collect(), output.status.code())
}
