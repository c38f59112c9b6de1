//! The arithmetic of tidegate: a decision is a pure function of a limit, what was remembered, the
//! time and a cost.
//!
//! No clock, no I/O, no locks, and no allocation but for the two states that are lists (the
//! sliding log and the holders of permits). Integers decide everything; durations in answers are
//! rounded up, to the favour of the limit, and only there.
//!
//! ```
//! use tidegate_core::{Action, Ask, Limit, Rate, Timestamp};
//!
//! // 5 per second with bursts of 10.
//! let limit = Limit::token_bucket(Rate::per_second(5)).burst(10).build()?;
//! let ask = Ask::at(Timestamp::from_secs(1_700_000_000));
//!
//! let mut state = None; // nothing is remembered of a key that was never seen
//! let admitted = limit.fits(state.as_ref(), &ask, 4);
//! let action = if admitted { Action::Take } else { Action::Refuse };
//! let decision = limit.settle(&mut state, &ask, 4, action);
//! assert_eq!((decision.allowed, decision.remaining), (true, 6));
//! # Ok::<(), tidegate_core::LimitError>(())
//! ```
//!
//! What is not here: who keeps the state (`tidegate-store`), what time it is and who is asking
//! (`tidegate`).

#![no_std]

extern crate alloc;

mod algorithm;
mod bucket;
mod build;
mod codec;
mod concurrency;
mod decision;
mod error;
mod fixed_window;
mod interval;
mod limit;
mod narrow;
mod rate;
mod reconfigure;
mod sliding_counter;
mod sliding_log;
mod spec;
mod state;
mod text;
mod time;
mod warm_up;
mod word;

pub use algorithm::{Action, Ask, Taken};
pub use bucket::NARROW_HORIZON;
pub use codec::WORDS_MAX;
pub use decision::{Admissions, Decision, Joint, Retry, Source, join};
pub use error::LimitError;
pub use limit::Limit;
pub use narrow::{Level, Narrow};
pub use rate::Rate;
pub use reconfigure::Inherit;
pub use spec::{
    AlgorithmName, Align, ColdStart, Compare, Lease, LimitSpec, Queue, Refill, SoftSpec,
};
pub use state::State;
pub use text::parse_duration;
pub use time::{Moment, Timestamp, Window, Windows};
