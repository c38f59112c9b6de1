//! The gateway, with real clients before it and real servers behind it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::panic, reason = "a test that cannot go on has failed")]

mod curl;
mod dying;
mod forwarding;
mod frames;
mod grpc;
mod headers;
mod http2;
mod informational;
mod limiting;
mod malformed;
mod nghttp;
mod operation;
mod ordering;
mod reuse;
mod secure;
mod slow;
mod smuggling;
mod stores;
mod support;
mod unix;
mod upgrades;
mod waiting;
mod websocket;
mod worked_examples;
