//! Limits before a tonic server: a call that is refused ends with `RESOURCE_EXHAUSTED`.
//!
//! `cargo run -p tidegate-tower --example tonic_server`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use tidegate::{Limit, Limiter};
use tidegate_proto::{
    RateLimitRequest, RateLimitResponse, RateLimitService, RateLimitServiceServer,
};
use tidegate_tower::{TidegateLayer, key};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::{Request, Response, Status};

/// Any service does; this one is at hand.
struct Answering;

#[tonic::async_trait]
impl RateLimitService for Answering {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(RateLimitResponse::default()))
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener).await
}

pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(Limit::per_minute(2))?;
    let layer = TidegateLayer::new(limiter, key::client_ip())
        .peer(|parts| Some(parts.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    Server::builder()
        .layer(layer)
        .add_service(RateLimitServiceServer::new(Answering))
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}
