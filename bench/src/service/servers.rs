//! The servers that are measured: ours, and those that only answer.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use tidegate::rules::{File, Options, Rules};
use tidegate::{MemoryStore, Modes, RuleLimiter};
use tidegate_proto::{
    Code, DescriptorStatus, RateLimit, RateLimitRequest, RateLimitResponse, RateLimitService,
    RateLimitServiceServer, Unit,
};
use tidegate_server::{
    Address, AnyStore, Config, Server, Service, ServiceClock, threads_by_default,
};
use tidegate_store_redis::{RedisOptions, RedisStore};
use tokio::net::TcpListener;

/// Limits that nobody reaches: what is measured is the way, not the refusal.
const RULES: &str = "
domain: bench
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 4000000000, unit: hour }
  - { key: ip, rate_limit: { requests_per_unit: 4000000000, unit: hour, algorithm: token_bucket } }
  - { key: plan, rate_limit: { requests_per_unit: 4000000000, unit: day, algorithm: gcra } }
  - { key: path, rate_limit: { requests_per_unit: 4000000000, unit: hour, algorithm: sliding_window_counter } }
  - { key: host, rate_limit: { requests_per_unit: 4000000000, unit: day, algorithm: leaky_bucket } }
";

/// Serves until the process is killed.
pub(super) fn serve(server: &str, store: Option<&str>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match server {
            "tidegate-grpc" => tidegate(store, |config, any| config.grpc = any).await,
            "tidegate-http" => tidegate(store, |config, any| config.http = any).await,
            "tidegate-resp" => tidegate(store, |config, any| config.resp = any).await,
            "tonic" => tonic().await,
            "axum" => axum(false).await,
            "axum-headers" => axum(true).await,
            _ if server.starts_with("tower-") => {
                super::tower::serve(server, listener().await).await
            }
            _ => panic!("there is no server {server}"),
        }
    });
}

/// In memory, or in the Redis of a URL.
async fn open(store: Option<&str>) -> AnyStore {
    let Some(url) = store.filter(|store| *store != "memory") else {
        return MemoryStore::new().into();
    };
    let mut options = RedisOptions::new(url.parse().expect("the URL of a Redis"));
    // All decisions are Redis's, however busy the machine is: those without it cost less.
    options.deadline = Duration::from_secs(5);
    let store = RedisStore::open(options).await.expect("a store");
    assert!(store.wait_ready(Duration::from_secs(10)).await, "Redis does not answer");
    store.into()
}

async fn tidegate(store: Option<&str>, choose: impl FnOnce(&mut Config, Address)) {
    let loaded = Rules::load(&[File { name: "bench.yaml", text: RULES }], &Options::default());
    let rules = loaded.rules.expect("good rules");
    let (store, clock) = (open(store).await, ServiceClock::system());
    let limiter = RuleLimiter::build(store, clock, rules, Modes::default());
    let service = Service::new(limiter.expect("rules that can be enforced"), 0.8);
    let mut config = Config::default();
    // As `tidegate serve` does.
    config.threads = threads_by_default();
    (config.grpc, config.http, config.resp) = (Address::Off, Address::Off, Address::Off);
    choose(&mut config, Address::Tcp("127.0.0.1:0".into()));
    let server = Server::start(Arc::new(service), config).await.expect("free ports");
    let bound = server.bound();
    let address = [&bound.grpc, &bound.http, &bound.resp].into_iter().find(|it| !it.is_off());
    println!("{}", address.expect("one that is on"));
    std::future::pending::<()>().await;
}

async fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    println!("{}", listener.local_addr().expect("its address"));
    listener
}

/// A tonic server as its documentation shows it, that answers the same to everybody.
async fn tonic() {
    struct Constant;

    #[tonic::async_trait]
    impl RateLimitService for Constant {
        async fn should_rate_limit(
            &self,
            request: tonic::Request<RateLimitRequest>,
        ) -> Result<tonic::Response<RateLimitResponse>, tonic::Status> {
            let status = DescriptorStatus {
                code: Code::Ok.into(),
                current_limit: Some(RateLimit {
                    requests_per_unit: 4_000_000_000,
                    unit: Unit::Hour.into(),
                    name: String::new(),
                }),
                limit_remaining: 3_999_999_999,
                ..Default::default()
            };
            let statuses = vec![status; request.get_ref().descriptors.len()];
            let overall_code = Code::Ok.into();
            Ok(tonic::Response::new(RateLimitResponse {
                overall_code,
                statuses,
                ..Default::default()
            }))
        }
    }

    let listener = listener().await;
    let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = tonic::transport::Server::builder();
    let mut server = server;
    let router = server.add_service(RateLimitServiceServer::new(Constant));
    router.serve_with_incoming(incoming).await.expect("it serves");
}

/// An axum handler that reads the body and answers the same to everybody.
async fn axum(with_headers: bool) {
    const ANSWER: &str = r#"{"allowed":true,"limits":[{"rule":"bench.user","allowed":true,"limit":4000000000,"remaining":3999999999,"retry_after_ns":0,"reset_after_ns":1234567891234,"delay_ns":0,"soft":false,"shadow":false,"descriptor":0}],"remaining":3999999999,"retry_after_ns":0,"reset_after_ns":1234567891234,"delay_ns":0,"source":"store"}"#;
    let json = (CONTENT_TYPE, "application/json");
    let plain = move |_body: Bytes| async move { ([json], ANSWER) };
    let headers = move |_body: Bytes| async move {
        let all = [
            ("content-type", "application/json"),
            ("x-ratelimit-limit", "4000000000"),
            ("x-ratelimit-remaining", "3999999999"),
            ("x-ratelimit-reset", "1235"),
            ("ratelimit-policy", "\"bench.user\";q=4000000000;w=3600"),
            ("ratelimit", "\"bench.user\";r=3999999999;t=1235"),
        ];
        (all, ANSWER)
    };
    let router = match with_headers {
        true => Router::new().route("/v1/check", post(headers)),
        false => Router::new().route("/v1/check", post(plain)),
    };
    axum::serve(listener().await, router).await.expect("it serves");
}
