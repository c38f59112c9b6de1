//! An extra check: how Lyft's service counts and answers, where the folder with its cases is there.
//! The cases are no part of this project; the tests beside this one say the same in our words.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tidegate::rules::Options;
use tidegate::{ManualClock, MemoryStore, Modes, Op, RuleLimiter, Timestamp, lyft};

use crate::{Ask, TestLimiter, check, rules_with};

fn cases(name: &str) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/lyft-corpus");
    let Ok(text) = fs::read_to_string(root.join("cases.json")) else {
        eprintln!("no corpus beside the project: nothing to compare with");
        return Vec::new();
    };
    serde_json::from_str::<Value>(&text).unwrap()[name].as_array().unwrap().clone()
}

/// A limiter that is like Lyft's service also where that is worse.
fn like_lyft(text: &str, modes: Modes, now: Timestamp) -> TestLimiter {
    let mut options = Options::default();
    options.lyft_compat = true;
    let rules = rules_with(text, &options);
    let modes = {
        let mut modes = modes;
        modes.independent = true;
        modes
    };
    RuleLimiter::build(MemoryStore::new(), ManualClock::at(now), rules, modes).unwrap()
}

#[test]
fn counters_are_lyfts() {
    for case in cases("counting") {
        let number = |name: &str| case[name].as_u64().unwrap();
        let (limit, hits) = (number("limit"), number("hits"));
        let before = number("after") - hits;
        let text = format!(
            "
domain: d
descriptors: [{{ key: k, rate_limit: {{ requests_per_unit: {limit}, unit: minute }} }}]
"
        );
        let limiter = like_lyft(&text, Modes::default(), Timestamp::from_secs(1234));
        let _ = Ask { op: Op::Force, cost: before, ..Ask::new(&limiter) }.descriptors(&["k=v"]);
        let verdict = Ask { cost: hits, ..Ask::new(&limiter) }.descriptors(&["k=v"]);
        assert_eq!(verdict.allowed, case["code"] == "OK", "{case}");
        assert_eq!(verdict.limits[0].decision.remaining, number("remaining"), "{case}");
        let ratio = case["near_limit_ratio"].as_f64().unwrap() as f32;
        let counted = lyft::Hits::count(limit, before, hits, ratio);
        let wanted =
            lyft::Hits { near: number("near"), over: number("over"), within: number("within") };
        assert_eq!(counted, wanted, "{case}");
    }
}

#[test]
fn headers_are_lyfts() {
    for case in cases("headers") {
        let text = format!(
            "
domain: d
descriptors: [{{ key: k, rate_limit: {{ requests_per_unit: {}, unit: {} }} }}]
",
            case["limit"], case["unit"]
        );
        let now = Timestamp::from_secs(case["now"].as_u64().unwrap());
        let limiter = like_lyft(&text, Modes::default(), now);
        let used = case["limit"].as_u64().unwrap() - case["remaining"].as_u64().unwrap();
        let verdict = Ask { cost: used, ..Ask::new(&limiter) }.descriptors(&["k=v"]);
        let values = lyft::headers(&verdict, &verdict.limits[0]);
        let names = ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"];
        for (name, value) in names.into_iter().zip(values) {
            assert_eq!(case["headers"][name], value.to_string(), "{case}");
        }
    }
}

#[test]
fn the_overall_answer_is_lyfts() {
    for case in cases("overall") {
        let descs: Vec<(String, bool)> = serde_json::from_value(case["descs"].clone()).unwrap();
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        for (number, (state, quota)) in descs.iter().enumerate() {
            let limit = match state.as_str() {
                "OVER" => "rate_limit: { requests_per_unit: 0, unit: minute }",
                "OK" => "rate_limit: { requests_per_unit: 9, unit: minute }",
                _ => "value_to_metric: false",
            };
            text += &format!("  - {{ key: k{number}, quota_mode: {quota}, {limit} }}\n");
        }
        let flag = |name: &str| case[name].as_bool().unwrap_or(false);
        let mut modes = Modes::default();
        (modes.shadow, modes.quota) = (flag("global_shadow"), flag("global_quota"));
        let written: Vec<String> = (0..descs.len()).map(|number| format!("k{number}=v")).collect();
        let written: Vec<&str> = written.iter().map(String::as_str).collect();
        let wanted = case["overall"] == "OK";
        let now = Timestamp::from_secs(1234);
        assert_eq!(check(&like_lyft(&text, modes, now), &written).allowed, wanted, "{case}");
        // Deciding all of them together comes to the same.
        assert_eq!(check(&crate::limiter_with(&text, modes), &written).allowed, wanted, "{case}");
    }
}
