//! A fleet on Redis: what a decision costs Redis and the service, how many round trips it takes, and
//! how much of either there is for several processes.
//!
//! CPU of Redis is that of its main thread as `INFO cpu` has it. Rivals take turns within each round.

mod script;
mod service;
mod wire;

use crate::service::Length;

/// Measures all of it, or one part.
pub(crate) fn run(length: Length, part: Option<&str>) {
    let is_wanted = |name: &str| part.is_none_or(|part| part == name);
    if is_wanted("script") {
        script::run(length);
    }
    if is_wanted("service") {
        service::run(length);
    }
    if is_wanted("processes") {
        service::processes(length);
    }
    if is_wanted("calls") {
        service::calls(length);
    }
}

/// The middle one, with the lowest and the highest.
fn middle(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    (at(values.len() / 2), at(0), at(values.len().saturating_sub(1)))
}
