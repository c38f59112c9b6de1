//! RESP over real connections: commands, both versions of the protocol, and everything that can go
//! wrong on the way.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects by unwrapping")]

mod abuse;
mod commands;
mod connections;
mod draining;
mod page;
mod support;
mod throttling;
mod tls;
mod tools;
