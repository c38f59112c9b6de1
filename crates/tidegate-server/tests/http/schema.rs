//! Answers are what the OpenAPI document says.

use serde_json::Value;

use super::support::{Reply, Running};

/// Checks a value by a schema: as much of JSON Schema as the document uses. Any other word is a
/// failure, so that nothing passes unseen.
fn check(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let fail = |why: String| Err(format!("{at}: {why}: {value}"));
    for (word, rule) in schema.as_object().unwrap() {
        match word.as_str() {
            "$ref" => {
                let target = document.pointer(rule.as_str().unwrap().trim_start_matches('#'));
                check(document, target.unwrap(), value, at)?;
            }
            "oneOf" => {
                let fits = |schema: &&Value| check(document, schema, value, at).is_ok();
                let count = rule.as_array().unwrap().iter().filter(fits).count();
                if count != 1 {
                    return fail(format!("{count} of oneOf"));
                }
            }
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_u64() || value.is_i64(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                let names = rule.as_array().cloned().unwrap_or(vec![rule.clone()]);
                if !names.iter().any(is) {
                    return fail(format!("not {rule}"));
                }
            }
            "required" => {
                for name in rule.as_array().unwrap() {
                    if value.get(name.as_str().unwrap()).is_none() {
                        return fail(format!("{name} is missing"));
                    }
                }
            }
            "properties" => {
                for (name, part) in value.as_object().into_iter().flatten() {
                    match (rule.get(name), schema.get("additionalProperties")) {
                        (Some(schema), _) => {
                            check(document, schema, part, &format!("{at}.{name}"))?
                        }
                        (None, Some(Value::Bool(false))) => {
                            return fail(format!("{name} is unknown"));
                        }
                        _ => {}
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(document, rule, item, &format!("{at}[{index}]"))?;
                }
            }
            "enum" => {
                if !rule.as_array().unwrap().contains(value) {
                    return fail(format!("none of {rule}"));
                }
            }
            "minimum" => {
                if value.as_i64().is_some_and(|it| it < rule.as_i64().unwrap()) {
                    return fail(format!("less than {rule}"));
                }
            }
            "minItems" | "maxItems" => {
                let wanted = usize::try_from(rule.as_u64().unwrap()).unwrap();
                let length = value.as_array().map(Vec::len);
                let fits = |length: usize| {
                    if word == "minItems" { length >= wanted } else { length <= wanted }
                };
                if !length.is_none_or(fits) {
                    return fail(format!("{word} {wanted}"));
                }
            }
            "additionalProperties" | "prefixItems" | "description" | "default" | "examples" => {}
            other => panic!("the test does not know `{other}`"),
        }
    }
    Ok(())
}

/// Checks that an answer is one that the document has for it.
fn assert_documented(document: &Value, path: &str, method: &str, reply: &Reply) {
    let operation = &document["paths"][path][method];
    let mut response = &operation["responses"][reply.status.to_string()];
    if let Some(target) = response["$ref"].as_str() {
        response = document.pointer(target.trim_start_matches('#')).unwrap();
    }
    assert!(response.is_object(), "{method} {path} {} is not documented", reply.status);
    let kind = reply.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap();
    let schema = &response["content"][kind]["schema"];
    assert!(schema.is_object(), "{method} {path} {} {kind} is not documented", reply.status);
    let answer = reply.json();
    check(document, schema, &answer, "answer").unwrap_or_else(|why| panic!("{path}: {why}"));
}

#[tokio::test]
async fn answers_are_as_documented() {
    let running = Running::new().await;
    let document = running.get("/v1/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let ada = r#"{"domain":"api","descriptors":[[["user","ada"]]]}"#;
    let key = "domain=api&descriptor=user=ada";
    for (method, path, query, body) in [
        ("post", "/v1/check", "", ada),
        ("post", "/v1/check", "", ada),
        ("post", "/v1/check", "", ada),
        ("post", "/v1/check", "status=200", ada),
        ("post", "/v1/check", "", r#"{"domain":"api","descriptors":[[["never","x"]]]}"#),
        ("post", "/v1/check", "", r#"{"domain":"api","descriptors":[[["none","x"]]]}"#),
        ("post", "/v1/check", "", r#"{"domain":"api","http":{"url":"/strict"}}"#),
        ("post", "/v1/check", "", r#"{"checks":[{"domain":"api","descriptors":[]}]}"#),
        ("post", "/v1/check", "", "{"),
        ("post", "/v1/check", "", r#"{"domain":"x","descriptors":[]}"#),
        ("post", "/v1/peek", "", ada),
        ("post", "/v1/refund", "", ada),
        ("post", "/v1/release", "", r#"{"domain":"api","descriptors":[[["job","x"]]],"id":"a"}"#),
        ("post", "/v1/explain", "", ada),
        ("post", "/v1/explain", "", r#"{"domain":"api","http":{"url":"/v1/posts"}}"#),
        (
            "post",
            "/v1/reserve",
            "",
            r#"{"domain":"api","descriptors":[[["tokens","t"]]],"id":"r"}"#,
        ),
        ("get", "/v1/keys", key, ""),
        ("post", "/v1/keys/limit", key, r#"{"requests_per_unit":5,"unit":"day","for":"1h"}"#),
        ("post", "/v1/keys/block", key, r#"{"for":"1h"}"#),
        ("post", "/v1/keys/block", key, "{}"),
        ("get", "/v1/exceptions", "", ""),
        ("post", "/v1/check", "", ada),
        ("delete", "/v1/keys/block", key, ""),
        ("delete", "/v1/keys/limit", key, ""),
        ("delete", "/v1/keys/limit", key, ""),
        ("delete", "/v1/keys", key, ""),
        ("get", "/v1/rules", "", ""),
        ("get", "/v1/rules", "offset=x", ""),
        (
            "post",
            "/json",
            "",
            r#"{"domain":"api","descriptors":[{"entries":[{"key":"ip","value":"1"}]}]}"#,
        ),
        ("get", "/v1/openapi.json", "", ""),
        ("get", "/v1/auth", "", ""),
    ] {
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        let reply = running.send(&method.to_ascii_uppercase(), &target, "", body).await;
        assert_documented(&document, path, method, &reply);
    }
    let settled = running.post("/v1/reserve/r/settle", r#"{"cost":3}"#).await;
    assert_documented(&document, "/v1/reserve/{id}/settle", "post", &settled);
    let missing = running.post("/v1/reserve/r/cancel", "").await;
    assert_documented(&document, "/v1/reserve/{id}/cancel", "post", &missing);
    for _ in 0..2 {
        let headers = "X-Forwarded-Uri: /by-host\r\nX-Forwarded-Host: a.example\r\n";
        let reply = running.send("GET", "/v1/auth", headers, "").await;
        if reply.status == 429 {
            assert_documented(&document, "/v1/auth", "get", &reply);
        }
    }
}
