//! Envoy itself between a client and an upstream, configured by the example that is shipped.

mod process;
mod upstream;

use std::time::Duration;

use http::{HeaderMap, Response, StatusCode};
use tidegate_server::{Address, HeaderNames};

use self::process::{Envoy, ROOT, fetch, until};
use self::upstream::Upstream;
use crate::support::{Running, Setup, descriptor, only, request, send};

fn rules() -> String {
    std::fs::read_to_string(format!("{ROOT}/examples/envoy-rules.yaml")).unwrap()
}

/// Client, Envoy, upstream and tidegate.
struct Stage {
    envoy: Envoy,
    _upstream: Upstream,
    running: Option<Running>,
    port: u16,
}

impl Stage {
    /// Sets it up, with changes to the example of Envoy's configuration.
    async fn set(setup: Setup, edits: &[(&str, &str)]) -> Self {
        let upstream = Upstream::start().await;
        let running = setup.start().await;
        let port = port(&running);
        let envoy = Envoy::start(upstream.port, port, edits).await;
        let stage = Self { envoy, _upstream: upstream, running: Some(running), port };
        stage.until_limited().await;
        stage
    }

    fn advance(&self, by: Duration) {
        self.running.as_ref().unwrap().advance(by);
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response<String> {
        fetch(self.envoy.port, path, headers).await
    }

    /// Waits until Envoy has found tidegate. All limits are as new after that.
    async fn until_limited(&self) {
        until("Envoy asks tidegate", async || {
            let response = self.get("/", &[("x-user-id", "first")]).await;
            self.advance(Duration::from_secs(3600));
            response.headers().contains_key("x-ratelimit-limit")
        })
        .await;
    }

    /// Ends tidegate.
    async fn end(&mut self) {
        let running = self.running.take().unwrap();
        assert!(running.server.drain().await, "Envoy lets go of its connections");
    }

    /// A tidegate where the one before was.
    async fn restart(&mut self) {
        let mut setup = Setup::new(&rules());
        setup.config.grpc = Address::Tcp(format!("127.0.0.1:{}", self.port));
        self.running = Some(setup.start().await);
        self.until_limited().await;
    }
}

fn port(running: &Running) -> u16 {
    running.address().rsplit_once(':').unwrap().1.parse().unwrap()
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn who_may_pass_and_what_they_are_told() {
    let stage = Stage::set(Setup::new(&rules()), &[]).await;
    for remaining in ["2", "1", "0"] {
        let response = stage.get("/", &[("x-user-id", "ada")]).await;
        assert_eq!((response.status(), &**response.body()), (StatusCode::OK, "hello"));
        let headers = response.headers();
        assert_eq!(
            text(headers, "x-ratelimit-limit"),
            Some("3, 20;w=1;name=\"per-address\", 3;w=60;name=\"per-user\"")
        );
        assert_eq!(text(headers, "x-ratelimit-remaining"), Some(remaining));
        assert_eq!(text(headers, "x-ratelimit-reset"), Some("26"));
        assert_eq!(text(headers, "retry-after"), None);
        assert_eq!(text(headers, "x-envoy-ratelimited"), None);
    }
    let response = stage.get("/", &[("x-user-id", "ada")]).await;
    assert_eq!((response.status(), &**response.body()), (StatusCode::TOO_MANY_REQUESTS, ""));
    let headers = response.headers();
    assert_eq!(text(headers, "x-ratelimit-remaining"), Some("0"));
    assert_eq!(text(headers, "x-ratelimit-reset"), Some("26"));
    assert_eq!(text(headers, "retry-after"), Some("26"));
    assert_eq!(text(headers, "x-envoy-ratelimited"), Some("true"));

    assert_eq!(stage.get("/", &[("x-user-id", "bob")]).await.status(), StatusCode::OK);
    stage.advance(Duration::from_secs(26));
    assert_eq!(stage.get("/", &[("x-user-id", "ada")]).await.status(), StatusCode::OK);
    assert_eq!(stage.envoy.counter("cluster.upstream.ratelimit.over_limit").await, 1);
    assert_eq!(stage.envoy.counter("cluster.upstream.ratelimit.error").await, 0);
}

#[tokio::test]
async fn a_bucket_for_each_address_and_a_limit_in_shadow() {
    let stage = Stage::set(Setup::new(&rules()), &[]).await;
    // Only the address is known of these, and the path, whose limit refuses nobody.
    for remaining in (0..40).rev() {
        let response = stage.get("/trial", &[]).await;
        assert_eq!(response.status(), StatusCode::OK, "{remaining}");
    }
    let response = stage.get("/trial", &[]).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(text(response.headers(), "retry-after"), Some("1"), "50 ms, and no less than 1");
    stage.advance(Duration::from_millis(50));
    assert_eq!(stage.get("/trial", &[]).await.status(), StatusCode::OK);
    assert_eq!(stage.get("/trial", &[]).await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn the_service_goes_and_comes_back() {
    let mut stage = Stage::set(Setup::new(&rules()), &[]).await;
    stage.end().await;
    let gone = stage.get("/", &[("x-user-id", "ada")]).await;
    assert_eq!((gone.status(), &**gone.body()), (StatusCode::OK, "hello"), "requests pass");
    assert!(!gone.headers().contains_key("x-ratelimit-limit"));
    assert!(stage.envoy.counter("cluster.upstream.ratelimit.failure_mode_allowed").await >= 1);
    stage.restart().await;
    assert_eq!(stage.get("/", &[("x-user-id", "ada")]).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn without_the_service_nobody_passes_if_that_is_wanted() {
    let deny = [("failure_mode_deny: false", "failure_mode_deny: true")];
    let mut stage = Stage::set(Setup::new(&rules()), &deny).await;
    stage.end().await;
    let gone = stage.get("/", &[("x-user-id", "ada")]).await;
    assert_eq!(gone.status(), StatusCode::INTERNAL_SERVER_ERROR);
    stage.restart().await;
    assert_eq!(stage.get("/", &[("x-user-id", "ada")]).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn headers_of_the_service_reach_the_client() {
    let mut setup = Setup::new(&rules());
    setup.config.response_headers = Some(HeaderNames::default());
    setup.config.dynamic_metadata = true;
    // Envoy does not send them twice.
    let stage = Stage::set(setup, &[]).await;
    let told = async || {
        let response = stage.get("/", &[("x-user-id", "ada")]).await;
        let headers = response.headers();
        let names = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "retry-after"];
        let values = names.map(|name| {
            assert!(headers.get_all(name).iter().count() <= 1, "{name} twice");
            text(headers, name).map(str::to_owned)
        });
        (response.status(), values)
    };
    let some = |text: &str| Some(text.to_owned());
    for remaining in ["2", "1", "0"] {
        let expected = [some("3"), some(remaining), some("26"), None];
        assert_eq!(told().await, (StatusCode::OK, expected));
    }
    let expected = [some("3"), some("0"), some("26"), some("26")];
    assert_eq!(told().await, (StatusCode::TOO_MANY_REQUESTS, expected));
}

#[tokio::test]
async fn envoy_hears_that_the_service_is_about_to_end() {
    let mut setup = Setup::new(&rules());
    setup.config.drain_delay = Duration::from_secs(3600);
    let soon = [
        (" interval: 5s", " interval: 0.05s"),
        ("no_traffic_interval: 10s", "no_traffic_interval: 0.05s"),
    ];
    let mut stage = Stage::set(setup, &soon).await;
    let healthy = "cluster.tidegate.membership_healthy";
    until("Envoy finds it well", async || stage.envoy.counter(healthy).await == 1).await;
    let running = stage.running.take().unwrap();
    let ending = tokio::spawn(running.server.drain());
    until("Envoy finds it about to end", async || stage.envoy.counter(healthy).await == 0).await;
    ending.abort();
}

/// The blocks of a kind on the page about Envoy.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let opening = format!("```{kind}\n");
    page.split(&opening).skip(1).map(|rest| rest.split_once("\n```").unwrap().0).collect()
}

#[tokio::test]
async fn the_page_shows_what_happens() {
    let page = std::fs::read_to_string(format!("{ROOT}/docs/envoy.md")).unwrap();
    let stage = Stage::set(Setup::new(&rules()), &[]).await;
    let shown = blocks(&page, "text");
    assert_eq!(shown.len(), 2);
    for (number, shown) in [(1, shown[0]), (4, shown[1])] {
        stage.advance(Duration::from_secs(3600));
        for _ in 1..number {
            stage.get("/", &[("x-user-id", "ada")]).await;
        }
        let response = stage.get("/", &[("x-user-id", "ada")]).await;
        let (first, headers) = shown.split_once('\n').unwrap();
        assert_eq!(first, format!("HTTP/1.1 {}", response.status()));
        for header in headers.lines() {
            let (name, value) = header.split_once(": ").unwrap();
            assert_eq!(text(response.headers(), name), Some(value), "{name}");
        }
    }

    let example = std::fs::read_to_string(format!("{ROOT}/examples/envoy.yaml")).unwrap();
    let yaml = blocks(&page, "yaml");
    for line in yaml[0].lines() {
        assert!(example.contains(line.trim()), "`{line}` is not in the example");
    }
    let mut setup = Setup::new(yaml[2]);
    setup.rules.push('\n');
    let running = setup.start().await;
    let mut asked = request(&[descriptor("user=ada plan=free")]);
    asked.domain = "envoy".into();
    let response = send(&mut running.client().await, asked).await.unwrap();
    assert_eq!(only(&response).limit_remaining, 2);
}
