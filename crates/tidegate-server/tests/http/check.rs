//! `/v1/check`, `/v1/peek`, `/v1/refund`, `/v1/release`, `/v1/explain`.

use std::time::Duration;

use serde_json::json;
use tidegate::{ManualClock, MemoryStore, OnFull};
use tidegate_server::Server;

use super::support::{NOW, Running, config, service_on};

const ADA: &str = r#"{"domain":"api","descriptors":[{"entries":[["user","ada"]]}]}"#;

#[tokio::test]
async fn a_check_answers_by_status_headers_and_json() {
    let running = Running::new().await;
    let first = running.post("/v1/check", ADA).await;
    assert_eq!(first.status, 200);
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(
        first.body,
        "{\"allowed\":true,\"limits\":[{\"rule\":\"api.user\",\"allowed\":true,\"limit\":2,\
         \"remaining\":1,\"retry_after_ns\":0,\"reset_after_ns\":30000000000,\"delay_ns\":0,\
         \"soft\":false,\"shadow\":false,\"descriptor\":0}],\"remaining\":1,\"retry_after_ns\":0,\
         \"reset_after_ns\":30000000000,\"delay_ns\":0,\"source\":\"store\"}"
    );
    for (name, value) in [
        ("x-ratelimit-limit", Some("2")),
        ("x-ratelimit-remaining", Some("1")),
        ("x-ratelimit-reset", Some("30")),
        ("ratelimit-policy", Some("\"api.user\";q=2;w=60")),
        ("ratelimit", Some("\"api.user\";r=1;t=30")),
        ("retry-after", None),
        ("cache-control", None),
    ] {
        assert_eq!(first.header(name), value, "{name}");
    }
    assert_eq!(running.post("/v1/check", ADA).await.status, 200);
    running.advance(Duration::from_nanos(1));
    let refused = running.post("/v1/check", ADA).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["retry_after_ns"], 29_999_999_999u64);
    for (name, value) in [
        ("retry-after", Some("30")),
        ("x-ratelimit-retry-after", Some("30")),
        ("x-ratelimit-remaining", Some("0")),
        ("ratelimit", Some("\"api.user\";r=0;t=30")),
        ("cache-control", Some("no-store")),
        ("content-type", Some("application/json")),
    ] {
        assert_eq!(refused.header(name), value, "{name}");
    }
    let always = running.post("/v1/check?status=200", ADA).await;
    assert_eq!((always.status, always.header("retry-after")), (200, Some("30")));
    assert_eq!(always.json()["allowed"], false);
    running.advance(Duration::from_nanos(29_999_999_999));
    assert_eq!(running.post("/v1/check", ADA).await.status, 200);
}

#[tokio::test]
async fn descriptors_come_in_several_forms() {
    let running = Running::new().await;
    for (left, body) in [
        (99, r#"{"domain":"api","descriptors":[[["tokens","t"]]]}"#),
        (98, r#"{"domain":"api","descriptors":[{"entries":[{"key":"tokens","value":"t"}]}]}"#),
        (93, r#"{"domain":"api","descriptors":[{"entries":[["tokens","t"]],"cost":5}]}"#),
        (83, r#"{"domain":"api","descriptors":[{"entries":[["tokens","t"]]}],"cost":10}"#),
        (82, "\n {\"domain\":\"api\",\"descriptors\":[[[\"tok\\u0065ns\",\"t\"]]]} \n"),
        (82, r#"{"domain":"api","descriptors":[[["tokens","t"]]],"cost":0}"#),
    ] {
        let reply = running.post("/v1/check", body).await;
        assert_eq!(reply.json()["remaining"], left, "{body}: {}", reply.body);
    }
    // Both descriptors or none.
    let body = r#"{"domain":"api","descriptors":[[["tokens","t"]],[["user","u"]]],"cost":3}"#;
    let reply = running.post("/v1/check", body).await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.json()["retry"], "never");
    assert_eq!(reply.header("retry-after"), None);
    assert_eq!(reply.json()["limits"][0]["remaining"], 82);
}

#[tokio::test]
async fn what_meets_no_limit_passes() {
    let running = Running::new().await;
    for entry in ["nobody", "free"] {
        let body = format!(r#"{{"domain":"api","descriptors":[[["{entry}","x"]]]}}"#);
        let reply = running.post("/v1/check", &body).await;
        assert_eq!((reply.status, &*reply.body), (200, r#"{"allowed":true,"limits":[]}"#));
        assert_eq!(reply.header("x-ratelimit-limit"), None);
    }
}

#[tokio::test]
async fn an_http_request_is_mapped_by_the_rules() {
    let running = Running::new().await;
    let ask = |user: &str| {
        format!(
            r#"{{"domain":"api","http":{{"method":"POST","url":"https://h/v1/posts?x=1",
            "headers":{{"X-User-Id":"{user}","Accept":["a","b"]}},"client_ip":"192.0.2.7"}}}}"#
        )
    };
    assert_eq!(running.post("/v1/check", &ask("ada")).await.json()["remaining"], 1);
    assert_eq!(running.post("/v1/check", &ask("bob")).await.json()["remaining"], 1);
    assert_eq!(running.post("/v1/check", ADA).await.json()["remaining"], 0);
    let denied = running.post("/v1/check", r#"{"domain":"api","http":{"url":"/strict"}}"#).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.json()["denied"], "missing_value");
}

#[tokio::test]
async fn a_peek_takes_nothing() {
    let running = Running::new().await;
    for _ in 0..3 {
        assert_eq!(running.post("/v1/peek", ADA).await.json()["remaining"], 2);
    }
    let body = ADA.replace("}]}", "}],\"cost\":3}");
    assert_eq!(running.post("/v1/peek", &body).await.status, 429);
}

#[tokio::test]
async fn several_checks_are_answered_in_order_and_each_by_itself() {
    let running = Running::new().await;
    let body = format!(r#"{{"checks":[{ADA},{ADA},{ADA}]}}"#);
    let reply = running.post("/v1/check", &body).await;
    assert_eq!(reply.status, 200);
    let json = reply.json();
    let allowed: Vec<_> =
        json["results"].as_array().unwrap().iter().map(|it| &it["allowed"]).collect();
    assert_eq!(allowed, [&json!(true), &json!(true), &json!(false)]);
    // If one of them is wrong, none is done.
    running.advance(Duration::from_secs(60));
    let wrong = format!(r#"{{"checks":[{ADA},{{"domain":"api"}}]}}"#);
    let detail = running.post("/v1/check", &wrong).await.problem(400);
    assert_eq!(detail, "checks[1]: `descriptors` is missing, or `http` in its place");
    let wrong = format!(r#"{{"checks":[{ADA},{}]}}"#, ADA.replace("api", "nobody"));
    let detail = running.post("/v1/check", &wrong).await.problem(404);
    assert_eq!(detail, "checks[1]: the rules have no domain `nobody`");
    assert_eq!(running.post("/v1/peek", ADA).await.json()["remaining"], 2);
    assert_eq!(running.post("/v1/check", r#"{"checks":[]}"#).await.body, r#"{"results":[]}"#);
}

#[tokio::test]
async fn bad_questions_are_told_what_is_wrong_and_where() {
    let running = Running::new().await;
    for (body, wanted) in [
        ("", "the body is not a JSON object"),
        ("[]", "the body is not a JSON object"),
        ("{", "EOF while parsing an object"),
        ("{}", "`domain` is missing"),
        (r#"{"domain":"api"}"#, "`descriptors` is missing, or `http` in its place"),
        (
            r#"{"domain":"api","descriptors":[],"http":{"url":"/"}}"#,
            "`descriptors` and `http` exclude each other",
        ),
        (r#"{"domain":"api","descriptors":[{"cost":1}]}"#, "missing field `entries`"),
        (
            r#"{"domain":"api","descriptors":[[["k"]]]}"#,
            "invalid length 1, expected a pair of texts",
        ),
        (r#"{"domain":"api","descriptors":[[["k","v","w"]]]}"#, "invalid length 3"),
        (
            r#"{"domain":"api","descriptors":["k"]}"#,
            "invalid type: string \"k\", expected a descriptor",
        ),
        (r#"{"domain":"api","descriptors":[],"cost":-1}"#, "invalid value: integer `-1`"),
        (r#"{"domain":"api","descriptors":[],"cost":1.5}"#, "invalid type: floating point"),
        (r#"{"domain":"api","descriptors":[],"costs":1}"#, "unknown field `costs`"),
        (r#"{"domain":"api","domain":"api"}"#, "duplicate field `domain`"),
        (r#"{"domain":"api","http":{"url":"nowhere"}}"#, "http: `nowhere` is not a URL"),
        (r#"{"domain":"api","http":{"url":"/","method":"A B"}}"#, "http: `A B` is not a method"),
        (r#"{"domain":"api","http":{}}"#, "missing field `url`"),
        (r#"{"domain":"api","descriptors":[]} x"#, "trailing characters"),
        (r#"{"checks":[{"checks":[]}]}"#, "checks[0]: `checks` within `checks`"),
        (r#"{"checks":[],"domain":"api"}"#, "`checks` stands alone"),
    ] {
        let reply = running.post("/v1/check", body).await;
        let detail = reply.problem(400);
        assert!(detail.starts_with(wanted), "{body}: {detail}");
    }
    let reply = running.post("/v1/check", "{\n \"domain\": 7}").await;
    assert_eq!(
        (reply.json()["line"].as_u64(), reply.json()["column"].as_u64()),
        (Some(2), Some(12))
    );
    running.post("/v1/check?status=201", ADA).await.problem(400);
    let detail = running.post("/v1/check", &ADA.replace("api", "other")).await.problem(404);
    assert_eq!(detail, "the rules have no domain `other`");
}

#[tokio::test]
async fn bodies_that_are_no_json_are_told_so() {
    let running = Running::new().await;
    for (kind, status) in [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ("application/vnd.api+json", 200),
        ("application/x-www-form-urlencoded", 200),
        ("text/plain", 415),
        ("multipart/form-data; boundary=x", 415),
        ("application/xml", 415),
    ] {
        let headers = format!("Content-Type: {kind}\r\n");
        let reply = running.send("POST", "/v1/peek", &headers, ADA).await;
        assert_eq!(reply.status, status, "{kind}");
    }
    assert_eq!(running.send("POST", "/v1/peek", "", ADA).await.status, 200);
}

#[tokio::test]
async fn too_many_descriptors_and_checks_are_refused() {
    let running = Running::new().await;
    let list = |count: usize| vec![r#"[["user","ada"]]"#; count].join(",");
    let body = |count| format!(r#"{{"domain":"api","descriptors":[{}]}}"#, list(count));
    assert_eq!(running.post("/v1/peek", &body(1000)).await.status, 429);
    let detail = running.post("/v1/peek", &body(1001)).await.problem(400);
    assert_eq!(detail, "1001 descriptors; the most is 1000");
    let checks = format!(r#"{{"checks":[{},{}]}}"#, body(1000), body(1));
    assert_eq!(running.post("/v1/peek", &checks).await.problem(400), detail);
    let many = vec![r#"{"domain":"api","descriptors":[]}"#; 1001].join(",");
    let detail = running.post("/v1/check", &format!(r#"{{"checks":[{many}]}}"#)).await.problem(400);
    assert_eq!(detail, "1001 checks; the most is 1000");
}

#[tokio::test]
async fn permits_are_held_by_an_id_and_released() {
    let running = Running::new().await;
    let body =
        |id: &str| format!(r#"{{"domain":"api","descriptors":[[["job","j"]]],"id":"{id}"}}"#);
    assert_eq!(running.post("/v1/check", &body("a")).await.status, 200);
    let refused = running.post("/v1/check", &body("b")).await;
    assert_eq!(refused.status, 429);
    assert_eq!(
        refused.header("ratelimit-policy"),
        Some("\"api.job\";q=1;qu=\"concurrent-requests\"")
    );
    assert_eq!(running.post("/v1/release", &body("a")).await.status, 200);
    assert_eq!(running.post("/v1/check", &body("b")).await.status, 200);
    let nobody = r#"{"domain":"api","descriptors":[[["job","j"]]]}"#;
    assert!(running.post("/v1/release", nobody).await.problem(400).contains("`id` is missing"));
}

#[tokio::test]
async fn a_refund_gives_back() {
    let running = Running::new().await;
    let body = r#"{"domain":"api","descriptors":[[["tokens","t"]]],"cost":60}"#;
    assert_eq!(running.post("/v1/check", body).await.json()["remaining"], 40);
    assert_eq!(running.post("/v1/refund", body).await.json()["remaining"], 100);
}

#[tokio::test]
async fn explain_says_which_limits_and_why() {
    let running = Running::new().await;
    running.post("/v1/check", ADA).await;
    let json = running.post("/v1/explain", ADA).await.json();
    assert_eq!(json["allowed"], true);
    assert_eq!(json["limits"][0]["rule"], "api.user");
    assert_eq!(json["limits"][0]["origin"], "rules.yaml:16");
    // Of a key that has used nothing, whatever this one has.
    assert_eq!(json["limits"][0]["answer"], "admitted, 1 of 2 left");
    assert_eq!(json["descriptors"][0]["steps"][0]["candidates"][0]["taken"], true);
    let http = r#"{"domain":"api","http":{"url":"/strict"}}"#;
    let json = running.post("/v1/explain", http).await.json();
    assert_eq!(json["allowed"], false);
    assert_eq!(json["http"][1]["applies"], true);
    running.post("/v1/explain", &ADA.replace("api", "other")).await.problem(404);
    running.post("/v1/explain", &format!(r#"{{"checks":[{ADA}]}}"#)).await.problem(400);
    assert_eq!(running.post("/v1/peek", ADA).await.json()["remaining"], 1);
}

#[tokio::test]
async fn a_store_without_room_is_503() {
    let clock = ManualClock::at(NOW);
    let store = MemoryStore::builder().max_keys(1).shards(1).on_full(OnFull::Deny).build();
    let server = Server::start(service_on(store, super::support::RULES, &clock), config());
    let running = Running { server: server.await.unwrap(), clock };
    assert_eq!(running.post("/v1/check", ADA).await.status, 200);
    let reply = running.post("/v1/check", &ADA.replace("ada", "bob")).await;
    reply.problem(503);
    assert_eq!(
        reply.json()["type"],
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
    let reply = running.post("/v1/check?status=200", &ADA.replace("ada", "bob")).await;
    assert_eq!((reply.status, reply.json()["source"].as_str()), (200, Some("fallback")));
}
