//! Exact rate limits as a [tower](https://docs.rs/tower) layer, for axum, hyper and tonic.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use tidegate_tower::TidegateLayer;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let app = Router::new()
//!         .route("/", get(async || "hello"))
//!         .layer(TidegateLayer::from_rules_file("rules.yaml")?);
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//!     Ok(axum::serve(listener, app).await?)
//! }
//! ```
//!
//! - **The same rules file** as the service and the gateway: [`TidegateLayer::from_rules_file`]. Or
//!   limits that are [built in the program](TidegateLayer::new), for any [key] of a request.
//! - **Clients are told**: 429 with `Retry-After`, `X-RateLimit-*`, the IETF's `RateLimit` and
//!   `RateLimit-Policy` and a problem as JSON; the same headers on answers that are admitted, merged
//!   with what the service says itself. gRPC clients get `RESOURCE_EXHAUSTED`.
//! - **Refused requests never reach the service** and consume nothing.
//! - **More than yes and no**: limits that shape hold a request until its turn, in order for each key;
//!   permits of concurrency limits are held until the answer has been sent or given up; what a request
//!   costs may be [said](TidegateLayer::cost_from) or [taken back](TidegateLayer::refund_if) by the
//!   answer.
//! - **Little overhead**: no task, no box and no lock across `.await`; with counters in memory the
//!   decision is made when the request arrives. Nothing here needs a particular runtime.
//!
//! Every answer type of a service will do whose body is made of `Bytes`. The layer has to stand where
//! it sees the whole path: `Router::layer` does, a layer within `Router::nest` sees what is left of it.
//!
//! What is not here: connecting, TLS, forwarding (that is the gateway), authentication.

mod body;
mod ending;
mod layer;
mod peer;
mod service;
mod settings;

/// The programs of the documentation compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tower.md")]
struct Documentation;

pub use body::LimitBody;
pub use layer::{RulesError, TidegateLayer};
pub use peer::PeerAddr;
pub use service::{ResponseFuture, TidegateService};
pub use tidegate_http::{
    Answers, Asked, Asking, Forwarding, Gate, KeyGate, NoNetwork, RuleGate, key,
};
