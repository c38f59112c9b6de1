//! The guide: its files are written, its commands run, and what it shows is what comes out.
//!
//! `TIDEGATE_BLESS=1 cargo test -p tidegate-cli --test guide` writes what this compares.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::{Folder, text};

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide.md")
}

/// Runs a command as a shell would, with `tidegate` on its path; stderr and stdout as on a screen.
fn shell(folder: &Folder, command: &str) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([binary].into_iter().chain(std::env::split_paths(&path)));
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec 2>&1\n{command}")]).current_dir(folder.path());
    shell.env("PATH", path.unwrap()).env_remove("NO_COLOR").stdin(Stdio::null());
    text(&shell.output().unwrap().stdout)
}

/// A block of commands with what they really say: `$ ` begins a command, `> ` goes on with it.
fn run_all(folder: &Folder, block: &str) -> String {
    let mut out = String::new();
    let mut lines = block.lines().peekable();
    while let Some(line) = lines.next() {
        // What was said the last time.
        let Some(first) = line.strip_prefix("$ ") else { continue };
        let mut command = format!("{first}\n");
        out += &format!("{line}\n");
        while let Some(more) = lines.next_if(|line| line.starts_with("> ")) {
            command += &format!("{}\n", &more[2..]);
            out += &format!("{more}\n");
        }
        out += &shell(folder, &command);
    }
    out
}

/// The page with what its commands say. Blocks of YAML begin with the name of their file.
fn renewed(page: &str) -> String {
    let folder = Folder::new(&[]);
    let mut out = String::new();
    let mut rest = page;
    while let Some(open) = rest.find("```") {
        let start = open + rest[open..].find('\n').unwrap() + 1;
        let end = start + rest[start..].find("```").unwrap();
        let block = &rest[start..end];
        out += &rest[..start];
        match rest[open + 3..start].trim() {
            "yaml" => {
                let name = block.lines().next().unwrap().strip_prefix("# ");
                folder.write(name.expect("the name of the file"), block);
                out += block;
            }
            "console" => out += &run_all(&folder, block),
            other => panic!("nobody tries a block of `{other}`"),
        }
        out += "```";
        rest = &rest[end + 3..];
    }
    out + rest
}

#[test]
fn what_the_guide_shows_is_what_comes_out() {
    let shown = fs::read_to_string(page()).unwrap();
    let real = renewed(&shown);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(page(), &real).unwrap();
        return;
    }
    let mut lines = shown.lines().zip(real.lines()).zip(1..);
    let differs = lines.find(|((shown, real), _)| shown != real);
    assert!(shown == real, "docs/guide.md differs, TIDEGATE_BLESS=1 writes it: {differs:?}");
}

/// What the text between the blocks says.
#[test]
fn the_guide_keeps_its_promises() {
    let page = fs::read_to_string(page()).unwrap();
    for shown in [
        "ok: 1 file, ",
        "not ok: 1 file, ",
        "invalid rate limit unit 'minutes'",
        "no limit is met: the request passes",
        "\"allowed\":false",
        "shadow: refuses nobody",
        "is not in the share that `percent` gives",
        "\"soft\":true",
    ] {
        assert!(page.contains(shown), "the guide shows `{shown}`");
    }
}
