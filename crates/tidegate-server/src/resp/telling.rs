//! Commands that tell something: `PING`, `ECHO`, `COMMAND`, `CONFIG GET`, `INFO`.

use std::fmt::Write as _;

use super::command::{COMMANDS, Command, find, unknown_part, wrong_arity};
use super::reply::Reply;
use super::session::Turn;

/// `PING [message]`
pub(crate) fn ping(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    match arguments {
        [] => turn.reply().simple("PONG"),
        [message] => turn.reply().bulk(message),
        _ => wrong_arity(turn, "ping"),
    }
}

/// `ECHO message`
pub(crate) fn echo(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    for message in arguments {
        turn.reply().bulk(message);
    }
}

/// `COMMAND [COUNT | LIST | DOCS [name …] | INFO [name …]]`
pub(crate) fn command(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    let Some((part, names)) = arguments.split_first() else {
        return describe(&mut turn.reply(), COMMANDS.iter().map(Some));
    };
    let is = |name: &[u8]| part.eq_ignore_ascii_case(name);
    if is(b"COUNT") && names.is_empty() {
        turn.reply().integer(i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX));
    } else if is(b"LIST") && names.is_empty() {
        let mut reply = turn.reply();
        reply.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
    } else if is(b"INFO") && names.is_empty() {
        describe(&mut turn.reply(), COMMANDS.iter().map(Some));
    } else if is(b"INFO") {
        describe(&mut turn.reply(), names.iter().map(|name| find(name)));
    } else if is(b"DOCS") && names.is_empty() {
        document(&mut turn.reply(), &COMMANDS.iter().collect::<Vec<_>>());
    } else if is(b"DOCS") {
        // Those that there are; a map has each of them once.
        let mut found: Vec<&Command> = names.iter().filter_map(|name| find(name)).collect();
        found.sort_unstable_by_key(|command| command.name);
        found.dedup_by_key(|command| command.name);
        document(&mut turn.reply(), &found);
    } else {
        unknown_part(turn, "command", part);
    }
}

fn describe<'a>(
    reply: &mut Reply<'_>,
    commands: impl ExactSizeIterator<Item = Option<&'a Command>>,
) {
    reply.array(commands.len());
    for command in commands {
        let Some(command) = command else {
            reply.null();
            continue;
        };
        reply.array(10);
        reply.bulk(command.name.as_bytes());
        reply.integer(command.arity);
        reply.set(command.flags.len());
        command.flags.iter().for_each(|flag| reply.simple(flag));
        // The first key, the last, and how far they are apart.
        for _ in 0..3 {
            reply.integer(command.has_key.into());
        }
        // Categories, hints, specifications of keys, parts: none.
        reply.set(0);
        reply.set(0);
        reply.set(0);
        reply.array(0);
    }
}

fn document(reply: &mut Reply<'_>, commands: &[&Command]) {
    reply.map(commands.len());
    for command in commands {
        reply.bulk(command.name.as_bytes());
        reply.map(2);
        reply.bulk(b"summary");
        reply.bulk(command.summary.as_bytes());
        reply.bulk(b"group");
        reply.bulk(if command.flags.contains(&"write") { b"generic" } else { b"connection" });
    }
}

/// What tools ask for that expect Redis.
const SETTINGS: &[(&str, &str)] =
    &[("appendonly", "no"), ("databases", "1"), ("maxmemory", "0"), ("save", "")];

/// `CONFIG GET pattern …`
pub(crate) fn config(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    let Some((part, patterns)) = arguments.split_first() else {
        return wrong_arity(turn, "config");
    };
    if !part.eq_ignore_ascii_case(b"GET") {
        return unknown_part(turn, "config", part);
    }
    if patterns.is_empty() {
        return wrong_arity(turn, "config|get");
    }
    let is_wanted = |name: &str| {
        patterns
            .iter()
            .any(|pattern| *pattern == b"*" || pattern.eq_ignore_ascii_case(name.as_bytes()))
    };
    let wanted = || SETTINGS.iter().filter(|(name, _)| is_wanted(name));
    let mut reply = turn.reply();
    reply.map(wanted().count());
    for (name, value) in wanted() {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// `INFO [section …]`
pub(crate) fn info(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    type Write = fn(&Turn<'_>) -> String;
    let sections: [(&str, Write); 4] =
        [("Server", server), ("Clients", clients), ("Stats", stats), ("Keyspace", keyspace)];
    let is_wanted = |section: &str| {
        let is = |wanted: &&[u8]| {
            [section, "all", "default", "everything"]
                .iter()
                .any(|name| wanted.eq_ignore_ascii_case(name.as_bytes()))
        };
        arguments.is_empty() || arguments.iter().any(is)
    };
    let mut text = String::new();
    for (name, write) in sections {
        if is_wanted(name) {
            let between = if text.is_empty() { "" } else { "\r\n" };
            // Writing to a string does not fail.
            let _ = write!(text, "{between}# {name}\r\n{}", write(turn));
        }
    }
    turn.reply().verbatim(&text);
}

/// The version of Redis whose replies to these commands are given, for clients that ask.
const REDIS_VERSION: &str = "7.4.0";

fn server(turn: &Turn<'_>) -> String {
    let up = turn.resp.counts.up();
    format!(
        "redis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\ntidegate_version:{}\r\n\
         process_id:{}\r\nuptime_in_seconds:{}\r\nuptime_in_days:{}\r\nio_threads_active:{}\r\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        up.as_secs(),
        up.as_secs() / (24 * 60 * 60),
        turn.resp.threads,
    )
}

fn clients(turn: &Turn<'_>) -> String {
    let (open, most) = (turn.resp.counts.open(), turn.resp.connections_max);
    format!("connected_clients:{open}\r\nmaxclients:{most}\r\n")
}

fn stats(turn: &Turn<'_>) -> String {
    let memory = turn.resp.service.limits().store().memory();
    let evicted = memory.map_or(0, |store| store.stats().evicted_live);
    format!(
        "total_connections_received:{}\r\ntotal_commands_processed:{}\r\nevicted_keys:{}\r\n\
         limits_brought:{}\r\n",
        turn.resp.counts.connections_so_far(),
        turn.resp.counts.commands_so_far(),
        evicted,
        turn.resp.brought.len(),
    )
}

fn keyspace(turn: &Turn<'_>) -> String {
    // Of keys that others keep, they tell.
    let memory = turn.resp.service.limits().store().memory();
    match memory.map_or(0, |store| store.len()) {
        0 => String::new(),
        // All of them go by themselves.
        keys => format!("db0:keys={keys},expires={keys},avg_ttl=0\r\n"),
    }
}
