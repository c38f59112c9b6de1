//! The keys API.

use std::time::Duration;

use super::support::Running;

const KEY: &str = "/v1/keys?domain=api&descriptor=user%3Dada";
const BLOCK: &str = "/v1/keys/block?domain=api&descriptor=user=ada";
const LIMIT: &str = "/v1/keys/limit?domain=api&descriptor=user=ada";
const ADA: &str = r#"{"domain":"api","descriptors":[[["user","ada"]]]}"#;

#[tokio::test]
async fn a_key_is_looked_at_and_reset() {
    let running = Running::new().await;
    running.post("/v1/check", ADA).await;
    let json = running.get(KEY).await.json();
    assert_eq!(json["domain"], "api");
    assert_eq!(json["descriptor"][0][1], "ada");
    assert_eq!(json["limits"][0]["rule"], "api.user");
    assert_eq!(json["limits"][0]["remaining"], 1);
    assert_eq!(json["exceptions"].as_array().unwrap().len(), 0);
    // Looking takes nothing.
    assert_eq!(running.get(KEY).await.json()["remaining"], 1);
    assert_eq!(running.delete(KEY).await.json()["remaining"], 2);
    assert_eq!(running.get(KEY).await.json()["remaining"], 2);
}

#[tokio::test]
async fn a_key_is_blocked_and_let_go() {
    let running = Running::new().await;
    running.post("/v1/check", ADA).await;
    let json = running.post(BLOCK, r#"{"for":"1h"}"#).await.json();
    assert_eq!(json["exceptions"][0]["exception"], "block");
    assert_eq!(json["exceptions"][0]["ends_in_ns"], 3_600_000_000_000u64);
    running.advance(Duration::from_secs(1800));
    let refused = running.post("/v1/check", ADA).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1800")));
    assert_eq!(refused.header("ratelimit"), Some("\"block\";r=0;t=1800"));
    assert_eq!(refused.json()["limits"][0]["rule"], "block");
    let all = running.get("/v1/exceptions").await.json();
    assert_eq!(all["exceptions"][0]["descriptor"][0][0], "user");
    assert_eq!(all["exceptions"][0]["domain"], "api");
    assert_eq!(running.delete(BLOCK).await.status, 200);
    running.delete(BLOCK).await.problem(404);
    assert_eq!(running.post("/v1/check", ADA).await.status, 200);
}

#[tokio::test]
async fn a_key_has_another_limit_for_a_while() {
    let running = Running::new().await;
    running.post("/v1/check", ADA).await;
    let body = r#"{"requests_per_unit":5,"unit":"hour","for":"10m"}"#;
    let json = running.post(LIMIT, body).await.json();
    assert_eq!(json["exceptions"][0]["requests_per_unit"], 5);
    assert_eq!(json["limits"][0]["rule"], "override.5_per_hour");
    assert_eq!(running.post("/v1/check", ADA).await.json()["remaining"], 4);
    assert_eq!(running.delete(LIMIT).await.status, 200);
    assert_eq!(running.get(KEY).await.json()["remaining"], 1);
    running.post(LIMIT, body).await;
    running.advance(Duration::from_secs(600));
    assert_eq!(running.get(KEY).await.json()["limits"][0]["rule"], "api.user");
}

#[tokio::test]
async fn bad_keys_are_told_what_is_wrong() {
    let running = Running::new().await;
    for (target, wanted) in [
        ("/v1/keys", "`?domain=` is missing"),
        ("/v1/keys?domain=api", "`?descriptor=` is missing"),
        ("/v1/keys?domain=api&descriptor=user", "`user` is not a descriptor"),
        ("/v1/keys?domain=%ff&descriptor=user=ada", "`%ff` in the query is not well encoded"),
    ] {
        let detail = running.get(target).await.problem(400);
        assert!(detail.starts_with(wanted), "{target}: {detail}");
    }
    running.get("/v1/keys?domain=other&descriptor=user=ada").await.problem(404);
    for (target, body, wanted) in [
        (BLOCK, "{}", "missing field `for`"),
        (BLOCK, r#"{"for":"later"}"#, "`for` of `later` is not a duration"),
        (BLOCK, r#"{"for":"367d"}"#, "`for`: the most is 366d"),
        (LIMIT, r#"{"for":"1h"}"#, "missing field `requests_per_unit`"),
        (LIMIT, r#"{"requests_per_unit":1,"unit":"blink","for":"1h"}"#, "`unit` of `blink`"),
        (LIMIT, r#"{"requests_per_unit":4294967296,"unit":"day","for":"1h"}"#, "invalid value"),
    ] {
        let detail = running.post(target, body).await.problem(400);
        assert!(detail.starts_with(wanted), "{target} {body}: {detail}");
    }
}
