//! The memory store: the suite of all stores, and what only this one promises.

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
