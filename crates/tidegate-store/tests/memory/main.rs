//! The memory store: the suite of all stores, and what only this one promises.
#![allow(clippy::unwrap_used, reason = "tests say what they expect by unwrapping it")]

#[path = "../support/mod.rs"]
mod support;

mod bound;
mod clock;
mod flood;
mod forgetting;
mod holding;
mod limits;
mod quick;
mod suite;
