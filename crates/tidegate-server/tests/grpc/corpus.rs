//! An extra check: Lyft's own cases, where the folder with them is there. They are no part of this
//! project; the tests beside this one say the same in our words.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tidegate::Timestamp;
use tidegate_proto::{
    Entry, RateLimitDescriptor, RateLimitOverride, RateLimitRequest, RateLimitUnit,
};
use tidegate_server::HeaderNames;

use crate::support::{Client, Setup, ask, descriptor, domain, only, request, send};

fn cases(name: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/lyft-corpus");
    if !folder.exists() {
        eprintln!("no corpus beside the project: nothing to compare with");
        return Vec::new();
    }
    let text = fs::read_to_string(folder.join("cases.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[name].as_array().unwrap().clone()
}

/// A server that is like Lyft's also where that is worse.
fn like_lyft(rules: &str) -> Setup {
    let mut setup = Setup::new(rules);
    setup.options.lyft_compat = true;
    setup.options.merge_domains = true;
    setup.modes.independent = true;
    setup
}

async fn cost(client: &mut Client, hits: u64) -> tidegate_proto::RateLimitResponse {
    let one = RateLimitDescriptor { hits_addend: Some(hits), ..descriptor("k=v") };
    send(client, request(&[one])).await.unwrap()
}

#[tokio::test]
async fn statuses_are_lyfts() {
    for case in cases("counting") {
        let number = |name: &str| case[name].as_u64().unwrap();
        let (limit, hits) = (number("limit"), number("hits"));
        let rule = format!(
            "  - {{ key: k, rate_limit: {{ requests_per_unit: {limit}, unit: minute }} }}\n"
        );
        let running = like_lyft(&domain(&rule)).start().await;
        let mut client = running.client().await;
        cost(&mut client, number("after") - hits).await;
        let response = cost(&mut client, hits).await;
        let status = only(&response);
        assert_eq!(case["code"], status.code().as_str_name(), "{case}");
        assert_eq!(case["code"], response.overall_code().as_str_name(), "{case}");
        assert_eq!(u64::from(status.limit_remaining), number("remaining"), "{case}");
    }
}

#[tokio::test]
async fn headers_are_lyfts() {
    for case in cases("headers") {
        let rule = format!(
            "  - {{ key: k, rate_limit: {{ requests_per_unit: {}, unit: {} }} }}\n",
            case["limit"], case["unit"]
        );
        let mut setup = like_lyft(&domain(&rule));
        setup.now = Timestamp::from_secs(case["now"].as_u64().unwrap());
        setup.config.response_headers = Some(HeaderNames::default());
        let running = setup.start().await;
        let mut client = running.client().await;
        let used = case["limit"].as_u64().unwrap() - case["remaining"].as_u64().unwrap();
        let response = cost(&mut client, used).await;
        let told: Value = response
            .response_headers_to_add
            .iter()
            .map(|header| (header.key.clone(), Value::from(header.value.clone())))
            .collect();
        assert_eq!(told, case["headers"], "{case}");
    }
}

#[tokio::test]
async fn overall_codes_are_lyfts() {
    for case in cases("overall") {
        let descs: Vec<(String, bool)> = serde_json::from_value(case["descs"].clone()).unwrap();
        let mut rules = String::new();
        for (number, (state, quota)) in descs.iter().enumerate() {
            let limit = match state.as_str() {
                "OVER" => "rate_limit: { requests_per_unit: 0, unit: minute }",
                "OK" => "rate_limit: { requests_per_unit: 9, unit: minute }",
                _ => "value_to_metric: false",
            };
            rules += &format!("  - {{ key: k{number}, quota_mode: {quota}, {limit} }}\n");
        }
        let mut setup = like_lyft(&domain(&rules));
        let flag = |name: &str| case[name].as_bool().unwrap_or(false);
        setup.modes.shadow = flag("global_shadow");
        setup.modes.quota = flag("global_quota");
        let running = setup.start().await;
        let written: Vec<String> = (0..descs.len()).map(|number| format!("k{number}=v")).collect();
        let written: Vec<&str> = written.iter().map(String::as_str).collect();
        let response = ask(&mut running.client().await, &written).await;
        assert_eq!(case["overall"], response.overall_code().as_str_name(), "{case}");
    }
}

#[tokio::test]
async fn limits_found_are_lyfts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/lyft-corpus");
    for case in cases("match") {
        let files: Vec<String> = serde_json::from_value(case["config"].clone()).unwrap();
        let entries: Vec<(String, String)> =
            serde_json::from_value(case["entries"].clone()).unwrap();
        let [file] = &files[..] else { continue };
        if entries.is_empty() {
            // No question here.
            continue;
        }
        let running = like_lyft(&fs::read_to_string(folder.join(file)).unwrap()).start().await;
        let entries = entries.into_iter().map(|(key, value)| Entry { key, value }).collect();
        let limit = case.get("override").map(|limit| RateLimitOverride {
            requests_per_unit: limit["requests_per_unit"].as_u64().unwrap().try_into().unwrap(),
            unit: RateLimitUnit::from_str_name(limit["unit"].as_str().unwrap()).unwrap().into(),
        });
        let one = RateLimitDescriptor { entries, limit, ..RateLimitDescriptor::default() };
        let asked =
            RateLimitRequest { domain: case["domain"].as_str().unwrap().into(), ..request(&[one]) };
        let response = send(&mut running.client().await, asked).await.unwrap();
        let limit = only(&response).current_limit.clone();
        let is_limited = case["match"] == true && case["unlimited"] != true;
        assert_eq!(limit.is_some(), is_limited, "{case}");
        if let Some(limit) = limit {
            assert_eq!(case["requests_per_unit"], limit.requests_per_unit, "{case}");
            let unit = case["unit"].as_str().unwrap();
            assert!(unit.eq_ignore_ascii_case(limit.unit().as_str_name()), "{case}");
        }
    }
}
