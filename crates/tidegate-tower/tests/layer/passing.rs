//! What nobody is asked about, and whom a request is from.

use std::net::{IpAddr, SocketAddr};

use http::{Method, Request};
use tidegate::Limit;
use tidegate_tower::{Forwarding, PeerAddr, TidegateLayer, key};

use crate::{Body, Counting, ask, get, limit, limiter};

#[tokio::test]
async fn chosen_requests_pass_uncounted() {
    let (layer, limiter, _clock) = limit(Limit::per_minute(1));
    let layer = layer
        .pass_preflight()
        .pass_path("/healthz")
        .pass_if(|asked| asked.parts.headers.contains_key("x-internal"));
    let preflight = || {
        let request = Request::builder().method(Method::OPTIONS).uri("/a");
        let request = request.header("origin", "https://a.example");
        request.header("access-control-request-method", "PUT").body(Body::default()).unwrap()
    };
    let internal = || Request::get("/a").header("x-internal", "1").body(Body::default()).unwrap();
    let service = Counting::new();
    for _ in 0..3 {
        for request in [preflight(), get("/healthz"), get("/healthz?a=b"), internal()] {
            let answer = ask(&layer, &service, request).await;
            assert_eq!((answer.status().as_u16(), answer.headers().len()), (200, 0));
        }
    }
    assert_eq!(limiter.peek(&()).remaining, 1);
    // An OPTIONS that is no preflight counts, and so does a path that only begins so.
    let options = Request::options("/a").body(Body::default()).unwrap();
    assert_eq!(ask(&layer, &service, options).await.status(), 200);
    assert_eq!(ask(&layer, &service, get("/healthz/x")).await.status(), 429);
}

fn from(peer: &str, forwarded: Option<&str>) -> Request<Body> {
    let mut request = get("/");
    request.extensions_mut().insert(PeerAddr(peer.parse::<IpAddr>().unwrap()));
    if let Some(forwarded) = forwarded {
        request.headers_mut().insert("x-forwarded-for", forwarded.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn strangers_cannot_choose_whom_they_are_counted_as() {
    let (limiter, _clock) = limiter(Limit::per_minute(1));
    let layer = TidegateLayer::new(limiter, key::client_ip());
    let layer = layer.trust(["10.0.0.0/8"], Forwarding::XForwardedFor).unwrap();
    let service = Counting::new();
    for (peer, forwarded, status) in [
        ("192.0.2.7", None, 200),
        ("192.0.2.7", Some("198.51.100.1"), 429),
        ("::ffff:192.0.2.7", None, 429),
        ("10.1.1.1", Some("198.51.100.1"), 200),
        ("10.1.1.1", Some("203.0.113.5, 198.51.100.1"), 429),
        ("10.1.1.1", Some("2001:db8::1"), 200),
        ("10.1.1.1", Some("2001:db8::2"), 429),
    ] {
        let answer = ask(&layer, &service, from(peer, forwarded)).await;
        assert_eq!(answer.status(), status, "{peer} {forwarded:?}");
    }
}

#[tokio::test]
async fn the_peer_is_found_in_the_extensions() {
    let (limiter, _clock) = limiter(Limit::per_minute(1));
    let layer = TidegateLayer::new(limiter, key::client_ip()).deny_missing();
    let service = Counting::new();
    assert_eq!(ask(&layer, &service, get("/")).await.status(), 429, "nobody knows who it is");
    let mut request = get("/");
    request.extensions_mut().insert("192.0.2.7:4711".parse::<SocketAddr>().unwrap());
    assert_eq!(ask(&layer, &service, request).await.status(), 200);

    let layer = layer.peer(|parts| parts.headers.get("x-peer")?.to_str().ok()?.parse().ok());
    let request = || Request::get("/").header("x-peer", "192.0.2.8").body(Body::default()).unwrap();
    assert_eq!(ask(&layer, &service, request()).await.status(), 200);
    assert_eq!(ask(&layer, &service, request()).await.status(), 429);
}
