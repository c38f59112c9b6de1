//! What `docs/http.md` shows is what comes out, and its examples are those of `examples/`.

use std::path::PathBuf;

use serde_json::Value;

use super::support::{Running, config};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The fenced blocks of a kind.
fn blocks<'p>(page: &'p str, kind: &str) -> Vec<&'p str> {
    let begin = format!("```{kind}\n");
    let mut rest = page;
    let mut found = Vec::new();
    while let Some((_, after)) = rest.split_once(&begin) {
        let (block, after) = after.split_once("\n```").unwrap();
        found.push(block);
        rest = after;
    }
    found
}

/// The commands of a block, each with what it shows.
fn commands(block: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command.to_owned(), String::new())),
            None => {
                let (_, shown) = commands.last_mut().expect("a command comes first");
                shown.push_str(line);
                shown.push('\n');
            }
        }
    }
    commands
}

/// A head and a body that is JSON, if it is; the time of day is left out.
fn parts(text: &str) -> (String, Result<Value, String>) {
    let text = text.replace("\r\n", "\n");
    let (head, body) = match text.starts_with("HTTP/") {
        true => text.split_once("\n\n").unwrap(),
        false => ("", &*text),
    };
    let is_told =
        |line: &&str| !line.starts_with("date: ") && !line.starts_with("content-length: ");
    let head = head.lines().filter(is_told).collect::<Vec<_>>().join("\n");
    (head, serde_json::from_str(body).map_err(|_| body.trim().to_owned()))
}

#[tokio::test]
async fn the_page_shows_what_comes_out() {
    let page = std::fs::read_to_string(root().join("docs/http.md")).unwrap();
    let rules = blocks(&page, "yaml")[0];
    let running = Running::with(rules, config()).await;
    let mut count = 0;
    for (command, shown) in blocks(&page, "console").into_iter().flat_map(commands) {
        let asked = command.replace("localhost:8080", &running.address());
        let run = move || std::process::Command::new("sh").arg("-c").arg(asked).output();
        let output = tokio::task::spawn_blocking(run).await.unwrap().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        let got = String::from_utf8(output.stdout).unwrap();
        assert_eq!(parts(&got), parts(&shown), "{command}\n{got}");
        count += 1;
    }
    assert!(count > 10, "the page has commands");
}

#[test]
fn examples_are_the_same_on_the_page() {
    let page = std::fs::read_to_string(root().join("docs/http.md")).unwrap();
    let without_comments = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.collect::<Vec<_>>().join("\n")
    };
    for (name, kind, at) in [("traefik.yaml", "yaml", 1), ("Caddyfile", "caddyfile", 0)] {
        let example = std::fs::read_to_string(root().join("examples").join(name)).unwrap();
        assert_eq!(without_comments(&example), blocks(&page, kind)[at], "{name}");
    }
    let nginx = std::fs::read_to_string(root().join("examples/nginx.conf")).unwrap();
    for line in blocks(&page, "nginx")[0].lines().map(str::trim) {
        let is_own = line.contains("your-application") || line == "return 429;";
        assert!(is_own || nginx.contains(line), "{line}");
    }
}
