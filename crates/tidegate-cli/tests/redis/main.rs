//! A fleet: several services on one Redis, or on a cluster, under many clients and under faults.
//!
//! `tools/faults` runs the faults for longer and prints what clients saw.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by unwrapping; some helpers are for one test only"
)]

#[path = "../support/mod.rs"]
mod support;

mod acl;
mod calls;
mod faults;
mod front;
mod load;
mod races;
mod servers;
mod services;
