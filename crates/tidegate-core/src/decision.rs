//! What the engine answers.

use core::time::Duration;

/// The answer to one request under one limit, or the summary of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may go on.
    pub allowed: bool,
    /// The largest cost that this limit can ever admit at once.
    pub limit: u64,
    /// The largest cost that would be admitted at this same instant, after this step.
    pub remaining: u64,
    /// When the same request would be admitted.
    pub retry: Retry,
    /// The least time until `remaining` equals `limit`, if nobody else comes; for a warm-up, which
    /// has no such level, until the key is cold again. `None` when it cannot be known: permits
    /// that are held without a lease.
    pub reset_after: Option<Duration>,
    /// How long the caller has to hold the request before it goes on; zero but for shapers.
    pub delay: Duration,
    /// Which limit speaks: its position among the limits that were asked.
    pub rule: u32,
    /// Where the answer came from.
    pub source: Source,
    /// True while the key lives on the allowance of a soft limit.
    pub soft: bool,
}

/// When a request that was refused would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It is admitted now.
    Now,
    /// After exactly this long, if nobody else comes: not one nanosecond earlier.
    After(Duration),
    /// Never: it costs more than the limit can hold.
    Never,
    /// Nobody can tell: somebody has to give back a permit first.
    Unknown,
}

impl Retry {
    /// The time to wait, where there is one: zero for [`Retry::Now`].
    ///
    /// ```
    /// use core::time::Duration;
    /// use tidegate_core::Retry;
    ///
    /// assert_eq!(Retry::Now.after(), Some(Duration::ZERO));
    /// assert_eq!(Retry::Never.after(), None);
    /// ```
    pub const fn after(self) -> Option<Duration> {
        match self {
            Self::Now => Some(Duration::ZERO),
            Self::After(wait) => Some(wait),
            Self::Never | Self::Unknown => None,
        }
    }

    /// How bad the news is: later is worse, not knowing is worse than any wait, never is worst.
    fn rank(self) -> (u8, Duration) {
        match self {
            Self::Now => (0, Duration::ZERO),
            Self::After(wait) => (1, wait),
            Self::Unknown => (2, Duration::ZERO),
            Self::Never => (3, Duration::ZERO),
        }
    }

    /// The later of two.
    ///
    /// ```
    /// use core::time::Duration;
    /// use tidegate_core::Retry;
    ///
    /// let second = Retry::After(Duration::from_secs(1));
    /// assert_eq!(second.max(Retry::Now), second);
    /// assert_eq!(second.max(Retry::Never), Retry::Never);
    /// ```
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }
}

/// Where an answer came from, so that operators can see a limiter that fails open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The store, exactly.
    #[default]
    Store,
    /// An earlier refusal that still holds.
    DenialCache,
    /// Units that this node holds on lease.
    Lease,
    /// No store was asked: it failed, or its bound on keys was reached.
    Fallback,
    /// A limit in shadow mode, which refuses nobody.
    Shadow,
}

impl Source {
    /// The name in metrics, logs and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenialCache => "denial_cache",
            Self::Lease => "lease",
            Self::Fallback => "fallback",
            Self::Shadow => "shadow",
        }
    }
}

impl Decision {
    /// A refusal or an admission made without asking any state.
    pub const fn without_state(allowed: bool, limit: u64) -> Self {
        Self {
            allowed,
            limit,
            remaining: 0,
            retry: if allowed { Retry::Now } else { Retry::Unknown },
            reset_after: None,
            delay: Duration::ZERO,
            rule: 0,
            source: Source::Fallback,
            soft: false,
        }
    }

    /// The word of a limit that was not asked, because another one is known to refuse the request
    /// ([`Source::DenialCache`]): it has nothing against it, and nobody knows what remains.
    ///
    /// ```
    /// use tidegate_core::{Decision, Source, join};
    ///
    /// let refusal =
    ///     Decision { remaining: 3, source: Source::DenialCache, ..Decision::without_state(false, 5) };
    /// let joined = join(false, [&Decision::unasked(10), &refusal]);
    /// assert_eq!(joined.map(|joined| joined.remaining), Some(3));
    /// ```
    pub const fn unasked(limit: u64) -> Self {
        Self { source: Source::DenialCache, ..Self::without_state(true, limit) }
    }

    /// Whether the limit [was not asked](Self::unasked): `remaining` says nothing then.
    #[inline]
    pub const fn is_unasked(&self) -> bool {
        self.allowed && matches!(self.source, Source::DenialCache)
    }
}

/// The decisions of several limits on one request, being joined into the one to act on.
///
/// Remaining is the least of those that were asked, retry the longest of those that refuse, reset
/// and delay the longest.
/// That retry is exact where waiting only helps, which is everywhere but with soft limits and
/// `initial`: there a limit may admit earlier and refuse again later.
///
/// `limit` and `rule` are those of the limit to report: the refusing one with the longest retry,
/// otherwise the one nearest to its end; the first of equals. Limits in shadow are passed over.
#[derive(Clone, Copy, Debug)]
pub struct Joint {
    joined: Decision,
    speaker: Speaker,
}

/// What is compared to find the limit to report.
#[derive(Clone, Copy, Debug)]
struct Speaker {
    allowed: bool,
    retry: Retry,
    remaining: u64,
    limit: u64,
}

impl Speaker {
    #[inline(always)]
    fn new(decision: &Decision) -> Self {
        let Decision { allowed, retry, remaining, limit, .. } = *decision;
        Self { allowed, retry, remaining, limit }
    }

    #[inline(always)]
    fn yields_to(&self, other: &Self) -> bool {
        match (self.allowed, other.allowed) {
            (true, false) => true,
            (false, true) => false,
            (false, false) => other.retry.rank() > self.retry.rank(),
            (true, true) => {
                is_nearer_to_its_end((other.remaining, other.limit), (self.remaining, self.limit))
            }
        }
    }
}

/// Whether the first has less remaining of its limit, in proportion, than the second.
#[inline(always)]
fn is_nearer_to_its_end((remaining, limit): (u64, u64), (other, other_limit): (u64, u64)) -> bool {
    u128::from(remaining) * u128::from(other_limit) < u128::from(other) * u128::from(limit)
}

/// [`Joint`] for requests that all limits admit, where there is less to compare.
#[derive(Clone, Copy, Debug)]
pub struct Admissions {
    remaining: u64,
    reset: u64,
    delay: u64,
    /// What remains of the limit to report, the limit, and which it is.
    speaker: (u64, u64, u32),
}

impl Admissions {
    /// Of no limits yet.
    #[inline(always)]
    pub fn new() -> Self {
        Self { remaining: u64::MAX, reset: 0, delay: 0, speaker: (1, 0, 0) }
    }

    /// One more, its times in nanoseconds.
    #[inline(always)]
    pub fn add(&mut self, rule: u32, limit: u64, remaining: u64, reset: u64, delay: u64) {
        self.remaining = self.remaining.min(remaining);
        self.reset = self.reset.max(reset);
        self.delay = self.delay.max(delay);
        let (least, of, _) = self.speaker;
        // The first one always is, since what was made up before it has infinitely much left.
        if of == 0 || is_nearer_to_its_end((remaining, limit), (least, of)) {
            self.speaker = (remaining, limit, rule);
        }
    }

    /// The whole.
    #[inline(always)]
    pub fn finish(self) -> Decision {
        Decision {
            allowed: true,
            limit: self.speaker.1,
            remaining: self.remaining,
            retry: Retry::Now,
            reset_after: Some(Duration::from_nanos(self.reset)),
            delay: Duration::from_nanos(self.delay),
            rule: self.speaker.2,
            source: Source::Store,
            soft: false,
        }
    }
}

impl Default for Admissions {
    fn default() -> Self {
        Self::new()
    }
}

impl Joint {
    /// The first decision.
    #[inline(always)]
    pub fn new(first: &Decision) -> Self {
        let mut joint = Self { joined: *first, speaker: Speaker::new(first) };
        if first.is_unasked() {
            joint.joined.remaining = u64::MAX;
        }
        joint
    }

    /// One more.
    #[inline(always)]
    pub fn add(&mut self, part: &Decision) {
        let joined = &mut self.joined;
        if !part.is_unasked() {
            joined.remaining = joined.remaining.min(part.remaining);
        }
        if part.retry != Retry::Now {
            joined.retry = joined.retry.max(part.retry);
        }
        // Not knowing one of them is not knowing the longest.
        joined.reset_after = joined.reset_after.zip(part.reset_after).map(|(a, b)| a.max(b));
        joined.delay = joined.delay.max(part.delay);
        joined.soft |= part.soft;
        if part.source != Source::Store {
            joined.source = part.source;
        }
        let other = Speaker::new(part);
        if self.speaker.yields_to(&other) {
            self.speaker = other;
            (joined.limit, joined.rule) = (part.limit, part.rule);
        }
    }

    /// The whole, given whether the request is admitted.
    #[inline(always)]
    pub fn finish(mut self, allowed: bool) -> Decision {
        self.joined.allowed = allowed;
        if allowed && !self.speaker.allowed {
            // A quota refuses while the request as a whole goes on.
            self.joined.retry = Retry::Now;
        } else if !allowed {
            self.joined.delay = Duration::ZERO;
        }
        self.joined
    }
}

/// Joins the decisions of several limits on one request: see [`Joint`]. `None` if there is nothing
/// to join, because all of them are in shadow.
pub fn join<'a>(
    allowed: bool,
    decisions: impl IntoIterator<Item = &'a Decision>,
) -> Option<Decision> {
    let mut parts = decisions.into_iter().filter(|part| part.source != Source::Shadow);
    let mut joint = Joint::new(parts.next()?);
    parts.for_each(|part| joint.add(part));
    Some(joint.finish(allowed))
}
