//! Limits that are built in the program, before a plain hyper server.
//!
//! `cargo run -p tidegate-tower --example hyper_server`, then `curl -i http://127.0.0.1:3000/` a few
//! times.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tidegate::{Limit, Limiter};
use tidegate_tower::{PeerAddr, TidegateLayer, key};
use tokio::net::TcpListener;
use tower::{Layer as _, service_fn};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener).await
}

pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    // Bursts of 3 and one more every ten seconds, for each address; and 100 at once in all of them.
    let limiter = Limiter::builder()
        .named("per address", Limit::per_minute(6).burst(3))
        .named("at once", Limit::concurrency(100))
        .build()?;
    let layer = TidegateLayer::new(limiter, |asked| {
        Some(tidegate::Each((key::client_ip()(asked)?, "everybody")))
    });
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = layer.layer(service_fn(hello));
        // The layer finds the address among the extensions of the request.
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddr(peer.ip()));
            tower::ServiceExt::oneshot(service.clone(), request)
        });
        tokio::spawn(async move {
            let connection = auto::Builder::new(TokioExecutor::new());
            let service = TowerToHyperService::new(service);
            // A client that goes away is no mistake of ours.
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}
