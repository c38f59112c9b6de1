//! Exact rate limits for Rust programs.
//!
//! ```
//! use tidegate::{Limit, Limiter};
//!
//! // 5 requests per second with bursts of 10, for each user.
//! let limiter = Limiter::new(Limit::per_second(5).burst(10))?;
//!
//! let decision = limiter.check("user:42");
//! if decision.allowed {
//!     println!("go on, {} more right now", decision.remaining);
//! } else {
//!     println!("come back: {:?}", decision.retry);
//! }
//! # Ok::<(), tidegate::BuildError>(())
//! ```
//!
//! - **Any algorithm**: token bucket, leaky bucket as a meter and as a queue, fixed window (also by
//!   the calendar of a time zone), sliding window log and counter, GCRA, concurrency, warm-up. See
//!   [`Limit`].
//! - **Exact**: integers decide. Never more is admitted than the limit says, a refused request
//!   consumes nothing, [`Decision::retry`] is right to the nanosecond.
//! - **Several limits at once**, all or nothing: [`LimiterBuilder::limit`] as often as you like.
//! - **More than yes or no**: [`cost`](Request::cost), [`peek`](Limiter::peek),
//!   [`up_to`](Limiter::up_to), [`force`](Limiter::force), [`refund`](Limiter::refund),
//!   [`reserve`](Request::reserve) and settle, [`until_ready`](Request::until_ready) in fair order,
//!   [`acquire`](Request::acquire) for concurrency.
//! - **Bounded memory**: keys are dropped when they are spent, and there is a hard bound. See
//!   [`MemoryStore`].
//! - **Time is yours**: tests move a [`ManualClock`] to the nanosecond.
//!
//! - **Rules from files** in Lyft's format and beyond: `RuleLimiter`, with the feature `rules`; read
//!   and watched for changes with the feature `files`.
//!
//! What is not here: wire formats, listeners, metrics. [`Observer`] is where those who count
//! decisions hook in.

#[cfg(feature = "rules")]
mod admission;
mod anchor;
#[cfg(feature = "rules")]
mod armed;
mod calendar;
mod clock;
#[cfg(feature = "rules")]
mod exceptions;
#[cfg(feature = "rules")]
mod explain;
#[cfg(feature = "files")]
pub mod files;
#[cfg(feature = "rules")]
pub mod headers;
#[cfg(feature = "rules")]
mod held;
mod holder;
mod key;
mod limiter;
#[cfg(feature = "rules")]
pub mod lyft;
mod observer;
#[cfg(feature = "rules")]
mod plain;
#[cfg(feature = "rules")]
mod plan;
mod policy;
mod request;
mod reservation;
#[cfg(feature = "rules")]
mod rule_limiter;
#[cfg(feature = "rules")]
mod turn;
#[cfg(feature = "rules")]
mod verdict;
mod waiting;

#[cfg(feature = "rules")]
pub use admission::{Admission, Keep};
#[cfg(feature = "rules")]
pub use armed::RuleError;
#[cfg(all(feature = "rules", feature = "time-zones"))]
pub use armed::check_time_zone;
#[cfg(feature = "time-zones")]
pub use calendar::{Calendar, CalendarUnit, UnknownTimeZone};
pub use clock::{Clock, ManualClock, ManualSleep, SystemClock};
#[cfg(feature = "rules")]
pub use exceptions::{EXCEPTIONS_MAX, Excepted, Exception, ExceptionError, ExceptionKind};
#[cfg(feature = "rules")]
pub use explain::Explained;
#[cfg(feature = "rules")]
pub use held::Held;
#[cfg(feature = "rules")]
pub use holder::holder_named;
pub use key::{Each, Key};
pub use limiter::{Decisions, Limiter, LimiterBuilder};
pub use observer::{Event, Observer};
pub use policy::{BuildError, Limits};
pub use request::Request;
pub use reservation::{Permit, Reservation};
#[cfg(feature = "rules")]
pub use rule_limiter::{DESCRIPTORS_MAX, Modes, Query, RuleLimiter};
pub use tidegate_core::{
    AlgorithmName, Align, ColdStart, Compare, Decision, Inherit, Lease, Limit, LimitError,
    LimitSpec, Queue, Rate, Refill, Retry, SoftSpec, Source, Taken, Timestamp, Window, Windows,
    parse_duration,
};
/// Rules from files: see [`RuleLimiter`].
#[cfg(feature = "rules")]
pub use tidegate_rules as rules;
pub use tidegate_store::{
    Answer, Call, HeldPart, Holding, Item, LiveKey, LocalStore, MemoryBuilder, MemoryError,
    MemoryStats, MemoryStore, Mode, OnError, OnFull, Op, Outcome, RegisterError, Registered,
    Restored, SnapshotError, Store,
};
#[cfg(feature = "rules")]
pub use turn::{Going, HELD_MAX, InOrder, Turn};
#[cfg(feature = "rules")]
pub use verdict::{Answered, Verdict};
pub use waiting::WaitError;
