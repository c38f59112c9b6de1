//! A file: its domain and its tree of descriptors.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};

use super::limit::{Around, Common, Reading};
use super::map::{FIRST_LINE, Fields, Reader};
use crate::diagnostic::{At, Path};
use crate::draft::{DescriptorDraft, DomainDraft, LimitsDraft};
use crate::exempt::Exempt;
use crate::field::{self, DESCRIPTOR};
use crate::rule::Rule;
use crate::tree::Flags;
use crate::yaml::{Document, Kind, Meaning, Node, Place, YamlError};

/// Reads one file; `None` if there is nothing in it that could be used.
pub(crate) fn read_file<'t>(reader: &mut Reader<'_, 't>, text: &'t str) -> Option<DomainDraft> {
    let document = match Document::read(text) {
        Ok(document) => document,
        Err(error) => {
            let at = At::place(error.place);
            let at = match error.message.contains("tab") {
                true => at.hint("YAML is indented with spaces"),
                false => at,
            };
            reader.error(at, yaml_error(&error));
            return None;
        }
    };
    if let Some(second) = document.second {
        let at = At::place(second).hint("give each domain a file of its own");
        reader.warn(at, "only the first document of a file is read");
    }
    let Some(root) = document.root.as_deref() else {
        let at = At::place(START).hint(FIRST_LINE);
        reader.error(at, "config file cannot have empty domain");
        return None;
    };
    read_root(reader, root)
}

/// The longest way from the domain to a descriptor. Every limit bears its own, so that a long key
/// above many limits would take its length as often.
const WAY_BYTES_MAX: usize = 4096;

/// How many limits a descriptor may have: a request asks all of them.
const LIMITS_MAX: usize = 1000;

const START: Place = Place { line: 1, column: 1 };

/// A syntax error in the form of Lyft's YAML library.
fn yaml_error(error: &YamlError) -> String {
    format!("error loading config file: yaml: line {}: {}", error.place.line, error.message)
}

fn read_root<'t>(reader: &mut Reader<'_, 't>, root: &Node<'t>) -> Option<DomainDraft> {
    let path = Path::ROOT;
    let fields = reader.fields(root, &field::ROOT, &path)?;
    let domain = reader.text(&fields, "domain").unwrap_or_default();
    if domain.is_empty() && !fields.may_hold("domain") {
        let at = At::new(fields.place_of("domain"), &path).hint(FIRST_LINE);
        reader.error(at, "config file cannot have empty domain");
    }
    let defaults = match fields.get("defaults") {
        Some(node) => {
            let path = path.key("defaults");
            let found = reader.fields(node, &field::DEFAULTS, &path);
            found.map(|fields| reader.common(&fields, &field::DEFAULTS, None)).unwrap_or_default()
        }
        None => Common::default(),
    };
    let mut way = Way { id: domain.to_owned(), counter: String::new(), defaults: &defaults };
    way.part("", domain);
    let descriptors = read_descriptors(reader, &fields, &mut way);
    let http = crate::http::read(reader, &fields);
    let origin = reader.origin(root.place);
    let replaced = std::mem::take(&mut reader.replaced);
    Some(DomainDraft { domain: domain.into(), origin, descriptors, http, replaced })
}

/// The way from the domain to a descriptor.
struct Way<'a> {
    /// As people read it: `api.user_7.path`.
    id: String,
    /// The same with the lengths of its parts, so that no two ways are alike.
    counter: String,
    defaults: &'a Common,
}

impl Way<'_> {
    fn part(&mut self, before: &str, part: &str) {
        self.counter.push_str(before);
        self.counter.push_str(&part.len().to_string());
        self.counter.push(':');
        self.counter.push_str(part);
    }

    fn enter(&mut self, key: &str, value: Option<&str>) -> (usize, usize) {
        let before = (self.id.len(), self.counter.len());
        self.id.push('.');
        self.id.push_str(key);
        self.part(",", key);
        if let Some(value) = value {
            self.id.push('_');
            self.id.push_str(value);
            self.part("=", value);
        }
        before
    }

    fn leave(&mut self, (id, counter): (usize, usize)) {
        self.id.truncate(id);
        self.counter.truncate(counter);
    }
}

fn read_descriptors<'t>(
    reader: &mut Reader<'_, 't>,
    fields: &Fields<'_, 't>,
    way: &mut Way<'_>,
) -> Vec<DescriptorDraft> {
    let list = reader.list(fields, "descriptors");
    let path = fields.path.key("descriptors");
    let mut drafts = Vec::with_capacity(list.len());
    let mut seen: HashMap<(Box<str>, Option<Box<str>>), Place> = HashMap::new();
    for (index, item) in list.iter().enumerate() {
        let path = path.index(index);
        if !reader.is_map(item, &path) {
            continue;
        }
        let Some(draft) = read_descriptor(reader, item, &path, way) else { continue };
        let name = (draft.key.clone(), draft.value.clone());
        if let Some(first) = seen.get(&name) {
            let before = way.enter(&draft.key, draft.value.as_deref());
            let message = format!("duplicate descriptor composite key '{}'", way.id);
            way.leave(before);
            let at =
                At::new(item.place, &path).hint(format!("the first is in line {}", first.line));
            reader.error(at, message);
            continue;
        }
        seen.insert(name, item.place);
        drafts.push(draft);
    }
    drafts
}

fn read_descriptor<'t>(
    reader: &mut Reader<'_, 't>,
    node: &Node<'t>,
    path: &Path<'_>,
    way: &mut Way<'_>,
) -> Option<DescriptorDraft> {
    let fields = reader.fields(node, &DESCRIPTOR, path)?;
    let key = reader.text(&fields, "key").unwrap_or_default();
    let written = reader.text(&fields, "value");
    let value = written.filter(|value| !value.is_empty());
    if key.is_empty() && !fields.may_hold("key") {
        reader.error(At::new(node.place, path), "descriptor has empty key");
    }
    let mut flag = |name| reader.flag(&fields, name).unwrap_or(false);
    let flags = Flags {
        share: flag("share_threshold"),
        detailed_metric: flag("detailed_metric"),
        value_to_metric: flag("value_to_metric"),
        ..Flags::default()
    };
    let quota = flag("quota_mode");
    let shadow = reader.flag(&fields, "shadow_mode");
    if written == Some("") {
        let at = At::new(fields.place_of("value"), path).wide("value");
        let at = at.hint("leave `value` out if that is meant");
        reader.warn(at, "an empty `value` is none: every value matches");
    }
    let before = way.enter(key, value);
    if way.id.len() > WAY_BYTES_MAX {
        let message =
            format!("the keys and values down to here take more than {WAY_BYTES_MAX} bytes");
        reader.error(At::new(node.place, path), message);
        way.leave(before);
        return None;
    }
    if flags.share && !key.contains('*') && !value.is_some_and(|value| value.contains('*')) {
        let at = At::new(fields.place_of("share_threshold"), path).wide("share_threshold");
        let name = value.map_or(key.to_owned(), |value| format!("{key}_{value}"));
        reader.error(at, format!("share_threshold can only be used with wildcard values (containing '*'), but found key '{name}'"));
    }
    let enabled = reader.flag(&fields, "enabled").unwrap_or(true);
    let percent_bp = reader.share(&fields);
    if flags.share && percent_bp.is_some_and(|share| share < 10_000) {
        let at = At::new(fields.place_of("percent"), path).wide("percent");
        reader.warn(
            at,
            "`percent` covers all or nothing here, since `share_threshold` makes one key",
        );
    }
    let exempt = reader.texts(&fields, "exempt");
    let exempt = Exempt::within(way.defaults.exempt.as_ref(), &exempt);
    let around = Around {
        id: &way.id,
        counter: &way.counter,
        shadow,
        quota,
        enabled,
        percent_bp,
        exempt: exempt.as_ref(),
        defaults: way.defaults,
    };
    let limits = read_limits(reader, &fields, &around);
    let metadata = fields.get("metadata").and_then(|node| {
        let path = path.key("metadata");
        read_metadata(reader, node, &path)
    });
    let children = read_descriptors(reader, &fields, way);
    way.leave(before);
    Some(DescriptorDraft {
        key: key.into(),
        value: value.map(Into::into),
        limits,
        children,
        metadata,
        flags,
        origin: reader.origin(node.place),
    })
}

fn read_limits<'t>(
    reader: &mut Reader<'_, 't>,
    fields: &Fields<'_, 't>,
    around: &Around<'_>,
) -> LimitsDraft {
    if fields.has("rate_limit") && fields.has("rate_limits") {
        let at = At::new(fields.place_of("rate_limits"), fields.path).wide("rate_limits");
        reader.error(at, "`rate_limit` and `rate_limits` exclude each other");
        return LimitsDraft::None;
    }
    if let Some(node) = fields.get("rate_limit") {
        let path = fields.path.key("rate_limit");
        let Some(limit) = reader.fields(node, &field::LIMIT, &path) else {
            return LimitsDraft::None;
        };
        return match reader.limit(&limit, around, None) {
            Some(Reading::Limit(rule)) => LimitsDraft::Some(vec![*rule]),
            Some(Reading::Unlimited(unlimited)) => LimitsDraft::Unlimited(unlimited),
            None => LimitsDraft::None,
        };
    }
    let mut rules: Vec<Rule> = Vec::new();
    let mut counters = HashSet::new();
    let path = fields.path.key("rate_limits");
    let list = reader.list(fields, "rate_limits");
    if list.len() > LIMITS_MAX {
        let at = At::new(fields.place_of("rate_limits"), fields.path).wide("rate_limits");
        reader.error(
            at,
            format!("{} limits on one descriptor; the most is {LIMITS_MAX}", list.len()),
        );
    }
    for (index, item) in list.iter().take(LIMITS_MAX).enumerate() {
        let path = path.index(index);
        if !reader.is_map(item, &path) {
            continue;
        }
        let Some(limit) = reader.fields(item, &field::LIMIT, &path) else { continue };
        let Some(Reading::Limit(rule)) = reader.limit(&limit, around, Some(index)) else {
            continue;
        };
        if !counters.insert(rule.counter.clone()) {
            let at = At::new(limit.place_of("name"), &path).wide("name");
            let at = at.hint("give each a name of its own, or none");
            reader.error(at, format!("two limits of this descriptor are named `{}`", rule.id));
        }
        rules.push(*rule);
    }
    if rules.is_empty() { LimitsDraft::None } else { LimitsDraft::Some(rules) }
}

/// What the rules attach for proxies, as JSON.
fn read_metadata<'t>(
    reader: &mut Reader<'_, 't>,
    node: &Node<'t>,
    path: &Path<'_>,
) -> Option<Value> {
    if !matches!(node.kind, Kind::Map(_)) {
        let at = At::new(node.place, path);
        reader.error(at, format!("error parsing metadata: a map is needed, found {}", node.what()));
        return None;
    }
    match json(node) {
        Ok(value) => Some(value),
        Err((place, reason)) => {
            reader.error(At::new(place, path), format!("error parsing metadata: {reason}"));
            None
        }
    }
}

fn json(node: &Node<'_>) -> Result<Value, (Place, String)> {
    Ok(match &node.kind {
        Kind::List(items) => {
            Value::Array(items.iter().map(|item| json(item)).collect::<Result<_, _>>()?)
        }
        Kind::Map(pairs) => {
            let mut map = Map::new();
            for (_, merged) in pairs.iter().filter(|(key, _)| key.is_merge()) {
                merge_json(merged, &mut map)?;
            }
            for (key, value) in pairs.iter().filter(|(key, _)| !key.is_merge()) {
                let Some(key) = key.scalar() else {
                    return Err((key.place, "a key that is not text".to_owned()));
                };
                map.insert(key.text.to_string(), json(value)?);
            }
            Value::Object(map)
        }
        Kind::Scalar(scalar) => match scalar.meaning() {
            Meaning::Null => Value::Null,
            Meaning::Bool(flag) => Value::Bool(flag),
            // What goes to proxies are doubles anyway, so a larger number is one already.
            Meaning::Int(number) => match i64::try_from(number) {
                Ok(number) => Value::Number(number.into()),
                Err(_) => Number::from_f64(number as f64).map_or(Value::Null, Value::Number),
            },
            Meaning::Float => {
                let number = scalar.text.replace('_', "").parse().ok().and_then(Number::from_f64);
                match number {
                    Some(number) => Value::Number(number),
                    None => {
                        return Err((
                            node.place,
                            format!("`{}` is no number of JSON", scalar.text),
                        ));
                    }
                }
            }
            Meaning::Text => Value::String(scalar.text.to_string()),
        },
    })
}

/// Adds what `<<` brings; of several maps the first counts.
fn merge_json(node: &Node<'_>, map: &mut Map<String, Value>) -> Result<(), (Place, String)> {
    match &node.kind {
        Kind::List(items) => items.iter().rev().try_for_each(|item| merge_json(item, map)),
        Kind::Map(_) => {
            if let Value::Object(merged) = json(node)? {
                map.extend(merged);
            }
            Ok(())
        }
        Kind::Scalar(_) => Err((node.place, "a merge of something that is no map".to_owned())),
    }
}
