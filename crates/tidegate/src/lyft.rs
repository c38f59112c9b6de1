//! What Lyft's service tells of a decision: its counters and its headers.

use std::time::Duration;

use tidegate_core::Decision;

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

/// The three headers that Lyft's service adds, as names and values: the limit, what remains of it,
/// and in how many seconds it is whole again, at least one.
///
/// ```
/// use tidegate::{Limit, Limiter};
///
/// let limiter = Limiter::new(Limit::per_minute(10))?;
/// let headers = tidegate::lyft::headers(&limiter.check("key"));
/// assert_eq!(headers[0], ("RateLimit-Limit", "10".to_owned()));
/// assert_eq!(headers[1], ("RateLimit-Remaining", "9".to_owned()));
/// # Ok::<(), tidegate::BuildError>(())
/// ```
pub fn headers(decision: &Decision) -> [(&'static str, String); 3] {
    let reset = whole_seconds(decision.reset_after.unwrap_or_default());
    [
        ("RateLimit-Limit", decision.limit.to_string()),
        ("RateLimit-Remaining", decision.remaining.to_string()),
        ("RateLimit-Reset", reset.to_string()),
    ]
}

/// Rounded up, so that whoever waits so long does not come early.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0)).max(1)
}
