//! Faults for real, under load: what clients see, for how long, and when all is well again.
//!
//! Here each takes a moment, and what is checked does not depend on how fast the machine is.
//! `tools/faults [NAME]` runs the same for longer with a release build, measures times, and prints
//! a table.

mod clock;
mod failover;
mod machine;
mod report;
mod restart;
mod scripts;
mod slow;
mod trial;

use std::time::Duration;

use self::report::Report;
use self::trial::{Bound, Trial};

/// How long a trial takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Smoke,
    Full,
}

impl Length {
    pub(crate) fn wanted() -> Self {
        match std::env::var("TIDEGATE_FAULTS") {
            Ok(length) if length == "full" => Self::Full,
            Ok(other) => panic!("TIDEGATE_FAULTS is `{other}`, and may be `full`"),
            Err(_) => Self::Smoke,
        }
    }

    pub(crate) fn is_full(self) -> bool {
        self == Self::Full
    }

    /// How long a fault lasts.
    pub(crate) fn fault(self) -> Duration {
        if self.is_full() { Duration::from_secs(3) } else { Duration::from_millis(500) }
    }

    /// Requests in a second, of all clients together.
    fn per_second(self) -> u32 {
        if self.is_full() { 2_000 } else { 600 }
    }

    /// Answers that come before and after a fault.
    fn answers(self) -> u64 {
        if self.is_full() { 6_000 } else { 300 }
    }
}
