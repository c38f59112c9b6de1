//! The tower layer: a bare handler with it and without, on hyper and in axum.

use std::convert::Infallible;
use std::time::Instant;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tidegate::{Limit, Limiter};
use tidegate_tower::{TidegateLayer, key};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer, Service, service_fn};

use super::http::{CONNECTIONS, load_by, read_answer};
use super::{Child, Length, Measured, next, print, take_turns};

/// Limits that nobody reaches, and one that nobody is below.
const RULES: &str = r#"
domain: bench
http:
  - { match: { path: /one }, descriptors: [ { one: "${header.x-user}" } ] }
  - { match: { path: /shut }, descriptors: [ { shut: "${header.x-user}" } ] }
descriptors:
  - { key: one, rate_limit: { requests_per_unit: 4000000000, unit: hour } }
  - { key: shut, rate_limit: { requests_per_unit: 0, unit: hour } }
"#;

const BODY: &str = "hello, this is an answer of some bytes, as answers are\n";

pub(super) fn run(length: Length) {
    for keys in length.keys() {
        let rivals = [
            ("bare hyper", "tower-hyper", "/one"),
            ("bare hyper with the same headers", "tower-hyper-headers", "/one"),
            ("hyper, layer, no limit met", "tower-hyper-rules", "/none"),
            ("hyper, layer, one limit by rules", "tower-hyper-rules", "/one"),
            ("hyper, layer, one limit by code", "tower-hyper-code", "/one"),
            ("hyper, layer, refused by rules", "tower-hyper-rules", "/shut"),
            ("bare axum", "tower-axum", "/one"),
            ("axum, layer, one limit by rules", "tower-axum-rules", "/one"),
        ];
        let servers = rivals.map(|(name, server, _)| (name, Child::serve(server)));
        let rows = take_turns(length, &servers, |name, child| {
            let path = rivals.iter().find(|rival| rival.0 == name).map_or("/", |rival| rival.2);
            load_path(&child.address, path, *keys, length.requests(), || child.cpu_seconds())
        });
        print(&format!("tower, {CONNECTIONS} connections, {keys} keys"), &rows);
    }
}

/// Serves until the process is killed.
pub(super) async fn serve(server: &str, listener: TcpListener) {
    let rules = || TidegateLayer::from_rules(RULES).expect("good rules");
    match server {
        "tower-hyper" => hyper(listener, service_fn(hello)).await,
        "tower-hyper-headers" => hyper(listener, service_fn(hello_with_headers)).await,
        "tower-hyper-rules" => hyper(listener, rules().layer(service_fn(hello))).await,
        "tower-hyper-code" => {
            let limiter = Limiter::new(Limit::per_hour(4_000_000_000)).expect("a limit");
            let user = http::HeaderName::from_static("x-user");
            let layer = TidegateLayer::new(limiter, key::header(user));
            hyper(listener, layer.layer(service_fn(hello))).await;
        }
        "tower-axum" => axum(listener, router()).await,
        "tower-axum-rules" => axum(listener, router().layer(rules())).await,
        _ => panic!("there is no server {server}"),
    }
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from(BODY)))
}

async fn hello_with_headers(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let answer = Response::builder()
        .header("x-ratelimit-limit", "4000000000")
        .header("x-ratelimit-remaining", "3999999999")
        .header("x-ratelimit-reset", "1235")
        .header("ratelimit-policy", "\"bench.one\";q=4000000000;w=3600")
        .header("ratelimit", "\"bench.one\";r=3999999999;t=1235");
    Ok(answer.body(Full::from(BODY)).expect("an answer"))
}

fn router() -> Router {
    Router::new().route("/one", get(async || BODY))
}

async fn axum(listener: TcpListener, router: Router) {
    axum::serve(listener, router).await.expect("it serves");
}

async fn hyper<S, B>(listener: TcpListener, service: S)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
    B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
    B: Send + 'static,
{
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        let service = TowerToHyperService::new(service.clone());
        tokio::spawn(async move {
            let connection = auto::Builder::new(TokioExecutor::new());
            // A client that goes away is no mistake.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Sends requests that are admitted and waits for all answers.
pub(super) fn load(
    address: &str,
    keys: usize,
    requests: usize,
    cpu_seconds: impl Fn() -> f64,
) -> Measured {
    load_path(address, "/one", keys, requests, cpu_seconds)
}

fn load_path(
    address: &str,
    path: &'static str,
    keys: usize,
    requests: usize,
    cpu_seconds: impl Fn() -> f64,
) -> Measured {
    let each = requests / CONNECTIONS;
    load_by(address, requests, cpu_seconds, |stream, seed| ask(stream, path, seed, keys, each))
}

async fn ask(
    mut stream: TcpStream,
    path: &'static str,
    mut seed: u64,
    keys: usize,
    requests: usize,
) -> Vec<u64> {
    let wanted: &[u8] = if path == "/shut" { b"HTTP/1.1 429" } else { b"HTTP/1.1 200" };
    let mut latencies = Vec::with_capacity(requests);
    let mut answer = Vec::with_capacity(4096);
    for _ in 0..requests {
        let key = next(&mut seed) % keys as u64;
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-user: user{key:012}\r\n\r\n");
        let began = Instant::now();
        stream.write_all(request.as_bytes()).await.expect("it is written");
        read_answer(&mut stream, &mut answer).await;
        latencies.push(began.elapsed().as_nanos() as u64);
        assert!(answer.starts_with(wanted), "{}", String::from_utf8_lossy(&answer));
    }
    latencies
}
