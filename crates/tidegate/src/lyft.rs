//! What Lyft's service tells of a decision: its counters and its headers.

use std::time::Duration;

use tidegate_core::{Decision, Retry};

use crate::verdict::{Answered, Verdict};

/// How a request shows in the counters of a rule. All are in units of cost, not in requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Beyond the limit.
    pub over: u64,
    /// Up to the limit, but above the part of it that counts as near.
    pub near: u64,
    /// All of an admitted request.
    pub within: u64,
}

impl Hits {
    /// Counts a request that met a limit of which `before` units were used.
    ///
    /// `near_ratio` is the part of the limit from which on units are near it, 0.8 if nobody says
    /// otherwise. It decides nothing but this.
    ///
    /// ```
    /// use tidegate::lyft::Hits;
    ///
    /// assert_eq!(Hits::count(8, 5, 2, 0.8), Hits { over: 0, near: 1, within: 2 });
    /// assert_eq!(Hits::count(10, 9, 3, 0.8), Hits { over: 2, near: 1, within: 0 });
    /// ```
    pub fn count(limit: u64, before: u64, hits: u64, near_ratio: f32) -> Self {
        // In the width of Lyft's, whose counters these are. Beyond 2^24 it is not exact there.
        let near_from = (limit as f32 * near_ratio).floor() as u64;
        let after = before.saturating_add(hits);
        if after <= limit {
            let near = after.saturating_sub(near_from.max(before));
            return Self { over: 0, near, within: hits };
        }
        if before >= limit {
            return Self { over: hits, near: 0, within: 0 };
        }
        Self { over: after - limit, near: limit - before.max(near_from), within: 0 }
    }
}

/// In how many whole seconds Lyft's answers say that there is more, at least one.
///
/// Of a fixed window that is its end, whatever was decided. Of any other limit it is when the same
/// request would be admitted if it was refused, and otherwise when all is as new. Where nobody can
/// know it is one second: ask again.
pub fn seconds_until_reset(verdict: &Verdict, answered: &Answered) -> u64 {
    whole_seconds(until_reset(verdict, answered).unwrap_or_default())
}

fn until_reset(verdict: &Verdict, answered: &Answered) -> Option<Duration> {
    let Decision { retry, reset_after, .. } = answered.decision;
    match (verdict.is_windowed(answered), retry) {
        // A window that has counted nothing has no state that could tell its end.
        (true, _) => {
            reset_after.filter(|it| !it.is_zero()).or_else(|| verdict.window_left(answered))
        }
        (false, Retry::After(wait)) => Some(wait),
        (false, Retry::Now | Retry::Never | Retry::Unknown) => reset_after,
    }
}

/// The values of the three headers that Lyft's service adds: the limit, what remains of it, and
/// [`seconds_until_reset`]. What they are called is a setting there.
pub fn headers(verdict: &Verdict, answered: &Answered) -> [u64; 3] {
    let Decision { limit, remaining, .. } = answered.decision;
    [limit, remaining, seconds_until_reset(verdict, answered)]
}

/// The seconds of a `Retry-After` for what was refused: rounded up, so that whoever waits so long
/// does not come early, and at least one. One also where nobody could be asked.
pub fn retry_after(verdict: &Verdict) -> Option<u64> {
    if verdict.is_unanswered() {
        return Some(1);
    }
    match verdict.decision?.retry {
        Retry::After(wait) => Some(whole_seconds(wait)),
        Retry::Now | Retry::Never | Retry::Unknown => None,
    }
}

/// Rounded up, and at least one.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)).max(1)
}
