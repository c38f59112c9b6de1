//! A limit for each user: 100 an hour, at most 10 of them at once.
//!
//! `cargo run -p tidegate --example quickstart`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use tidegate::{BuildError, Limit, Limiter};

pub(crate) fn main() -> Result<(), BuildError> {
    let limiter = Limiter::new(Limit::per_hour(100).burst(10))?;

    // A burst passes; then a unit comes back every 36 seconds.
    for request in 1..=12 {
        let decision = limiter.check("user:42");
        assert_eq!(decision.allowed, request <= 10);
        match decision.retry.after() {
            _ if decision.allowed => println!("{request}: yes, {} left", decision.remaining),
            Some(wait) => println!("{request}: no, come back in {wait:.0?}"),
            None => println!("{request}: no"),
        }
    }

    // Another user has a count of its own, and requests may cost more than one unit.
    let decision = limiter.on("user:43").cost(4).check();
    assert_eq!((decision.allowed, decision.remaining), (true, 6));
    println!("another user: {} left after a request that costs 4", decision.remaining);
    Ok(())
}
