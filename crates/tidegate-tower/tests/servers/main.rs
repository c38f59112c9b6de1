//! The examples, asked by real clients over real connections.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

#[path = "../../examples/axum_server.rs"]
#[expect(dead_code, reason = "only its server is run here")]
mod axum_server;
#[path = "../../examples/hyper_server.rs"]
#[expect(dead_code, reason = "only its server is run here")]
mod hyper_server;
#[path = "../../examples/tonic_server.rs"]
#[expect(dead_code, reason = "only its server is run here")]
mod tonic_server;

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_proto::{RateLimitRequest, RateLimitServiceClient};
use tokio::net::{TcpListener, TcpStream};

/// Starts a server on a free port; it ends with the runtime of the test.
macro_rules! start {
    ($server:path) => {{
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            $server(listener).await.map_err(|error| error.to_string()).unwrap();
        });
        address
    }};
}

/// One connection of HTTP/1.1.
struct Client(http1::SendRequest<Empty<Bytes>>);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (sender, connection) = http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn send(&mut self, method: Method, path: &str) -> Response<Bytes> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let answer = self.0.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        let (parts, body) = answer.into_parts();
        Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
    }
}

/// A number of seconds that goes by while the test runs.
fn number(value: &http::HeaderValue) -> u64 {
    value.to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn axum_answers_two_and_refuses_the_third() {
    let mut client = Client::connect(start!(axum_server::serve)).await;
    let statuses = [
        client.send(Method::GET, "/v1/status").await,
        client.send(Method::GET, "/v1/status").await,
        client.send(Method::GET, "/v1/status").await,
    ];
    let told: Vec<_> = statuses
        .iter()
        .map(|answer| (answer.status().as_u16(), answer.headers()["x-ratelimit-remaining"].clone()))
        .collect();
    assert_eq!(told[..2], [(200, "1".parse().unwrap()), (200, "0".parse().unwrap())]);
    let [.., third] = statuses;
    assert_eq!(third.status(), 429);
    assert!((50..=60).contains(&number(&third.headers()["retry-after"])));
    assert_eq!(third.headers()["content-type"], "application/problem+json");
    assert!(third.body().starts_with(b"{\"type\":\"https://iana.org/"), "{:?}", third.body());

    // HEAD is told how long the body would be, and the connection goes on behind it.
    let head = client.send(Method::HEAD, "/v1/status").await;
    assert_eq!((head.status().as_u16(), head.body().len()), (429, 0));
    assert_eq!(head.headers()["content-length"], third.body().len().to_string());

    // Other paths have other limits, and some have none.
    for _ in 0..10 {
        assert_eq!(client.send(Method::POST, "/v1/accounts").await.status(), 200);
    }
    assert_eq!(client.send(Method::POST, "/v1/accounts").await.status(), 429);
    for _ in 0..5 {
        let health = client.send(Method::GET, "/healthz").await;
        assert_eq!((health.status().as_u16(), &health.body()[..]), (200, &b"ok\n"[..]));
        assert!(!health.headers().contains_key("ratelimit"));
    }
}

#[tokio::test]
async fn hyper_answers_bursts_and_then_refuses() {
    let address = start!(hyper_server::serve);
    let mut client = Client::connect(address).await;
    for left in ["2", "1", "0"] {
        let answer = client.send(Method::GET, "/").await;
        assert_eq!((answer.status().as_u16(), &answer.body()[..]), (200, &b"hello\n"[..]));
        assert_eq!(answer.headers()["x-ratelimit-remaining"], left);
    }
    // Another connection from the same address, and another version of HTTP.
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{address}/")).body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 429);
    let policy = "\"per address\";q=3;w=30, \"at once\";q=100;qu=\"concurrent-requests\"";
    assert_eq!(answer.headers()["ratelimit-policy"], policy);
    assert!(answer.into_body().collect().await.unwrap().to_bytes().ends_with(b"}"));
}

#[tokio::test]
async fn tonic_ends_refused_calls_with_resource_exhausted() {
    let address = start!(tonic_server::serve);
    let mut client = RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap();
    for left in ["1", "0"] {
        let answer = client.should_rate_limit(RateLimitRequest::default()).await.unwrap();
        assert_eq!(answer.metadata().get("x-ratelimit-remaining").unwrap(), left);
    }
    let status = client.should_rate_limit(RateLimitRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    let metadata = status.metadata().clone().into_headers();
    let wait = number(&metadata["retry-after"]);
    assert!((10..=30).contains(&wait), "{wait}");
    let message = format!("the limit `limit-0` of 2 is reached; try again in {wait} s");
    assert_eq!(status.message(), message);
    assert_eq!(metadata["ratelimit"], format!("\"limit-0\";r=0;t={wait}"));
    assert_eq!(status.metadata().get("ratelimit-policy").unwrap(), "\"limit-0\";q=2;w=60");
}
