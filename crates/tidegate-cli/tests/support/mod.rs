//! Running the command, with files and with input.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared by several test programs, each of which uses a part and may fail"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Runs the command without input.
pub fn tidegate(arguments: &[&str]) -> Output {
    run(arguments, "")
}

/// Runs the command with input.
pub fn run(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // Written beside, since whoever does not read its answers blocks the one who gives them.
    let writer = std::thread::spawn(move || {
        // It may end before it has read all.
        let _ = stdin.write_all(input.as_bytes());
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

/// Replays lines under the rules of a path.
pub fn replay(rules: &str, lines: &str) -> (Vec<Value>, Option<i32>) {
    let output = run(&["replay", "--rules", rules], lines);
    let answers = text(&output.stdout);
    let answers = answers.lines().map(|line| serde_json::from_str(line).unwrap());
    (answers.collect(), output.status.code())
}
