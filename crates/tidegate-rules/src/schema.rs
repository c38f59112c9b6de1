//! The rules' JSON Schema and the tables of their reference, both written from the table of fields.

use serde_json::{Map, Value, json};

use crate::field::{DESCRIPTOR, Field, Kind, LIMIT, ROOT, SHAPES, Shape, UNITS};

/// The JSON Schema (draft 2020-12) of a rules file, for editors to complete and check by.
///
/// It knows which fields may stand where and what they hold. What may stand with what only
/// [`Rules::load`](crate::Rules::load) can tell.
pub fn json_schema() -> Value {
    let shapes = SHAPES.iter().filter(|shape| shape.title != ROOT.title);
    let defs: Map<_, _> = shapes.map(|shape| (def_name(shape), object(shape))).collect();
    let mut schema = object(&ROOT);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("tidegate rules");
    schema["description"] = json!("Rate-limit rules of one domain.");
    schema["$defs"] = Value::Object(defs);
    schema
}

/// The table of fields with this title, in Markdown; `None` if there is no such table.
pub fn reference(title: &str) -> Option<String> {
    let shape = SHAPES.iter().find(|shape| shape.title == title)?;
    let mut table =
        "| field | holds | default | with | |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for field in shape.fields {
        let default = match field.default {
            // Words about a default, not one that could be written.
            "" | "any" | "full" | "everything" | "as long as it takes" => field.default.to_owned(),
            default => format!("`{default}`"),
        };
        let with = field.with.replace("` `", "`, `");
        table += &format!(
            "| `{}` | {} | {default} | {with} | {} |\n",
            field.name,
            holds(field),
            field.about
        );
    }
    Some(table)
}

/// The titles of all tables of fields.
pub fn reference_titles() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|shape| shape.title)
}

/// What a field holds, in a few words.
fn holds(field: &Field) -> String {
    match field.kind {
        Kind::Text => "text".to_owned(),
        Kind::Number(0) => "a whole number".to_owned(),
        Kind::Number(least) => format!("a whole number from {least} on"),
        Kind::Flag => "`true` or `false`".to_owned(),
        Kind::Duration => "a duration".to_owned(),
        Kind::DurationOrNone => "a duration, or `none`".to_owned(),
        Kind::Percent => "a percentage".to_owned(),
        Kind::OneOf(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        Kind::Map(shape) if shape.title == field.name => "a map, see below".to_owned(),
        Kind::Map(shape) => format!("a map: {}", shape.title),
        Kind::List(shape) => format!("a list, each {}", shape.title),
        Kind::Texts => "a list of texts".to_owned(),
        Kind::TextOrTexts => "a text or a list of texts".to_owned(),
        Kind::TextMap => "texts by name".to_owned(),
        Kind::TextMaps => "a list of maps of texts".to_owned(),
        Kind::Free => "any map".to_owned(),
    }
}

fn def_name(shape: &Shape) -> String {
    let name = shape.title.rsplit(' ').next().unwrap_or(shape.title);
    match shape.title {
        title if title.starts_with("an entry") => format!("{name}_entry"),
        _ => name.to_owned(),
    }
}

fn object(shape: &Shape) -> Value {
    let fields = shape.fields.iter();
    let properties: Map<_, _> =
        fields.map(|field| (field.name.to_owned(), property(field))).collect();
    let mut object = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    let required: &[&str] = match shape.title {
        title if title == ROOT.title => &["domain"],
        title if title == DESCRIPTOR.title => &["key"],
        "an entry of replaces" => &["name"],
        "queue" => &["size"],
        "warm_up" => &["period"],
        "soft" => &["over", "for"],
        _ => &[],
    };
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if shape.title == DESCRIPTOR.title {
        object["not"] = json!({ "required": ["rate_limit", "rate_limits"] });
    }
    if shape.title == LIMIT.title {
        object["not"] = json!({ "required": ["unit", "per"] });
    }
    object
}

fn property(field: &Field) -> Value {
    let mut property = kind(field);
    let with = field.with.replace("` `", "`, `");
    property["description"] = json!(match field.with {
        "" => field.about.to_owned(),
        // A list of algorithms or fields; otherwise a sentence of its own.
        list if list.starts_with('`') && !list.contains("needs") => {
            format!("{} (with {with})", field.about)
        }
        _ => format!("{} ({with})", field.about),
    });
    if let Some(default) = default_of(field) {
        property["default"] = default;
    }
    property
}

fn kind(field: &Field) -> Value {
    match field.kind {
        // Whatever is written without quotes is text where text is wanted.
        Kind::Text => json!({ "type": ["string", "number", "boolean", "null"] }),
        Kind::Number(least) => {
            json!({ "type": "integer", "minimum": least, "maximum": u32::MAX })
        }
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Duration => json!({ "type": "string", "pattern": "^[0-9]+(ns|us|ms|s|m|h|d)$" }),
        Kind::DurationOrNone => {
            json!({ "type": "string", "pattern": "^([0-9]+(ns|us|ms|s|m|h|d)|none)$" })
        }
        Kind::Percent => json!({
            "type": ["string", "number"],
            "pattern": "^[0-9]+(\\.[0-9]{1,2})? *%?$",
            "minimum": 0,
        }),
        // In any case, though editors offer the lower one.
        Kind::OneOf(words) if words == UNITS => json!({
            "anyOf": [{ "enum": words }, { "type": "string", "pattern": any_case(words) }],
        }),
        Kind::OneOf(words) => json!({ "enum": words }),
        Kind::Map(shape) => json!({ "$ref": format!("#/$defs/{}", def_name(shape)) }),
        Kind::List(shape) => json!({
            "type": ["array", "null"],
            "items": { "$ref": format!("#/$defs/{}", def_name(shape)) },
        }),
        Kind::Texts => {
            json!({ "type": "array", "items": { "type": ["string", "number", "boolean"] } })
        }
        Kind::TextOrTexts => json!({
            "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }],
        }),
        Kind::TextMap => json!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        }),
        Kind::TextMaps => json!({
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": { "type": ["string", "number", "boolean"] },
            },
        }),
        Kind::Free => json!({ "type": "object" }),
    }
}

/// A default that could be written; others are words about one.
fn default_of(field: &Field) -> Option<Value> {
    match (field.kind, field.default) {
        (_, "") => None,
        (Kind::Flag, default) => default.parse().ok().map(Value::Bool),
        (Kind::Number(_), default) => default.parse::<u32>().ok().map(Value::from),
        (Kind::OneOf(_) | Kind::Percent, default) => Some(json!(default)),
        (Kind::Duration, default) => tidegate_core::parse_duration(default).map(|_| json!(default)),
        (Kind::List(_) | Kind::Texts, "[]") => Some(json!([])),
        _ => None,
    }
}

/// A pattern for words in upper, lower and mixed case.
fn any_case(words: &[&str]) -> String {
    let letter = |c: char| format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase());
    let words: Vec<String> = words.iter().map(|word| word.chars().map(letter).collect()).collect();
    format!("^({})$", words.join("|"))
}
