//! The command as a person meets it.

use std::process::{Command, Output};

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[test]
fn help_goes_to_stdout_and_is_fine() {
    for arguments in [&["help"][..], &["--help"], &["-h"]] {
        let output = tidegate(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(text(&output.stdout).contains("Usage: tidegate <COMMAND>"), "{arguments:?}");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

#[test]
fn version_is_the_packages() {
    let output = tidegate(&["--version"]);
    assert_eq!(text(&output.stdout), format!("tidegate {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_command_that_does_not_exist_could_not_be_asked() {
    let output = tidegate(&["completion"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stdout), "");
    let complaint = text(&output.stderr);
    assert!(complaint.contains("unrecognized subcommand 'completion'"), "{complaint}");
    assert!(complaint.contains("'completions'"), "{complaint}");
}

#[test]
fn completions_are_made_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = tidegate(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(text(&output.stdout).contains("completions"), "{shell}");
    }
}
