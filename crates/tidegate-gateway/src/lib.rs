//! A reverse proxy that keeps rate limits.
//!
//! HTTP/1.1 and HTTP/2 in and out, TLS, WebSocket and other upgrades, gRPC; several upstreams with
//! pools and health; nothing is buffered. Each thread has a listener, its connections and its pools
//! to itself. Whether a request may go on is decided by a [`Gate`]: [`RuleGate`] keeps the limits of
//! rules, [`Open`] keeps none.
//!
//! ```no_run
//! use tidegate_gateway::{Gateway, GatewayConfig, Open};
//!
//! let gateway = Gateway::start(GatewayConfig::to("http://127.0.0.1:3000"), Open)?;
//! println!("listening at {}", gateway.address());
//! # Ok::<(), tidegate_gateway::GatewayError>(())
//! ```
//!
//! What is not here: flags and settings, which are the command's business; arithmetic, which is the
//! engine's; and who decides, whom proxies name and what clients are told of limits, which
//! `tidegate-http` has for everybody.

mod body;
mod config;
mod connection;
mod early;
mod fields;
mod forward;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod handover;
mod health;
mod log;
mod passing;
mod pool;
mod proxy_protocol;
mod respond;
mod scan;
mod seam;
mod socket;
mod stats;
mod streams;
mod tunnel;
mod upstream;
mod watch;
mod wire;
mod worker;

pub use config::{
    AccessLog, GatewayConfig, HealthCheck, LogTo, Patience, Route, TlsFiles, Upstream,
};
pub use gateway::{Gateway, GatewayError};
pub use stats::GatewayWatch;
pub use tidegate_http::{
    Answers, Asked, Asking, Forwarding, Gate, KeyGate, Open, RefusedBody, RuleGate, key,
};
pub use tidegate_server::Address;
pub use tidegate_server::{GatewayStats, UpstreamStats};
