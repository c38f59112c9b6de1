//! The worked vectors once more, written as rules and replayed: the same numbers come out through
//! the whole product as from the engine alone.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod support;

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use support::Rules;

/// Vectors without a rule form: a state that is given, numbers beyond 32 bits, a time before the
/// first request, and limits that change in between.
fn has_no_rule_form(vector: &Value) -> bool {
    let name = vector["name"].as_str().unwrap();
    vector["params"].get("seed").is_some()
        || name.starts_with("reconfigure")
        || name == "tb_u64_extremes"
}

fn limit(algorithm: &str, params: &Value) -> Map<String, Value> {
    let mut limit = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            limit.insert(name.to_owned(), value);
        }
    };
    let nanos = |name: &str| match &params[name] {
        Value::Null => Value::Null,
        number => json!(format!("{number}ns")),
    };
    let (algorithm, units, period) = match algorithm {
        "token_bucket" => ("token_bucket", "refill_tokens", "refill_period_ns"),
        "leaky_bucket_meter" => ("leaky_bucket", "leak_units", "leak_period_ns"),
        "leaky_bucket_queue" => ("leaky_bucket", "rate_units", "rate_period_ns"),
        "gcra" => ("gcra", "rate_units", "rate_period_ns"),
        "warm_up" => ("warm_up", "rate_units", "rate_period_ns"),
        "concurrency" => ("concurrency", "limit", "none"),
        window => (window, "limit", "window_ns"),
    };
    set("algorithm", json!(algorithm));
    set("requests_per_unit", params[units].clone());
    set("per", nanos(period));
    set("burst", params["capacity"].clone());
    set("burst", params["burst"].clone());
    set("initial", params["initial"].clone());
    set("compare", params["compare"].clone());
    if params["refill"] == "interval" {
        let aligned = params["anchor_ns"] == 0;
        set("refill", json!(if aligned { "interval_aligned" } else { "interval" }));
    } else if params.get("anchor_ns").is_some_and(Value::is_null) {
        set("align", json!("first_request"));
    }
    if !params["queue"].is_null() {
        let mut queue = json!({ "size": params["queue"] });
        if !params["max_delay_ns"].is_null() {
            queue["max_delay"] = nanos("max_delay_ns");
        }
        set("queue", queue);
    }
    if params["count_rejected"] == true || params["record_rejected"] == true {
        set("count_rejected", json!(true));
    }
    if algorithm == "concurrency" {
        let lease = nanos("lease_ns");
        set("lease", if lease.is_null() { json!("none") } else { lease });
    }
    if algorithm == "warm_up" {
        let cold_factor = &params["cold_factor"];
        set("warm_up", json!({ "period": nanos("warmup_ns"), "cold_factor": cold_factor }));
    }
    limit
}

/// JSON is YAML.
fn rules_for(vector: &Value) -> Rules {
    let algorithm = vector["algorithm"].as_str().unwrap();
    let limits: Vec<_> = match algorithm {
        "multi" => {
            let parts = vector["params"]["limits"].as_array().unwrap().iter();
            parts.map(|part| limit(part["algorithm"].as_str().unwrap(), &part["params"])).collect()
        }
        _ => vec![limit(algorithm, &vector["params"])],
    };
    let rule = json!({ "key": "k", "rate_limits": limits });
    Rules::new(&json!({ "domain": "vectors", "descriptors": [rule] }).to_string())
}

fn lines_for(vector: &Value) -> String {
    let mut lines = String::new();
    let mut add = |t_ns: &Value, cost: &Value, op: &Value, id: &Value| {
        let mut line = json!({ "t_ns": t_ns, "domain": "vectors", "descriptors": [[["k", "v"]]] });
        for (name, value) in [("cost", cost), ("op", op), ("id", id)] {
            if !value.is_null() {
                line[name] = value.clone();
            }
        }
        writeln!(lines, "{line}").unwrap();
    };
    if let Some(start) = vector["params"].get("start_ns") {
        // The key was first seen, and refused something, at the start.
        add(start, &json!(u32::MAX), &Value::Null, &Value::Null);
    }
    for step in vector["steps"].as_array().unwrap() {
        add(&step["t_ns"], &step["cost"], &step["op"], &step["id"]);
    }
    lines
}

#[test]
fn every_vector_with_a_rule_form_comes_out() {
    let file = include_str!("../../tidegate-core/tests/vectors/algorithms.json");
    let file: Value = serde_json::from_str(file).unwrap();
    let (mut wrong, mut replayed) = (Vec::new(), 0);
    for vector in file["vectors"].as_array().unwrap() {
        if has_no_rule_form(vector) {
            continue;
        }
        replayed += 1;
        let name = vector["name"].as_str().unwrap();
        let (answers, code) = rules_for(vector).replay(&lines_for(vector));
        assert_eq!(code, Some(0), "{name}: {answers:?}");
        let skipped = usize::from(vector["params"].get("start_ns").is_some());
        let steps = vector["steps"].as_array().unwrap();
        assert_eq!(answers.len(), steps.len() + skipped, "{name}");
        for (index, (step, answer)) in steps.iter().zip(&answers[skipped..]).enumerate() {
            let expected = step["expect"].as_object().unwrap();
            let differs = expected.iter().any(|(field, value)| answer[field] != *value);
            if differs {
                wrong.push(format!("{name} step {index}: {answer}, not {}", step["expect"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(replayed, 46, "so many of the vectors have a rule form");
}
