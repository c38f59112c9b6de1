//! Tests against real servers, each with its own.

mod resp;
mod single;
mod support;
