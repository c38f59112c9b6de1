//! Rate limits as a service: Envoy's protocol, HTTP and RESP around one engine.
//!
//! Each front end parses, asks the one [`Service`], and renders; none of them decides anything.
//! [`Server`] binds their listeners, tells when all of them accept, and drains them in the end.
//!
//! What is not here: flags, settings and where they come from, which is the command's business;
//! and arithmetic, which is the engine's.

mod address;
mod clock;
mod config;
mod drain;
mod exceptions;
mod front_end;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod grpc;
mod http;
mod lanes;
mod listen;
mod metrics;
mod resp;
mod rls;
mod server;
mod service;
mod soon;
mod stores;
mod tls;
mod unix;

pub use address::{Address, AddressError};
pub use clock::ServiceClock;
pub use config::{Config, HeaderNames, TlsFiles, threads_by_default};
pub use front_end::FrontEnd;
pub use gate::ServiceGate;
pub use metrics::{GatewayStats, UpstreamStats};
pub use server::{Bound, Server, StartError};
pub use service::{Limits, Service};
pub use stores::{AnyStore, StoreError};
pub use tls::{TlsError, server_config};
pub use unix::{SocketFile, bind_unix};
