//! `/json`, as Lyft's service has it.

use serde_json::json;
use tidegate_server::HeaderNames;

use super::support::{Running, config};

const ASK: &str =
    r#"{"domain":"api","descriptors":[{"entries":[{"key":"ip","value":"x"}]}],"hitsAddend":2}"#;

#[tokio::test]
async fn the_answer_is_that_of_envoys_protocol() {
    let running = Running::new().await;
    let first = running.post("/json", ASK).await;
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    // NOW is 1234 s after the epoch, so that the hour ends in 2366 s.
    assert_eq!(
        first.json(),
        json!({"overallCode": "OK", "statuses": [{
            "code": "OK", "currentLimit": {"requestsPerUnit": 2, "unit": "HOUR"},
            "durationUntilReset": "2366s",
        }]})
    );
    let second = running.post("/json", ASK).await;
    assert_eq!(second.status, 429);
    assert_eq!(second.json()["overallCode"], "OVER_LIMIT");
    assert_eq!(second.json()["statuses"][0]["code"], "OVER_LIMIT");
    assert_eq!(second.header("retry-after"), None, "limits are only in the body");
}

#[tokio::test]
async fn any_method_will_do() {
    let running = Running::new().await;
    for method in ["GET", "PUT", "POST", "PATCH", "DELETE"] {
        let body = ASK.replace('2', "0").replace("\"x\"", &format!("\"{method}\""));
        assert_eq!(running.send(method, "/json", "", &body).await.status, 200, "{method}");
    }
}

#[tokio::test]
async fn whatever_is_not_understood_is_a_bad_request() {
    let running = Running::new().await;
    for body in [
        "",
        "x",
        "{}",
        r#"{"domain":"api"}"#,
        r#"{"domain":"","descriptors":[{"entries":[{"key":"ip","value":"x"}]}]}"#,
        r#"{"domain":"api","descriptors":[{}]}"#,
        r#"{"domain":"api","descriptors":[],"other":1}"#,
    ] {
        let reply = running.post("/json", body).await;
        assert_eq!((reply.status, &*reply.body), (400, "Bad Request\n"), "{body}");
        assert_eq!(reply.header("content-type"), Some("text/plain; charset=utf-8"));
    }
    // A domain that the rules do not know limits nobody.
    let other = running.post("/json", &ASK.replace("api", "other")).await;
    assert_eq!(other.json(), json!({"overallCode": "OK", "statuses": [{"code": "OK"}]}));
}

#[tokio::test]
async fn headers_are_in_the_body_if_asked_for() {
    let mut config = config();
    config.response_headers = Some(HeaderNames::default());
    config.dynamic_metadata = true;
    let running = Running::with(super::support::RULES, config).await;
    let json = running.post("/json", ASK).await.json();
    assert_eq!(json["responseHeadersToAdd"][0], json!({"key": "RateLimit-Limit", "value": "2"}));
    assert!(json["dynamicMetadata"].is_object(), "{json}");
}
