//! The request and what the rules attach to it, for other filters of Envoy.

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tidegate::rules::{Descriptor, Found, Rules};
use tidegate_proto::{RateLimitDescriptor, RateLimitRequest};

/// Lyft's dynamic metadata: the request, and joined into one what the rules attach to those
/// descriptors that passed.
pub(super) fn describe(
    request: &RateLimitRequest,
    descriptors: &[Descriptor<'_>],
    rules: &Rules,
    passed: impl Fn(usize) -> bool,
) -> Struct {
    let mut all = Struct::default();
    let mut set = |name: &str, kind: Kind| {
        all.fields.insert(name.to_owned(), Value { kind: Some(kind) });
    };
    set("domain", Kind::StringValue(request.domain.clone()));
    let each = request.descriptors.iter().map(|it| Kind::StructValue(descriptor(it)));
    set("descriptors", list(each));
    if request.hits_addend != 0 {
        set("hitsAddend", Kind::NumberValue(request.hits_addend.into()));
    }
    if let Some(attached) = attached(&request.domain, descriptors, rules, passed) {
        set("metadata", attached);
    }
    all
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Struct {
    let mut all = Struct::default();
    let mut set = |name: &str, kind: Kind| {
        all.fields.insert(name.to_owned(), Value { kind: Some(kind) });
    };
    let entries = descriptor.entries.iter();
    set("entries", list(entries.map(|it| Kind::StringValue(format!("{}={}", it.key, it.value)))));
    if let Some(limit) = &descriptor.limit {
        let (count, unit) = (limit.requests_per_unit, limit.unit().as_str_name());
        set("limit", Kind::StringValue(format!("requests_per_unit:{count} unit:{unit}")));
    }
    if let Some(hits) = descriptor.hits_addend {
        // As far as a double can tell them, which is how metadata has numbers.
        set("hitsAddend", Kind::NumberValue(hits as f64));
    }
    all
}

/// What the rules attach, joined: where two say something of the same, the first counts.
fn attached(
    domain: &str,
    descriptors: &[Descriptor<'_>],
    rules: &Rules,
    passed: impl Fn(usize) -> bool,
) -> Option<Kind> {
    let mut found = Found::new();
    rules.find(domain, descriptors, &mut found);
    let each = (0..descriptors.len()).filter(|position| passed(*position));
    let mut each = each.filter_map(|position| rules.metadata(&found, position));
    let mut joined = each.next()?.clone();
    each.for_each(|other| join(&mut joined, other));
    Some(kind(&joined))
}

fn join(into: &mut serde_json::Value, from: &serde_json::Value) {
    use serde_json::Value::Object;
    let (Object(into), Object(from)) = (into, from) else { return };
    for (name, value) in from {
        match into.get_mut(name) {
            Some(there) => join(there, value),
            None => {
                into.insert(name.clone(), value.clone());
            }
        }
    }
}

fn kind(value: &serde_json::Value) -> Kind {
    use serde_json::Value as Json;
    match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(value) => Kind::BoolValue(*value),
        Json::Number(value) => Kind::NumberValue(value.as_f64().unwrap_or_default()),
        Json::String(value) => Kind::StringValue(value.clone()),
        Json::Array(values) => list(values.iter().map(kind)),
        Json::Object(fields) => {
            let field =
                |(name, value): (&String, &Json)| (name.clone(), Value { kind: Some(kind(value)) });
            Kind::StructValue(Struct { fields: fields.iter().map(field).collect() })
        }
    }
}

fn list(kinds: impl Iterator<Item = Kind>) -> Kind {
    let values = kinds.map(|kind| Value { kind: Some(kind) }).collect();
    Kind::ListValue(ListValue { values })
}
