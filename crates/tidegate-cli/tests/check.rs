//! `tidegate check` as a person, a pipeline and a terminal meet it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use support::{Folder, run_command, text};

const PLAIN: &str = "\
domain: api
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 2, unit: second }
";
const OURS: &str = "\
domain: ours
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 2, unit: second, algorithm: gcra }
";
const WRONG: &str = "\
domain: wrong
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 2, unit: minutes }
";
const DOUBTFUL: &str = "\
domain: doubtful
descriptors:
  - key: user
    rate_limit: { unit: second }
";

/// The first lines of what was said: a place and a message each.
fn places(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| !line.is_empty() && !line.starts_with(' ')).collect()
}

#[test]
fn rules_that_are_right() {
    let folder = Folder::new(&[("a.yaml", PLAIN)]);
    let ended = folder.run(&["check", "a.yaml"]);
    assert_eq!(ended.stdout, "ok: 1 file, 1 rule, no warnings\n");
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""));
}

#[test]
fn what_is_wrong_goes_to_stderr_in_lyfts_words() {
    for (rules, said) in [
        (WRONG, "4:47: invalid rate limit unit 'minutes'"),
        ("descriptors: []\n", "1:1: config file cannot have empty domain"),
        ("domain: a\nstranger: 1\n", "2:1: config error, unknown key 'stranger'"),
        ("domain: a\ndescriptors:\n  - value: v\n", "3:5: descriptor has empty key"),
        (
            "domain: a\ndescriptors:\n  - key: k\n  - key: k\n",
            "4:5: duplicate descriptor composite key 'a.k'",
        ),
        (
            "domain: a\ndescriptors: [{key: k, rate_limit: {requests_per_unit: '5', unit: day}}]\n",
            "2:56: error loading config file: yaml: line 2: cannot unmarshal !!str `5` into uint32",
        ),
    ] {
        let folder = Folder::new(&[("a.yaml", rules)]);
        let ended = folder.run(&["check", "a.yaml"]);
        assert_eq!(places(&ended.stderr), [format!("a.yaml:{said}")]);
        assert_eq!(ended.code, Some(1));
        assert!(ended.stdout.starts_with("not ok: 1 file, "), "{}", ended.stdout);
        assert!(ended.stdout.ends_with(", 1 error\n"), "{}", ended.stdout);
        assert_eq!(ended.stdout.lines().count(), 1);
    }
}

#[test]
fn the_line_the_way_and_a_hint_are_shown() {
    let folder = Folder::new(&[("a.yaml", WRONG)]);
    let ended = folder.run(&["check", "a.yaml"]);
    let wanted = "\
a.yaml:4:47: invalid rate limit unit 'minutes'
  4 |     rate_limit: { requests_per_unit: 2, unit: minutes }
    |                                               ^^^^^^^
  in: descriptors[0].rate_limit.unit
  hint: did you mean `minute`?

";
    assert_eq!(ended.stderr, wanted);
}

#[test]
fn what_cannot_be_read_could_not_be_asked() {
    let folder = Folder::new(&[("a.yaml", PLAIN)]);
    folder.write("bytes.yaml", b"domain: \xff\n");
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    for (path, said) in [
        ("none.yaml", "it does not exist"),
        ("bytes.yaml", "byte 8 (from 0), in line 1, is not UTF-8"),
        ("empty", "it is a directory without rule files"),
    ] {
        for format in ["text", "json"] {
            let ended = folder.run(&["check", "--format", format, "a.yaml", path]);
            assert_eq!((ended.code, &*ended.stdout), (Some(2), ""), "{path}");
            let wanted = format!("error: reading rules from `{path}`: {said}");
            assert!(ended.stderr.starts_with(&wanted), "{}", ended.stderr);
        }
    }
    for arguments in [&["check"][..], &["check", "--stranger", "a.yaml"]] {
        assert_eq!(folder.run(arguments).code, Some(2));
    }
}

#[test]
fn several_files_and_directories_are_one_set_of_rules() {
    let folder = Folder::new(&[
        ("rules/a.yaml", PLAIN),
        ("rules/deep/down/b.yml", OURS),
        ("rules/.hidden.yaml", WRONG),
        ("rules/a.yaml~", WRONG),
        ("more.yaml", DOUBTFUL),
        ("wrong.yaml", WRONG),
    ]);
    let ended = folder.run(&["check", "rules"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "ok: 2 files, 2 rules, no warnings\n"));
    let ended = folder.run(&["check", "rules", "more.yaml", "wrong.yaml"]);
    assert_eq!(ended.stdout, "not ok: 4 files, 3 rules, 1 error, 1 warning\n");
    assert_eq!(ended.code, Some(1));
    assert_eq!(places(&ended.stderr).len(), 2);
}

#[test]
#[cfg(unix)]
fn a_volume_of_kubernetes_is_read_once() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new(&[("volume/..2026_11_16/a.yaml", PLAIN)]);
    symlink("..2026_11_16", folder.path().join("volume/..data")).unwrap();
    symlink("..data/a.yaml", folder.path().join("volume/a.yaml")).unwrap();
    let ended = folder.run(&["check", "volume"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "ok: 1 file, 1 rule, no warnings\n"));
}

#[test]
fn files_share_a_domain_only_if_asked_to() {
    let other = PLAIN.replace("user", "ip");
    let folder = Folder::new(&[("a.yaml", PLAIN), ("b.yaml", &other)]);
    let ended = folder.run(&["check", "a.yaml", "b.yaml"]);
    assert_eq!(places(&ended.stderr), ["b.yaml:1:1: duplicate domain 'api' in config file"]);
    assert!(ended.stderr.contains("hint: the domain is in `a.yaml` too; --merge-domains"));
    assert_eq!(ended.code, Some(1));
    let ended = folder.run(&["check", "--merge-domains", "a.yaml", "b.yaml"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "ok: 2 files, 2 rules, no warnings\n"));
}

#[test]
fn json_is_all_that_is_on_stdout() {
    let folder = Folder::new(&[("a.yaml", WRONG), ("b.yaml", DOUBTFUL), ("c.yaml", PLAIN)]);
    let ended = folder.run(&["check", "--format", "json", "a.yaml", "b.yaml"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let wanted = json!({
        "ok": false,
        "files": 2,
        "rules": 1,
        "errors": [{
            "file": "a.yaml",
            "line": 4,
            "column": 47,
            "path": "descriptors[0].rate_limit.unit",
            "message": "invalid rate limit unit 'minutes'",
            "hint": "did you mean `minute`?",
        }],
        "warnings": found["warnings"],
    });
    assert_eq!(found, wanted);
    let keys: Vec<_> = found["warnings"][0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["column", "file", "hint", "line", "message", "path"]);
    assert_eq!(found["warnings"].as_array().unwrap().len(), 1);
    assert_eq!((ended.code, &*ended.stderr), (Some(1), ""));

    let ended = folder.run(&["check", "--format", "json", "c.yaml"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    let wanted = json!({ "ok": true, "files": 1, "rules": 1, "errors": [], "warnings": [] });
    assert_eq!((ended.code, found), (Some(0), wanted));
}

#[test]
fn a_hint_that_is_not_there_is_null() {
    let folder = Folder::new(&[("a.yaml", "domain: a\ndescriptors: [\n")]);
    let ended = folder.run(&["check", "--format", "json", "a.yaml"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(found["errors"][0]["hint"], Value::Null, "{found}");
    assert_eq!(found["errors"][0]["path"], "", "{found}");
}

#[test]
fn warnings_count_if_they_are_to() {
    let folder = Folder::new(&[("a.yaml", DOUBTFUL)]);
    let ended = folder.run(&["check", "a.yaml"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "ok: 1 file, 1 rule, 1 warning\n"));
    assert!(ended.stderr.starts_with("a.yaml:4:17: warning: "), "{}", ended.stderr);
    let ended = folder.run(&["check", "--deny-warnings", "a.yaml"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(1), "not ok: 1 file, 1 rule, 1 warning\n"));
    let ended = folder.run(&["check", "--deny-warnings", "--format", "json", "a.yaml"]);
    let found: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &found["ok"]), (Some(1), &json!(false)));
}

#[test]
fn whether_lyfts_service_would_load_it() {
    let folder = Folder::new(&[("plain.yaml", PLAIN), ("ours.yaml", OURS), ("wrong.yaml", WRONG)]);
    let ended = folder.run(&["check", "--strict-lyft", "plain.yaml"]);
    let wanted = "ok: 1 file, 1 rule, no warnings; Lyft's service would load it too\n";
    assert_eq!((ended.code, &*ended.stdout, &*ended.stderr), (Some(0), wanted, ""));

    // Its words stand where they always stand; whose they are is in the hint.
    let ended = folder.run(&["check", "--strict-lyft", "ours.yaml"]);
    assert_eq!(places(&ended.stderr), ["ours.yaml:4:55: config error, unknown key 'algorithm'"]);
    let hint = "  hint: `algorithm` is tidegate's; Lyft's service refuses the file\n";
    assert!(ended.stderr.contains(hint), "{}", ended.stderr);
    assert_eq!((ended.code, &*ended.stdout), (Some(1), "not ok: 1 file, 1 rule, 1 error\n"));
    assert_eq!(folder.run(&["check", "ours.yaml"]).code, Some(0));
}

#[test]
fn what_both_refuse_is_said_once() {
    let both = [
        WRONG,
        "descriptors: []\n",
        "domain: a\ndescriptors: [\n",
        "domain: a\nstranger: 1\n",
        "domain: a\ndescriptors:\n  - key: k\n  - key: k\n",
        "domain: a\ndescriptors: [{key: k, rate_limit: {requests_per_unit: '5', unit: day}}]\n",
        "domain: a\ndescriptors: [{key: k, rate_limit: {requests_per_unit: 5}}]\n",
        "domain: a\ndescriptors: [5]\n",
        "[]\n",
        "",
    ];
    for rules in both {
        let folder = Folder::new(&[("a.yaml", rules)]);
        let ended = folder.run(&["check", "--strict-lyft", "a.yaml"]);
        assert_eq!(places(&ended.stderr).len(), 1, "{}", ended.stderr);
        assert_eq!(ended.code, Some(1), "{rules}");
    }
    // Two reasons on one line are two.
    let folder = Folder::new(&[("a.yaml", &WRONG.replace("minutes", "minutes, algorithm: gcra"))]);
    let ended = folder.run(&["check", "--strict-lyft", "a.yaml"]);
    assert_eq!(places(&ended.stderr).len(), 2, "{}", ended.stderr);
}

/// Runs the command on a terminal, or says what is missing to make one.
fn on_a_terminal(folder: &Folder, no_color: Option<&str>) -> String {
    let mut script = Command::new("script");
    script.args(["-qec", r#""$TIDEGATE" check wrong.yaml"#, "/dev/null"]);
    script.env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate")).current_dir(folder.path());
    script.env_remove("NO_COLOR");
    if let Some(value) = no_color {
        script.env("NO_COLOR", value);
    }
    let output = script.stdin(Stdio::null()).output().unwrap_or_else(|error| {
        panic!("cannot run `script`: {error}; install bsdutils (Debian) or util-linux")
    });
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    text(&output.stdout)
}

#[test]
fn colours_are_for_terminals_and_those_who_want_them() {
    let folder = Folder::new(&[("wrong.yaml", WRONG)]);
    let shown = on_a_terminal(&folder, None);
    assert!(shown.contains("\x1b[1;31mwrong.yaml:4:47:\x1b[0m invalid rate"), "{shown:?}");
    // By no-color.org an empty value does not count.
    assert_eq!(on_a_terminal(&folder, Some("")), shown);
    let plain = on_a_terminal(&folder, Some("1"));
    assert!(plain.contains("wrong.yaml:4:47: invalid rate"), "{plain:?}");
    assert!(!plain.contains('\x1b'), "{plain:?}");
    let ended = folder.run(&["check", "wrong.yaml"]);
    assert!(!ended.stderr.contains('\x1b') && !ended.stdout.contains('\x1b'));
}

/// A file could otherwise move the cursor, or hide what is wrong with it.
#[test]
fn what_a_file_holds_does_not_command_the_terminal() {
    let folder = Folder::new(&[("a.yaml", "domain: a\n\"x\\e[2J\": 1\n")]);
    let ended = folder.run(&["check", "a.yaml"]);
    assert_eq!(places(&ended.stderr), ["a.yaml:2:1: config error, unknown key 'x\\u{1b}[2J'"]);
    assert!(!ended.stderr.contains('\x1b'));
}

#[test]
fn nobody_has_to_listen() {
    let folder = Folder::new(&[("wrong.yaml", WRONG)]);
    for (stream, code) in [("2>&-", 1), (">&-", 1), ("2>/dev/full", 1), (">/dev/full", 2)] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!(r#""$TIDEGATE" check wrong.yaml {stream}"#)]);
        shell.env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate")).current_dir(folder.path());
        let output = run_command(shell, "");
        assert_eq!(output.status.code(), Some(code), "{stream}: {output:?}");
        assert!(!text(&output.stderr).contains("panicked"), "{output:?}");
    }
}

/// `tidegate check --watch`, ended when dropped.
struct Watching {
    child: Child,
    stdout: Option<Lines<BufReader<ChildStdout>>>,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl Watching {
    fn start(folder: &Folder, path: &str) -> Self {
        let mut command = folder.command(&["check", "--watch", path]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Some(BufReader::new(child.stdout.take().unwrap()).lines());
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, stdout, stderr }
    }

    fn line(&mut self) -> String {
        self.stdout.as_mut().unwrap().next().unwrap().unwrap()
    }

    #[cfg(unix)]
    fn hang_up(&self) {
        let kill = format!("kill -HUP {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

#[test]
fn watching_says_it_again_when_a_file_changes() {
    let folder = Folder::new(&[("rules/a.yaml", PLAIN)]);
    let mut watching = Watching::start(&folder, "rules");
    assert_eq!(watching.line(), "ok: 1 file, 1 rule, no warnings");
    folder.write("rules/a.yaml", WRONG);
    assert_eq!(watching.line(), "not ok: 1 file, 0 rules, 1 error");
    let said = watching.stderr.next().unwrap().unwrap();
    assert_eq!(said, "rules/a.yaml:4:47: invalid rate limit unit 'minutes'");
    folder.write("rules/b.yaml", OURS);
    assert_eq!(watching.line(), "not ok: 2 files, 1 rule, 1 error");
    folder.write("rules/a.yaml", PLAIN);
    assert_eq!(watching.line(), "ok: 2 files, 2 rules, no warnings");
    // What cannot be read is said too, and does not end it.
    folder.write("rules/a.yaml", b"domain: \xff\n");
    let mut said = watching.stderr.by_ref().map(Result::unwrap);
    assert!(said.any(|line| line.starts_with("error: reading rules from `rules/a.yaml`: byte 8")));
    folder.write("rules/a.yaml", PLAIN);
    assert_eq!(watching.line(), "ok: 2 files, 2 rules, no warnings");
}

#[test]
#[cfg(unix)]
fn watching_says_it_again_at_a_hangup_and_ends_when_nobody_reads() {
    let folder = Folder::new(&[("a.yaml", PLAIN)]);
    let mut watching = Watching::start(&folder, "a.yaml");
    assert_eq!(watching.line(), "ok: 1 file, 1 rule, no warnings");
    watching.hang_up();
    assert_eq!(watching.line(), "ok: 1 file, 1 rule, no warnings");
    watching.stdout = None;
    watching.hang_up();
    assert_eq!(watching.child.wait().unwrap().code(), Some(0));
    assert!(watching.stderr.next().is_none());
}

#[test]
fn watching_is_for_people() {
    let folder = Folder::new(&[("a.yaml", PLAIN)]);
    let ended = folder.run(&["check", "--watch", "--format", "json", "a.yaml"]);
    assert_eq!((ended.code, &*ended.stdout), (Some(2), ""));
}
