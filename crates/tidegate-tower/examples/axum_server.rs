//! Limits from a rules file before an axum router.
//!
//! `cargo run -p tidegate-tower --example axum_server`, then `curl -i http://127.0.0.1:3000/v1/status`
//! three times within a minute.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use tidegate_tower::TidegateLayer;
use tokio::net::TcpListener;

const RULES: &str = r#"
domain: shop
http:
  - { match: { path: /v1/status }, descriptors: [ { server: status } ] }
  - { match: { method: POST, path: /v1/accounts }, descriptors: [ { accounts: "${client_ip}" } ] }
descriptors:
  # The third request of a minute gets 429.
  - { key: server, value: status, rate_limit: { requests_per_unit: 2, unit: minute, align: first_request } }
  # One address makes at most 10 accounts a day.
  - { key: accounts, rate_limit: { requests_per_unit: 10, unit: day } }
"#;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}", listener.local_addr()?);
    serve(listener).await
}

pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let layer = TidegateLayer::from_rules(RULES)?
        .peer(|parts| Some(parts.extensions.get::<ConnectInfo<SocketAddr>>()?.0.ip()))
        .pass_preflight()
        .pass_path("/healthz");
    let app = Router::new()
        .route("/v1/status", get(async || "all is well\n"))
        .route("/v1/accounts", post(async || "welcome\n"))
        .route("/healthz", get(async || "ok\n"))
        .layer(layer);
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
