//! The commands there are, and who does them.

use std::fmt::{self, Write as _};

use super::check::{check, peek};
use super::greeting::{auth, client, hello, quit, reset, select};
use super::session::Turn;
use super::telling::{command, config, echo, info, ping};
use super::throttle::{cl_throttle, gcra};

/// A command.
pub(crate) struct Command {
    /// Its name in small letters.
    pub(crate) name: &'static str,
    /// How many words it has, its name among them; at least so many if negative.
    pub(crate) arity: i64,
    /// What clients are told of it.
    pub(crate) flags: &'static [&'static str],
    /// Whether its first argument is a key.
    pub(crate) has_key: bool,
    /// Whether those may use it who have yet to say the password.
    pub(crate) is_for_strangers: bool,
    pub(crate) summary: &'static str,
    run: fn(&mut Turn<'_>, &[&[u8]]),
}

const fn plain(
    name: &'static str,
    arity: i64,
    summary: &'static str,
    run: fn(&mut Turn<'_>, &[&[u8]]),
) -> Command {
    let flags: &[&str] = &["fast", "loading", "stale"];
    Command { name, arity, flags, has_key: false, is_for_strangers: false, summary, run }
}

const fn deciding(
    name: &'static str,
    arity: i64,
    summary: &'static str,
    run: fn(&mut Turn<'_>, &[&[u8]]),
) -> Command {
    Command { flags: &["write", "fast"], ..plain(name, arity, summary, run) }
}

const fn keyed(command: Command) -> Command {
    Command { has_key: true, ..command }
}

const fn open(command: Command) -> Command {
    Command { is_for_strangers: true, flags: &["fast", "loading", "stale", "no_auth"], ..command }
}

/// All commands, those first that are used most.
pub(crate) const COMMANDS: &[Command] = &[
    keyed(deciding("cl.throttle", -5, "Asks a limit that comes with the request.", cl_throttle)),
    deciding("tidegate.check", -4, "Asks the limits that the rules have for a request.", check),
    keyed(deciding("gcra", -5, "Asks a limit that comes with the request.", gcra)),
    deciding("tidegate.peek", -4, "Looks at the limits and takes nothing.", peek),
    plain("ping", -1, "Says that the server is there.", ping),
    plain("echo", 2, "Says what it was told.", echo),
    open(plain("hello", -1, "Chooses the version of the protocol.", hello)),
    open(plain("auth", -2, "Says the password.", auth)),
    plain("client", -2, "Names a connection, and the like.", client),
    plain("command", -1, "Tells which commands there are.", command),
    plain("config", -2, "Tells settings.", config),
    plain("info", -1, "Tells how the server is.", info),
    plain("select", 2, "Chooses the one database that there is.", select),
    open(plain("reset", 1, "Makes a connection as good as new.", reset)),
    open(plain("quit", -1, "Ends a connection.", quit)),
];

/// The command of a name, however it is written.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
}

impl Command {
    /// Whether it can have so many words.
    #[inline]
    fn takes(&self, words: usize) -> bool {
        let words = i64::try_from(words).unwrap_or(i64::MAX);
        if self.arity < 0 { words >= -self.arity } else { words == self.arity }
    }
}

/// Does what a command says. There is at least its name.
#[inline]
pub(crate) fn run(turn: &mut Turn<'_>, words: &[&[u8]]) {
    let Some((name, arguments)) = words.split_first() else { return };
    let Some(command) = find(name) else { return unknown(turn, name, arguments) };
    if !command.takes(words.len()) {
        return wrong_arity(turn, command.name);
    }
    if turn.session.is_stranger(turn.resp) && !command.is_for_strangers {
        return turn.refuse(format_args!("NOAUTH Authentication required."));
    }
    (command.run)(turn, arguments);
}

/// Says that a command has too few or too many words.
#[cold]
pub(crate) fn wrong_arity(turn: &mut Turn<'_>, name: &str) {
    turn.refuse(format_args!("ERR wrong number of arguments for '{name}' command"));
}

/// Says that a command has no such part.
#[cold]
pub(crate) fn unknown_part(turn: &mut Turn<'_>, command: &str, part: &[u8]) {
    let (part, name) = (Quoted(part), command.to_ascii_uppercase());
    turn.refuse(format_args!("ERR unknown subcommand '{part}'. Try {name} HELP."));
}

#[cold]
fn unknown(turn: &mut Turn<'_>, name: &[u8], arguments: &[&[u8]]) {
    if turn.session.is_stranger(turn.resp) {
        return turn.refuse(format_args!("NOAUTH Authentication required."));
    }
    let mut beginning = String::new();
    for argument in arguments {
        if beginning.len() >= QUOTED_MAX {
            break;
        }
        // Writing to a string does not fail.
        let _ = write!(beginning, "'{}' ", Quoted(argument));
    }
    let name = Quoted(name);
    turn.refuse(format_args!(
        "ERR unknown command '{name}', with args beginning with: {beginning}"
    ));
}

/// How many bytes of what a client has sent are told back to it in an error.
const QUOTED_MAX: usize = 128;

/// What a client has sent, for an error.
pub(crate) struct Quoted<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = &self.0[..self.0.len().min(QUOTED_MAX)];
        f.write_str(&String::from_utf8_lossy(start))
    }
}
