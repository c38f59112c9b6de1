//! Tests against real servers, each with its own.

mod cluster;
mod resp;
mod sentinel;
mod single;
mod support;
mod tls;
