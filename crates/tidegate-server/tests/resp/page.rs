//! The page on RESP: what it shows is what comes out.
//!
//! `TIDEGATE_BLESS=1 cargo test -p tidegate-server --test resp page` writes what this compares.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::start_with;

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/resp.md")
}

/// What a block of a kind has in it, with the lines that fence it.
fn blocks<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let open = format!("```{kind}\n");
    let starts = text.match_indices(&open).map(|(at, open)| at + open.len());
    starts.map(|start| &text[start..start + text[start..].find("```").unwrap()]).collect()
}

/// A session again, as it is on a terminal.
fn again(session: &str, port: u16) -> String {
    let mut out = String::new();
    for line in session.lines().filter(|line| line.starts_with("$ ")) {
        let words = line.strip_prefix("$ redis-cli -p 6380 ").expect("a redis-cli").split(' ');
        let port = port.to_string();
        let output = Command::new("redis-cli").args(["--no-raw", "-p", &port]).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("redis-cli: {error}; run tools/install"));
        let said = String::from_utf8(output.stdout).unwrap();
        out += &format!("{line}\n{}\n", said.trim_end());
    }
    out
}

#[test]
fn what_the_page_shows_is_what_comes_out() {
    let shown = fs::read_to_string(page()).unwrap();
    let rules = blocks(&shown, "yaml");
    let server = start_with(rules[0], |_| {});
    let mut real = shown.clone();
    for session in blocks(&shown, "console") {
        real = real.replace(session, &again(session, server.port));
    }
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        return fs::write(page(), &real).unwrap();
    }
    for (shown, real) in shown.lines().zip(real.lines()) {
        assert_eq!(shown, real);
    }
    assert_eq!(shown, real);
}
