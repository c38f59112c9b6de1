//! Reads the `http` section.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::entry::{Conditions, DescriptorTemplate, EntryTemplate, HttpEntry};
use super::pattern::{PathPattern, Wrong};
use super::request::is_token;
use super::settling::{Settling, Statuses, parse_statuses};
use super::template::Template;
use crate::diagnostic::{At, Path, list, nearest};
use crate::field::{HTTP, MATCH};
use crate::read::{Fields, Reader};
use crate::yaml::{Kind, Node, Place};

/// Among how many names of segments the one that was probably meant is looked for.
const SUGGESTED_FROM_MAX: usize = 50;

/// Reads the `http` section.
pub(crate) fn read<'t>(reader: &mut Reader<'_, 't>, root: &Fields<'_, 't>) -> Vec<HttpEntry> {
    let list = reader.list(root, "http");
    let path = root.path.key("http");
    let mut entries = Vec::with_capacity(list.len());
    for (position, item) in list.iter().enumerate() {
        let path = path.index(position);
        entries.extend(read_entry(reader, item, &path, position));
    }
    entries
}

fn read_entry<'t>(
    reader: &mut Reader<'_, 't>,
    node: &Node<'t>,
    path: &Path<'_>,
    position: usize,
) -> Option<HttpEntry> {
    let fields = reader.fields(node, &HTTP, path)?;
    let (conditions, is_path_known) = match fields.get("match") {
        Some(node) => {
            let path = path.key("match");
            let fields = reader.fields(node, &MATCH, &path);
            fields.map_or((Conditions::default(), false), |fields| read_match(reader, &fields))
        }
        None => (Conditions::default(), true),
    };
    let segments = |name: &str| match &conditions.path {
        // What is wrong with the path has been said; it may well have the segment.
        _ if !is_path_known => Ok(0),
        path => find_segment(path.as_ref(), name),
    };
    let is_final = reader.flag(&fields, "final").unwrap_or(false);
    let descriptors = read_descriptors(reader, &fields, is_final, &segments);
    let cost = reader.number(&fields, &HTTP, "cost");
    let settling = read_settling(reader, &fields);
    let denies_missing = reader.word(&fields, &HTTP, "on_missing") == Some("deny");
    let origin = reader.origin(node.place);
    Some(HttpEntry {
        origin,
        position,
        conditions,
        descriptors,
        cost,
        settling,
        denies_missing,
        is_final,
    })
}

/// What answers change of what was counted, if anything.
fn read_settling<'t>(
    reader: &mut Reader<'_, 't>,
    fields: &Fields<'_, 't>,
) -> Option<Arc<Settling>> {
    let cost_header = reader.text(fields, "cost_header").and_then(|name| match is_token(name) {
        true => Some(name.to_ascii_lowercase().into()),
        false => {
            let wrong = Wrong::new(format!("`{name}` is not the name of a header"));
            report_field(reader, fields, "cost_header", name, wrong);
            None
        }
    });
    let free = read_statuses(reader, fields, "free_statuses");
    let counted = read_statuses(reader, fields, "counted_statuses");
    let statuses = match (free, counted) {
        (Some(_), Some(_)) => {
            let path = fields.path.key("counted_statuses");
            let at = At::new(fields.place_of("counted_statuses"), &path)
                .hint("all that is not counted is free");
            reader.error(at, "`free_statuses` and `counted_statuses` exclude each other");
            None
        }
        (Some(free), None) => Some(Statuses::Free(free)),
        (None, Some(counted)) => Some(Statuses::Counted(counted)),
        (None, None) => None,
    };
    let settling = Settling { cost_header, statuses };
    (settling != Settling::default()).then(|| Arc::new(settling))
}

fn read_statuses<'t>(
    reader: &mut Reader<'_, 't>,
    fields: &Fields<'_, 't>,
    name: &str,
) -> Option<Box<[RangeInclusive<u16>]>> {
    let texts = reader.texts(fields, name);
    let mut statuses = Vec::with_capacity(texts.len());
    for text in texts {
        match parse_statuses(text) {
            Some(range) => statuses.push(range),
            None => {
                let wrong = Wrong::new(format!("`{text}` is not a status"))
                    .hint("`404`, `500-599` or `5xx`");
                report_field(reader, fields, name, text, wrong);
            }
        }
    }
    (!statuses.is_empty()).then(|| statuses.into())
}

fn find_segment(path: Option<&PathPattern>, name: &str) -> Result<usize, Wrong> {
    let Some(pattern) = path else {
        let message = format!("`${{path.{name}}}` needs a `path` with a segment `{{{name}}}`");
        return Err(
            Wrong::new(message).hint(format!("such as `match: {{ path: \"/{{{name}}}\" }}`"))
        );
    };
    pattern.position(name).ok_or_else(|| {
        let shown = pattern.as_str();
        let wrong =
            Wrong::new(format!("`{shown}` has no segment `{{{name}}}` for `${{path.{name}}}`"));
        let names: Vec<&str> = pattern.names().take(SUGGESTED_FROM_MAX).collect();
        match nearest(name, names.iter().copied()) {
            Some(near) => wrong.hint(format!("did you mean `${{path.{near}}}`?")),
            None if names.is_empty() => wrong.hint("`{name}` in a path names a segment"),
            None => wrong.hint(format!("its segments are {}", list(&names))),
        }
    })
}

/// The conditions, and whether the path could be read.
fn read_match<'t>(reader: &mut Reader<'_, 't>, fields: &Fields<'_, 't>) -> (Conditions, bool) {
    let methods = read_methods(reader, fields).into();
    let host = read_host(reader, fields);
    let path = read_path(reader, fields);
    let headers = read_headers(reader, fields).into();
    let is_path_known = path.is_ok();
    (Conditions { methods, host, path: path.unwrap_or_default(), headers }, is_path_known)
}

fn read_methods<'t>(reader: &mut Reader<'_, 't>, fields: &Fields<'_, 't>) -> Vec<Box<str>> {
    let Some(node) = fields.get("method") else { return Vec::new() };
    let path = fields.path.key("method");
    let mut methods = Vec::new();
    match &node.kind {
        Kind::Scalar(_) => methods.extend(read_method(reader, node, &path)),
        Kind::List(items) if items.is_empty() => {
            let at = At::new(node.place, &path).hint("leave `method` out to match any");
            reader.error(at, "an empty list of methods matches no request");
        }
        Kind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                methods.extend(read_method(reader, item, &path.index(index)));
            }
        }
        Kind::Map(_) => reader.type_error(fields, "method", node, "string"),
    }
    methods
}

/// The methods that everybody knows.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

fn read_method<'t>(
    reader: &mut Reader<'_, 't>,
    node: &Node<'t>,
    path: &Path<'_>,
) -> Option<Box<str>> {
    let text = match node.scalar() {
        Some(scalar) if !node.is_null() => &*scalar.text,
        _ => {
            let message = format!("a method is text, found {}", node.what());
            reader.error(At::new(node.place, path), message);
            return None;
        }
    };
    let at = At::new(node.place, path).wide(text);
    if text.is_empty() || text == "*" {
        let at = at.hint("leave `method` out to match any");
        reader.error(at, format!("`{text}` is not a method"));
        return None;
    }
    if !is_token(text) {
        let at = match text.contains([' ', ',', '|']) {
            true => at.hint("several methods are a list: `[GET, POST]`"),
            false => at,
        };
        reader.error(at, format!("`{text}` is not a method"));
        return None;
    }
    if let Some(known) = METHODS.iter().find(|it| it.eq_ignore_ascii_case(text) && **it != text) {
        let at = at.hint(format!("did you mean `{known}`?"));
        reader.warn(at, format!("methods are compared letter for letter; nobody sends `{text}`"));
    }
    Some(text.into())
}

fn read_host<'t>(reader: &mut Reader<'_, 't>, fields: &Fields<'_, 't>) -> Option<Box<str>> {
    let text = reader.text(fields, "host")?;
    match check_host(text) {
        Ok(host) => Some(host),
        Err(wrong) => {
            report_field(reader, fields, "host", text, wrong);
            None
        }
    }
}

fn check_host(text: &str) -> Result<Box<str>, Wrong> {
    let wrong = |why: &str| Wrong::new(format!("`{text}` is not a host: {why}"));
    let name = text.strip_suffix('.').unwrap_or(text);
    let has_port = match name.strip_prefix('[') {
        Some(inner) => inner.split_once(']').is_some_and(|(_, after)| !after.is_empty()),
        None => name.contains(':'),
    };
    match name {
        "" => Err(wrong("it is empty").hint("leave `host` out to match any")),
        _ if name.contains('/') => Err(wrong("it has a slash").hint("`path` is for the path")),
        _ if has_port => Err(wrong("the port is not compared")
            .hint("leave the port out; an IPv6 address stands in brackets")),
        _ if name.contains(char::is_whitespace) => Err(wrong("it contains white space")),
        _ if !name.is_ascii() => {
            Err(wrong("requests have such names in their ASCII form").hint("write `xn--…`"))
        }
        _ => Ok(name.to_ascii_lowercase().into()),
    }
}

/// The path, if there is one; an error if it is wrong.
fn read_path<'t>(
    reader: &mut Reader<'_, 't>,
    fields: &Fields<'_, 't>,
) -> Result<Option<PathPattern>, ()> {
    if !fields.has("path") {
        return Ok(None);
    }
    let text = reader.text(fields, "path").ok_or(())?;
    let pattern = PathPattern::parse(text).map(Some);
    pattern.map_err(|wrong| report_field(reader, fields, "path", text, wrong))
}

fn read_headers<'t>(
    reader: &mut Reader<'_, 't>,
    fields: &Fields<'_, 't>,
) -> Vec<(Box<str>, Box<str>)> {
    let Some(node) = fields.get("headers") else { return Vec::new() };
    let path = fields.path.key("headers");
    let Some(pairs) = read_pairs(reader, node, &path, "headers", Fold::Yes) else {
        return Vec::new();
    };
    let mut headers = Vec::with_capacity(pairs.len());
    for Pair { key, place, value } in pairs {
        if !is_token(key) {
            let at = At::new(place, &path).wide(key);
            reader.error(at, format!("`{key}` is not the name of a header"));
            continue;
        }
        let path = path.key(key);
        let hint = "`\"*\"` asks for any value";
        if let Some(pattern) = read_value(reader, key, value, &path, hint) {
            headers.push((key.to_ascii_lowercase().into(), pattern.into()));
        }
    }
    headers
}

fn read_descriptors<'t>(
    reader: &mut Reader<'_, 't>,
    fields: &Fields<'_, 't>,
    is_final: bool,
    segments: &dyn Fn(&str) -> Result<usize, Wrong>,
) -> Box<[DescriptorTemplate]> {
    let path = fields.path.key("descriptors");
    let node = fields.get("descriptors");
    if let Some(node) = node
        && matches!(node.kind, Kind::Map(_))
    {
        let at = At::new(node.place, &path).hint("a map in a list: `[ { key: value } ]`");
        reader.error(at, "`descriptors` is a list of maps, found a map");
        return Box::default();
    }
    let items = reader.list(fields, "descriptors");
    let is_empty =
        node.is_none_or(|node| matches!(&node.kind, Kind::List(list) if list.is_empty()));
    if is_empty && !is_final {
        let place = node.map_or(fields.place, |node| node.place);
        let at = At::new(place, fields.path);
        let at = at.hint("with `final: true` the requests that match are exempt");
        reader.error(at, "an entry without descriptors does nothing");
    }
    let mut descriptors = Vec::with_capacity(items.len());
    for (position, item) in items.iter().enumerate() {
        let path = path.index(position);
        descriptors.extend(read_descriptor(reader, item, &path, position, segments));
    }
    descriptors.into()
}

fn read_descriptor<'t>(
    reader: &mut Reader<'_, 't>,
    node: &Node<'t>,
    path: &Path<'_>,
    position: usize,
    segments: &dyn Fn(&str) -> Result<usize, Wrong>,
) -> Option<DescriptorTemplate> {
    let pairs = read_pairs(reader, node, path, "a descriptor", Fold::No)?;
    if pairs.is_empty() {
        let at = At::new(node.place, path).hint("such as `{ ip: \"${client_ip}\" }`");
        reader.error(at, "the descriptor has no entries");
    }
    let mut entries = Vec::with_capacity(pairs.len());
    let mut tiers = 1;
    for Pair { key, place, value } in pairs {
        let path = path.key(key);
        if key.is_empty() || key.contains("${") {
            let why = if key.is_empty() { "the key is empty" } else { "a key has no variables" };
            reader.error(At::new(place, &path).wide(key), why);
            continue;
        }
        let Some(entry) = read_template(reader, key, value, &path, segments) else { continue };
        for more in entry.tiers().filter(|tiers| *tiers > 1) {
            if tiers > 1 {
                let message = "only one variable of a descriptor can have several prefixes";
                reader.error(At::new(value.place, &path).wide(&value.shown()), message);
            }
            tiers = more;
        }
        entries.push(entry);
    }
    let origin = reader.origin(node.place);
    Some(DescriptorTemplate { origin, position, entries: entries.into(), tiers })
}

fn read_template<'t>(
    reader: &mut Reader<'_, 't>,
    key: &str,
    node: &Node<'t>,
    path: &Path<'_>,
    segments: &dyn Fn(&str) -> Result<usize, Wrong>,
) -> Option<EntryTemplate> {
    let text = read_value(reader, key, node, path, "a value such as `\"${client_ip}\"`")?;
    if text.is_empty() {
        reader.error(At::new(node.place, path), format!("the value of `{key}` is empty"));
        return None;
    }
    match Template::parse(text, segments) {
        Ok(value) => Some(EntryTemplate { key: key.into(), value }),
        Err(all) => {
            for wrong in all {
                report(reader, At::new(node.place, path).wide(text), wrong);
            }
            None
        }
    }
}

/// A key of a map whose keys are free, and its value.
struct Pair<'n, 't> {
    key: &'n str,
    place: Place,
    value: &'n Node<'t>,
}

/// Whether keys that differ in case alone are the same.
#[derive(Clone, Copy, PartialEq)]
enum Fold {
    Yes,
    No,
}

/// The pairs of a map whose keys are free, in the order they were written.
fn read_pairs<'n, 't>(
    reader: &mut Reader<'_, 't>,
    node: &'n Node<'t>,
    path: &Path<'_>,
    what: &str,
    fold: Fold,
) -> Option<Vec<Pair<'n, 't>>> {
    let Kind::Map(found) = &node.kind else {
        let shown = node.shown();
        let message = format!("{what} should be a map, found {}", node.what());
        reader.error(At::new(node.place, path).wide(&shown), message);
        return None;
    };
    let mut pairs: Vec<Pair<'n, 't>> = Vec::with_capacity(found.len());
    let mut names: HashSet<Cow<'n, str>> = HashSet::with_capacity(found.len());
    for (key, value) in found {
        let Some(scalar) = key.scalar() else {
            reader.error(At::new(key.place, path), "a key has to be text");
            continue;
        };
        let name = &*scalar.text;
        let at = At::new(key.place, path).wide(name);
        let folded = match fold {
            Fold::Yes => Cow::Owned(name.to_ascii_lowercase()),
            Fold::No => Cow::Borrowed(name),
        };
        if scalar.is_plain && name == "<<" {
            reader.error(at, format!("nothing can be merged into {what}; write it out"));
        } else if !names.insert(folded) {
            reader.error(at, format!("`{name}` is given twice"));
        } else {
            pairs.push(Pair { key: name, place: key.place, value });
        }
    }
    Some(pairs)
}

/// The text of a value.
fn read_value<'n, 't>(
    reader: &mut Reader<'_, 't>,
    key: &str,
    node: &'n Node<'t>,
    path: &Path<'_>,
    hint: &str,
) -> Option<&'n str> {
    match node.scalar() {
        Some(scalar) if !node.is_null() => Some(&scalar.text),
        _ => {
            let at = At::new(node.place, path).hint(hint);
            reader.error(at, format!("the value of `{key}` should be text, found {}", node.what()));
            None
        }
    }
}

/// Reports what is wrong with the text of a field.
fn report_field<'t>(
    reader: &mut Reader<'_, 't>,
    fields: &Fields<'_, 't>,
    name: &str,
    text: &str,
    wrong: Wrong,
) {
    let place = fields.get(name).map_or(fields.place, |node| node.place);
    let path = fields.path.key(name);
    report(reader, At::new(place, &path).wide(text), wrong);
}

fn report(reader: &mut Reader<'_, '_>, at: At<'_>, Wrong { message, hint }: Wrong) {
    let at = match hint {
        Some(hint) => at.hint(hint),
        None => at,
    };
    reader.error(at, message);
}
