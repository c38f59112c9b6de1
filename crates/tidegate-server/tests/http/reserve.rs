//! Reservations over HTTP.

use std::time::Duration;

use super::support::Running;

const ASK: &str = r#"{"domain":"api","descriptors":[[["tokens","t"]]],"cost":60,"ttl":"30s"}"#;
const PEEK: &str = r#"{"domain":"api","descriptors":[[["tokens","t"]]]}"#;

async fn left(running: &Running) -> u64 {
    running.post("/v1/peek", PEEK).await.json()["remaining"].as_u64().unwrap()
}

async fn reserve(running: &Running, body: &str) -> String {
    let reply = running.post("/v1/reserve", body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_was_reserved_beyond_the_real_cost_is_given_back() {
    let running = Running::new().await;
    let reply = running.post("/v1/reserve", ASK).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("40"));
    let json = reply.json();
    assert_eq!(
        (json["allowed"].as_bool(), json["ttl_ns"].as_u64()),
        (Some(true), Some(30_000_000_000))
    );
    let id = json["id"].as_str().unwrap();
    assert_eq!(id.len(), 32);
    let settled = running.post(&format!("/v1/reserve/{id}/settle"), r#"{"cost":25}"#).await;
    assert_eq!(settled.json()["settled"], true);
    assert_eq!(left(&running).await, 75);
    // Once is enough.
    running.post(&format!("/v1/reserve/{id}/settle"), r#"{"cost":25}"#).await.problem(404);
    running.post(&format!("/v1/reserve/{id}/cancel"), "").await.problem(404);
    assert_eq!(left(&running).await, 75);
}

#[tokio::test]
async fn more_than_was_reserved_is_taken_too() {
    let running = Running::new().await;
    let id = reserve(&running, ASK).await;
    running.post(&format!("/v1/reserve/{id}/settle"), r#"{"cost":99}"#).await;
    assert_eq!(left(&running).await, 1);
}

#[tokio::test]
async fn a_cancelled_reservation_gives_all_back() {
    let running = Running::new().await;
    let id = reserve(&running, ASK).await;
    let refused = running.post("/v1/reserve", ASK).await;
    assert_eq!(refused.status, 429);
    assert!(refused.json().get("id").is_none());
    assert!(refused.header("retry-after").is_some());
    assert_eq!(running.post(&format!("/v1/reserve/{id}/cancel"), "").await.status, 200);
    assert_eq!(left(&running).await, 100);
}

#[tokio::test]
async fn past_its_time_it_stays_consumed() {
    let running = Running::new().await;
    let id = reserve(&running, ASK).await;
    running.advance(Duration::from_secs(30));
    running.post(&format!("/v1/reserve/{id}/cancel"), "").await.problem(404);
    assert_eq!(left(&running).await, 40);
}

#[tokio::test]
async fn an_id_of_ones_own_makes_it_safe_to_repeat() {
    let running = Running::new().await;
    let body = ASK.replace("\"ttl\"", "\"id\":\"job 7/ä\",\"ttl\"");
    assert_eq!(reserve(&running, &body).await, "job 7/ä");
    assert_eq!(reserve(&running, &body).await, "job 7/ä");
    assert_eq!(left(&running).await, 40);
    let settled = running.post("/v1/reserve/job%207%2F%C3%A4/settle", r#"{"cost":1}"#).await;
    assert_eq!(settled.status, 200);
    assert_eq!(left(&running).await, 99);
}

#[tokio::test]
async fn an_http_request_is_reserved_for_too() {
    let running = Running::new().await;
    let body = r#"{"domain":"api","http":{"url":"/v1/posts"},"cost":2}"#;
    let id = reserve(&running, body).await;
    let ask = r#"{"domain":"api","http":{"url":"/v1/posts"}}"#;
    assert_eq!(running.post("/v1/peek", ask).await.status, 429);
    running.post(&format!("/v1/reserve/{id}/settle"), r#"{"cost":0}"#).await;
    assert_eq!(running.post("/v1/peek", ask).await.json()["remaining"], 2);
}

#[tokio::test]
async fn what_meets_no_limit_can_be_settled_all_the_same() {
    let running = Running::new().await;
    let id = reserve(&running, r#"{"domain":"api","descriptors":[[["nobody","x"]]]}"#).await;
    assert_eq!(
        running.post(&format!("/v1/reserve/{id}/settle"), r#"{"cost":5}"#).await.status,
        200
    );
}

#[tokio::test]
async fn bad_reservations_are_told_what_is_wrong() {
    let running = Running::new().await;
    for (body, wanted) in [
        (ASK.replace("30s", "soon"), "`ttl` of `soon` is not a duration"),
        (ASK.replace("30s", "0s"), "`ttl` of `0s` is not a duration"),
        (ASK.replace("30s", "2d"), "`ttl` of 2d: the most is 1d"),
        (
            ASK.replace(r#"[["tokens","t"]]"#, r#"{"entries":[["tokens","t"]],"cost":2}"#),
            "a reservation is settled by one cost",
        ),
        (format!(r#"{{"checks":[{PEEK}]}}"#), "`checks` is for check and peek alone"),
    ] {
        let detail = running.post("/v1/reserve", &body).await.problem(400);
        assert!(detail.starts_with(wanted), "{detail}");
    }
    let id = reserve(&running, ASK).await;
    for body in ["", "{}", r#"{"cost":-1}"#, r#"{"cost":1,"more":2}"#] {
        running.post(&format!("/v1/reserve/{id}/settle"), body).await.problem(400);
    }
    running.post("/v1/reserve/unknown/settle", r#"{"cost":1}"#).await.problem(404);
    running.post("/v1/reserve//settle", r#"{"cost":1}"#).await.problem(404);
    running.post("/v1/reserve/x/other", "").await.problem(404);
    assert_eq!(left(&running).await, 40);
}

/// Whoever asked for a domain that nobody knows used up the room for reservations of all others.
#[tokio::test]
async fn what_is_not_found_is_not_kept() {
    let running = Running::new().await;
    let stranger = ASK.replace("\"api\"", "\"nope\"");
    running.post("/v1/reserve", &stranger).await.problem(404);
    let metrics = running.get("/metrics").await.body;
    assert!(metrics.contains("tidegate_reservations 0\n"), "{metrics}");
}
