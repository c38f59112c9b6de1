//! Envoy's protocol, asked by real clients over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod answers;
mod corpus;
mod costs;
mod ending;
mod envoy;
mod headers;
mod health;
mod malformed;
mod python;
mod raw;
mod support;
mod tls;
