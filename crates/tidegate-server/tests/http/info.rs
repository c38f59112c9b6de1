//! What the server says of itself.

use super::support::Running;

#[tokio::test]
async fn the_rules_are_listed_as_they_were_written() {
    let running = Running::new().await;
    let json = running.get("/v1/rules").await.json();
    assert_eq!(json["total"], 7);
    assert!(json["next_offset"].is_null());
    let rules = json["rules"].as_array().unwrap();
    let user = &rules[0];
    assert_eq!(user["id"], "api.user");
    assert_eq!(user["domain"], "api");
    assert_eq!(user["file"], "rules.yaml");
    assert_eq!(user["line"], 16);
    assert_eq!(user["algorithm"], "token_bucket");
    assert_eq!(
        user["source"],
        "  - { key: user, rate_limit: { requests_per_unit: 2, unit: minute, algorithm: token_bucket } }"
    );
    let free = rules.last().unwrap();
    assert_eq!((&free["id"], &free["unlimited"]), (&"api.free".into(), &true.into()));
    assert_eq!(free["line"], 21);
    let rest = running.get("/v1/rules?offset=6").await.json();
    assert_eq!(rest["rules"].as_array().unwrap().len(), 1);
    running.get("/v1/rules?offset=x").await.problem(400);
    assert_eq!(
        running.get("/v1/rules?offset=99").await.json()["rules"].as_array().unwrap().len(),
        0
    );
}

#[tokio::test]
async fn many_rules_come_in_pages() {
    let rule = |n: usize| {
        format!("  - {{ key: k{n}, rate_limit: {{ requests_per_unit: 1, unit: day }} }}\n")
    };
    let rules: String = (0..1500).map(rule).collect();
    let rules = format!("domain: d\ndescriptors:\n{rules}");
    let running = Running::with(&rules, super::support::config()).await;
    let page = running.get("/v1/rules").await.json();
    assert_eq!(page["next_offset"], 1000);
    let page = running.get("/v1/rules?offset=1000").await.json();
    assert_eq!(page["rules"].as_array().unwrap().len(), 500);
    assert_eq!(page["rules"][499]["id"], "d.k1499");
    assert!(page["next_offset"].is_null());
}

#[tokio::test]
async fn health_and_readiness_say_yes() {
    let running = Running::new().await;
    for method in ["GET", "POST", "HEAD"] {
        let reply = running.send(method, "/healthcheck", "", "").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.body, if method == "HEAD" { "" } else { "OK" });
    }
    assert_eq!(running.get("/ready").await.status, 200);
}

#[tokio::test]
async fn the_page_lists_what_there_is() {
    let running = Running::new().await;
    let page = running.get("/").await;
    assert_eq!(page.header("content-type"), Some("text/plain; charset=utf-8"));
    for path in ["/v1/check", "/json", "/v1/auth", "/metrics", "/v1/openapi.json"] {
        assert!(page.body.contains(path), "{}", page.body);
    }
    assert_eq!(running.get("/metrics").await.status, 200);
}

#[tokio::test]
async fn other_paths_and_methods_are_told_so() {
    let running = Running::new().await;
    for path in ["/nothing", "/v1", "/v1/check/", "/V1/check", "/v1/reserve/", "/../etc/passwd"] {
        running.get(path).await.problem(404);
    }
    for (method, path, allowed) in [
        ("GET", "/v1/check", "POST"),
        ("PUT", "/v1/keys", "GET, DELETE"),
        ("GET", "/v1/keys/block", "POST, DELETE"),
        ("POST", "/v1/rules", "GET"),
        ("GET", "/v1/reserve/x/settle", "POST"),
    ] {
        let reply = running.send(method, path, "", "").await;
        reply.problem(405);
        assert_eq!(reply.header("allow"), Some(allowed));
    }
}
