//! The schema and the pages about rules: written from the code, and every example in them tried.
//!
//! `TIDEGATE_BLESS=1 cargo test -p tidegate-rules --test docs` writes what this compares.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use common::load;
use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value, json};
use tidegate_core::parse_duration;
use tidegate_rules::{Unit, json_schema, reference, reference_titles};

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Compares a page with what it should be, or writes it.
#[track_caller]
fn compare(name: &str, wanted: &str) {
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(docs(name), wanted).unwrap();
    }
    let found = fs::read_to_string(docs(name)).unwrap();
    let differs = found.lines().zip(wanted.lines()).position(|(found, wanted)| found != wanted);
    assert!(
        found == wanted,
        "docs/{name} differs from line {} on; TIDEGATE_BLESS=1 writes it",
        differs.map_or(found.lines().count(), |line| line + 1),
    );
}

#[test]
fn the_schema_is_the_one_in_docs() {
    let text = serde_json::to_string_pretty(&json_schema()).unwrap();
    compare("rules.schema.json", &format!("{text}\n"));
}

/// A block of a page: what stands behind its fence, and its text.
struct Block<'a> {
    info: &'a str,
    text: &'a str,
    end: usize,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Some(open) = page[at..].find("```") {
        let info = at + open + 3;
        let start = info + page[info..].find('\n').unwrap() + 1;
        let end = start + page[start..].find("```").unwrap();
        blocks.push(Block { info: page[info..start].trim(), text: &page[start..end], end });
        at = end + 3;
    }
    blocks
}

/// The page with its tables and messages as they should be.
fn renewed(page: &str) -> String {
    let mut out = String::new();
    let mut rest = page;
    while let Some(open) = rest.find("<!-- fields: ") {
        let title = rest[open + 13..].split(" -->").next().unwrap();
        let end = open + rest[open..].find("<!-- end -->").unwrap();
        let table = reference(title).unwrap_or_else(|| panic!("no table `{title}`"));
        out += &format!("{}<!-- fields: {title} -->\n\n{table}\n", &rest[..open]);
        rest = &rest[end..];
    }
    out += rest;
    let all = blocks(&out);
    let mut renewed = String::new();
    let mut at = 0;
    for pair in all.windows(2) {
        let [wrong, said] = pair else { continue };
        if wrong.info == "yaml wrong" {
            assert_eq!(said.info, "text", "what is said stands below what is wrong");
            renewed += &out[at..said.end - said.text.len()];
            renewed += &load(wrong.text).report.to_string();
            at = said.end;
        }
    }
    renewed + &out[at..]
}

#[test]
fn the_reference_is_written_from_the_fields() {
    let page = fs::read_to_string(docs("rules.md")).unwrap();
    for title in reference_titles() {
        assert!(page.contains(&format!("<!-- fields: {title} -->")), "no table of {title}");
    }
    compare("rules.md", &renewed(&page));
}

#[test]
fn every_example_loads_without_a_warning_and_fits_the_schema() {
    let schema = json_schema();
    for name in ["rules.md", "migration-from-lyft.md"] {
        let page = fs::read_to_string(docs(name)).unwrap();
        let blocks = blocks(&page);
        let examples = blocks.iter().filter(|block| block.info == "yaml");
        assert!(examples.clone().count() > 0, "{name}");
        for Block { text, .. } in examples {
            let report = load(text).report;
            assert!(report.is_ok() && report.warnings.is_empty(), "{name}: {report}\n{text}");
            assert_eq!(misfit(&schema, &schema, &json_of(text)), None, "{name}:\n{text}");
        }
    }
}

#[test]
fn the_limits_on_the_page_of_algorithms_load() {
    let page = fs::read_to_string(docs("algorithms.md")).unwrap();
    let blocks = blocks(&page);
    let limits: Vec<_> = blocks.iter().filter(|block| block.info == "yaml").collect();
    assert!(limits.len() >= 8, "one for each algorithm");
    for Block { text, .. } in limits {
        let text: String = text.lines().map(|line| format!("  {line}\n")).collect();
        let report = load(&format!("domain: d\ndescriptors:\n- key: k\n{text}")).report;
        assert!(report.is_ok() && report.warnings.is_empty(), "{report}\n{text}");
    }
}

#[test]
fn what_the_page_says_of_matching_is_so() {
    let page = fs::read_to_string(docs("rules.md")).unwrap();
    let block = blocks(&page).into_iter().find(|block| block.text.contains("free-user")).unwrap();
    let rules = common::rules(&block.text.replace("domain: api", "domain: d"));
    for (entries, wanted) in [
        (&[("plan", "free"), ("user", "ada")][..], Some("free-user")),
        (&[("plan", "free")], None),
        (&[("plan", "free"), ("path", "/")], None),
        (&[("plan", "team-7")], Some("team")),
        (&[("plan", "internal")], None),
        (&[("plan", "gold")], Some("other-plan")),
    ] {
        assert_eq!(common::met(&rules, entries).first().map(String::as_str), wanted, "{entries:?}");
    }
}

#[test]
fn the_schema_refuses_what_the_loader_refuses() {
    let schema = json_schema();
    let wrong = [
        "descriptors: []",
        "domain: d\nstranger: 1",
        "domain: d\ndescriptors: [{value: v}]",
        "domain: d\ndescriptors: [{key: k, burst: 1}]",
        "domain: d\ndescriptors: [{key: k, shadow_mode: 'yes'}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: minutes, requests_per_unit: 1}}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: -1}}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: '1'}}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 4294967296}}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, per: 5s, requests_per_unit: 1}}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {per: 5 s, requests_per_unit: 1}}]",
        "domain: d\ndescriptors: [{key: k, percent: half}]",
        "domain: d\ndescriptors: [{key: k, descriptors: [{key: l, descriptors: [{}]}]}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, algorithm: x}}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {}, rate_limits: []}]",
    ];
    for text in wrong {
        assert!(!load(text).report.is_ok(), "{text}");
        assert!(misfit(&schema, &schema, &json_of(text)).is_some(), "{text}");
    }
    let right = "domain: 7\ndescriptors: [{key: 1, value: true, percent: 5, rate_limit: {unit: DAY, requests_per_unit: 1}}]";
    assert!(load(right).report.is_ok());
    assert_eq!(misfit(&schema, &schema, &json_of(right)), None);
}

/// Why a value does not fit a schema: as much of JSON Schema as ours uses, and an end to the test
/// if it uses more.
fn misfit(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    let fails = |schema: &Value| misfit(root, schema, value).is_some();
    for (rule, wanted) in schema.as_object().unwrap() {
        let fits = match rule.as_str() {
            "$ref" => {
                let name = wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                if let Some(misfit) = misfit(root, &root["$defs"][name], value) {
                    return Some(misfit);
                }
                true
            }
            "type" => match wanted {
                Value::String(name) => is_a(value, name),
                names => {
                    names.as_array().unwrap().iter().any(|name| is_a(value, name.as_str().unwrap()))
                }
            },
            "enum" => wanted.as_array().unwrap().contains(value),
            "anyOf" => !wanted.as_array().unwrap().iter().all(fails),
            "not" => fails(wanted),
            "required" => match value.as_object() {
                Some(map) => wanted
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|name| map.contains_key(name.as_str().unwrap())),
                None => true,
            },
            "minimum" => value.as_f64().is_none_or(|value| value >= wanted.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|value| value <= wanted.as_f64().unwrap()),
            "pattern" => {
                value.as_str().is_none_or(|value| fits_pattern(wanted.as_str().unwrap(), value))
            }
            "items" => {
                let mut items = value.as_array().into_iter().flatten();
                if let Some(misfit) = items.find_map(|item| misfit(root, wanted, item)) {
                    return Some(misfit);
                }
                true
            }
            "properties" | "additionalProperties" => {
                if let Some(misfit) = misfit_of_properties(root, schema, value) {
                    return Some(misfit);
                }
                true
            }
            "$schema" | "$defs" | "title" | "description" | "default" => true,
            other => panic!("the schema uses `{other}`, which this does not know"),
        };
        if !fits {
            return Some(format!("{value} does not fit {rule}: {wanted}"));
        }
    }
    None
}

fn misfit_of_properties(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    value.as_object()?.iter().find_map(|(name, value)| {
        match (schema.pointer(&format!("/properties/{name}")), &schema["additionalProperties"]) {
            (Some(schema), _) => misfit(root, schema, value),
            (None, Value::Bool(false)) => Some(format!("`{name}` is not allowed")),
            (None, Value::Object(_)) => misfit(root, &schema["additionalProperties"], value),
            _ => None,
        }
    })
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => panic!("no type `{name}`"),
    }
}

/// The four patterns of the schema by what they mean.
fn fits_pattern(pattern: &str, text: &str) -> bool {
    match pattern {
        "^[0-9]+(ns|us|ms|s|m|h|d)$" => parse_duration(text).is_some(),
        "^([0-9]+(ns|us|ms|s|m|h|d)|none)$" => text == "none" || parse_duration(text).is_some(),
        r"^[0-9]+(\.[0-9]{1,2})? *%?$" => {
            text.trim_end_matches('%').trim_end().parse::<f64>().is_ok_and(|share| share >= 0.0)
        }
        _ if pattern.starts_with("^([sS][eE][cC]") => Unit::parse(text).is_some(),
        _ => panic!("no pattern `{pattern}`"),
    }
}

/// YAML as JSON, as an editor sees it.
fn json_of(text: &str) -> Value {
    let mut open: Vec<(bool, usize, Vec<Value>)> = vec![(false, 0, Vec::new())];
    let mut anchors: HashMap<usize, Value> = HashMap::new();
    for event in Parser::new_from_str(text) {
        let (value, anchor) = match event.unwrap().0 {
            Event::Scalar(text, style, anchor, _) => (scalar(&text, style), anchor),
            Event::SequenceStart(_, anchor, _) => {
                open.push((false, anchor, Vec::new()));
                continue;
            }
            Event::MappingStart(_, anchor, _) => {
                open.push((true, anchor, Vec::new()));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (is_map, anchor, items) = open.pop().unwrap();
                (if is_map { map(items) } else { Value::Array(items) }, anchor)
            }
            Event::Alias(anchor) => (anchors[&anchor].clone(), 0),
            _ => continue,
        };
        anchors.insert(anchor, value.clone());
        open.last_mut().unwrap().2.push(value);
    }
    open.remove(0).2.into_iter().next().unwrap_or(Value::Null)
}

fn map(items: Vec<Value>) -> Value {
    let mut map = Map::new();
    for pair in items.chunks(2) {
        match (pair[0].as_str(), &pair[1]) {
            (Some("<<"), Value::Object(merged)) => {
                merged.iter().for_each(|(name, value)| {
                    map.entry(name.clone()).or_insert_with(|| value.clone());
                });
            }
            (Some(name), value) => {
                map.insert(name.to_owned(), value.clone());
            }
            (None, value) => {
                map.insert(pair[0].to_string(), value.clone());
            }
        }
    }
    Value::Object(map)
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    match text {
        _ if style != ScalarStyle::Plain => json!(text),
        "" | "~" | "null" => Value::Null,
        "true" => json!(true),
        "false" => json!(false),
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(number), _) => json!(number),
            (_, Ok(number)) if number.is_finite() => json!(number),
            _ => json!(text),
        },
    }
}
