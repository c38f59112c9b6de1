//! What an answer carries for others: headers for the client, metadata for filters of Envoy.

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use serde_json::json;
use tidegate_proto::{RateLimitDescriptor, RateLimitResponse, RateLimitUnit};
use tidegate_server::HeaderNames;

use crate::support::{Setup, ask, descriptor, domain, request, send, with_limit};

fn headers(response: &RateLimitResponse) -> Vec<(&str, &str)> {
    let all = response.response_headers_to_add.iter();
    all.map(|header| (header.key.as_str(), header.value.as_str())).collect()
}

fn with_headers(descriptors: &str) -> Setup {
    let mut setup = Setup::new(&domain(descriptors));
    setup.config.response_headers = Some(HeaderNames::default());
    setup
}

fn three<'a>(limit: &'a str, remaining: &'a str, reset: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![("RateLimit-Limit", limit), ("RateLimit-Remaining", remaining), ("RateLimit-Reset", reset)]
}

#[tokio::test]
async fn the_headers_are_lyfts_with_a_retry_after_on_refusals() {
    let rules = "
  - { key: a, rate_limit: { requests_per_unit: 1, unit: minute } }
  - { key: b, rate_limit: { requests_per_unit: 9, unit: hour } }
  - { key: c, rate_limit: { requests_per_unit: 1, unit: day } }
  - { key: free, rate_limit: { unlimited: true } }
";
    let running = with_headers(rules).start().await;
    let mut client = running.client().await;
    // Of the one with the least remaining, the first of equals.
    let response = ask(&mut client, &["b=x", "a=x", "c=x"]).await;
    assert_eq!(headers(&response), three("1", "0", "26"));
    // Of the last one that is over.
    let response = ask(&mut client, &["c=x", "a=x", "b=x"]).await;
    let mut expected = three("1", "0", "26");
    // And when all of them let it pass.
    expected.push(("Retry-After", "85166"));
    assert_eq!(headers(&response), expected);
    assert_eq!(headers(&ask(&mut client, &["free=x", "other=x"]).await), []);
}

#[tokio::test]
async fn the_headers_have_the_names_they_are_given() {
    let mut setup =
        with_headers("  - { key: a, rate_limit: { requests_per_unit: 5, unit: minute } }\n");
    setup.config.response_headers =
        Some(HeaderNames { limit: "x-l".into(), remaining: "x-r".into(), reset: "x-t".into() });
    let running = setup.start().await;
    let mut client = running.client().await;
    let response = ask(&mut client, &["a=x"]).await;
    assert_eq!(headers(&response), [("x-l", "5"), ("x-r", "4"), ("x-t", "26")]);
}

#[tokio::test]
async fn headers_speak_of_quotas_only_if_nothing_else_is_over() {
    let rules = "
  - { key: quota, quota_mode: true, rate_limit: { requests_per_unit: 0, unit: minute } }
  - { key: a, rate_limit: { requests_per_unit: 7, unit: hour } }
  - { key: none, rate_limit: { requests_per_unit: 0, unit: day } }
";
    let running = with_headers(rules).start().await;
    let mut client = running.client().await;
    let response = ask(&mut client, &["none=x", "quota=x", "a=x"]).await;
    // It never lets anybody pass, so nobody is told to come back.
    assert_eq!(headers(&response), three("0", "0", "85166"));
    let response = ask(&mut client, &["a=x", "quota=x"]).await;
    assert_eq!(headers(&response), three("0", "0", "26"));
}

#[tokio::test]
async fn a_bucket_tells_all_that_it_holds() {
    let rules = "
  - { key: a, rate_limit: { requests_per_unit: 2, unit: minute, burst: 3, algorithm: gcra } }
";
    let running = with_headers(rules).start().await;
    let mut client = running.client().await;
    assert_eq!(headers(&ask(&mut client, &["a=x"]).await), three("3", "2", "30"));
    ask(&mut client, &["a=x"]).await;
    ask(&mut client, &["a=x"]).await;
    let mut expected = three("3", "0", "30");
    expected.push(("Retry-After", "30"));
    assert_eq!(headers(&ask(&mut client, &["a=x"]).await), expected);
}

fn json_of(value: &Value) -> serde_json::Value {
    match value.kind.as_ref().unwrap() {
        Kind::NullValue(_) => json!(null),
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => json!(text),
        Kind::BoolValue(flag) => json!(flag),
        Kind::ListValue(list) => list.values.iter().map(json_of).collect(),
        Kind::StructValue(all) => json_of_all(all),
    }
}

fn json_of_all(all: &Struct) -> serde_json::Value {
    all.fields.iter().map(|(name, value)| (name.clone(), json_of(value))).collect()
}

#[tokio::test]
async fn metadata_is_the_request_and_what_the_rules_attach() {
    let rules = "
  - key: a
    metadata: { team: red, deep: { one: 1, list: [true, null, 2.5] } }
    rate_limit: { requests_per_unit: 1, unit: minute }
  - key: b
    metadata: { team: blue, deep: { one: 11, two: 2 } }
    rate_limit: { requests_per_unit: 9, unit: minute }
";
    let mut setup = Setup::new(&domain(rules));
    setup.config.dynamic_metadata = true;
    let running = setup.start().await;
    let mut client = running.client().await;
    let mut asked = request(&[
        descriptor("a=x sub="),
        descriptor("a=x"),
        RateLimitDescriptor { hits_addend: Some(3), ..descriptor("b=x") },
        with_limit("c=x", 8, RateLimitUnit::Hour),
    ]);
    let told =
        |response: &RateLimitResponse| json_of_all(response.dynamic_metadata.as_ref().unwrap());
    let response = send(&mut client, asked.clone()).await.unwrap();
    let mut expected = json!({
        "domain": "d",
        "descriptors": [
            { "entries": ["a=x", "sub="] },
            { "entries": ["a=x"] },
            { "entries": ["b=x"], "hitsAddend": 3.0 },
            { "entries": ["c=x"], "limit": "requests_per_unit:8 unit:HOUR" },
        ],
        "metadata": {
            "team": "red",
            "deep": { "one": 1.0, "two": 2.0, "list": [true, null, 2.5] },
        },
    });
    assert_eq!(told(&response), expected);
    // The one that is over no longer counts.
    asked.hits_addend = 1;
    let response = send(&mut client, asked).await.unwrap();
    expected["hitsAddend"] = json!(1.0);
    expected["metadata"] = json!({ "team": "blue", "deep": { "one": 11.0, "two": 2.0 } });
    assert_eq!(told(&response), expected);
}
