//! Sends traffic through the real limiter, by a clock moved by hand, and notes what became of it.

use std::error::Error;
use std::time::Duration;

use tidegate::{LimitSpec, Limiter, ManualClock, MemoryStore, Timestamp};

/// Milliseconds since the picture's left edge.
pub(crate) type Millis = u64;

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Went on at once.
    Admitted,
    /// Went on at once, above the limit, by a soft limit's allowance.
    Soft,
    /// Was held, and went on then.
    Delayed { until_us: u64 },
    /// Was refused.
    Refused,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Millis,
    pub(crate) outcome: Outcome,
}

impl Event {
    /// When it went on, in microseconds, if it did.
    pub(crate) fn went_us(&self) -> Option<u64> {
        match self.outcome {
            Outcome::Admitted | Outcome::Soft => Some(self.at * 1000),
            Outcome::Delayed { until_us } => Some(until_us),
            Outcome::Refused => None,
        }
    }
}

/// The left edge of every picture: a moment at which windows of a second begin.
const START: Timestamp = Timestamp::from_secs(1_700_000_000);
const KEY: &str = "user:42";

type Clocked = Limiter<MemoryStore, ManualClock>;

fn limiter(limit: &str, clock: &ManualClock) -> Result<Clocked, Box<dyn Error>> {
    let limit: LimitSpec = limit.parse()?;
    Ok(Limiter::builder().limit(limit).clock(clock.clone()).build()?)
}

fn moment(at: Millis) -> Timestamp {
    START + Duration::from_millis(at)
}

/// What a limit, written as text, makes of requests that come at these moments, in order.
pub(crate) fn drive(limit: &str, arrivals: &[Millis]) -> Result<Vec<Event>, Box<dyn Error>> {
    let clock = ManualClock::at(START);
    let limiter = limiter(limit, &clock)?;
    let decide = |at: &Millis| {
        clock.set(moment(*at));
        let decision = limiter.check(KEY);
        let outcome = match (decision.allowed, decision.delay.as_micros()) {
            (false, _) => Outcome::Refused,
            (true, 0) if decision.soft => Outcome::Soft,
            (true, 0) => Outcome::Admitted,
            (true, delay) => {
                let delay = u64::try_from(delay).unwrap_or(u64::MAX);
                Outcome::Delayed { until_us: (at * 1000).saturating_add(delay) }
            }
        };
        Event { at: *at, outcome }
    };
    Ok(arrivals.iter().map(decide).collect())
}

/// What remains of a limit every `step` while the requests come: for a bucket, its tokens.
pub(crate) fn remaining(
    limit: &str,
    arrivals: &[Millis],
    (step, end): (Millis, Millis),
) -> Result<Vec<(Millis, u64)>, Box<dyn Error>> {
    let clock = ManualClock::at(START);
    let limiter = limiter(limit, &clock)?;
    let mut arrivals = arrivals.iter().peekable();
    let mut levels = Vec::new();
    let mut now = 0;
    while now <= end {
        while let Some(at) = arrivals.next_if(|at| **at <= now) {
            clock.set(moment(*at));
            let _ = limiter.check(KEY);
        }
        clock.set(moment(now));
        levels.push((now, limiter.peek(KEY).remaining));
        now += step;
    }
    Ok(levels)
}

/// What a concurrency limit makes of requests that come at a moment and are busy for a while.
pub(crate) fn hold(
    limit: &str,
    requests: &[(Millis, Millis)],
) -> Result<Vec<Event>, Box<dyn Error>> {
    let clock = ManualClock::at(START);
    let limiter = limiter(limit, &clock)?;
    let mut held = Vec::new();
    let mut events = Vec::new();
    for (at, busy) in requests.iter().copied() {
        // What is done by now gives its permit back, each at its own moment.
        held.sort_by_key(|(done, _)| *done);
        while held.first().is_some_and(|(done, _)| *done <= at) {
            let (done, permit) = held.remove(0);
            clock.set(moment(done));
            drop(permit);
        }
        clock.set(moment(at));
        let outcome = match limiter.on(KEY).acquire() {
            Ok(permit) => {
                held.push((at + busy, permit));
                Outcome::Admitted
            }
            Err(_) => Outcome::Refused,
        };
        events.push(Event { at, outcome });
    }
    Ok(events)
}

/// The most requests that went on within any `window`; one exactly so old is out of it.
pub(crate) fn most_within(events: &[Event], window: Millis) -> usize {
    let went = went(events);
    let counts = went.iter().map(|end| in_window(&went, *end, window));
    counts.max().unwrap_or(0)
}

/// How many went on in the `window` before each `step`.
pub(crate) fn rolling(
    events: &[Event],
    window: Millis,
    (step, end): (Millis, Millis),
) -> Vec<(Millis, u64)> {
    let went = went(events);
    let mut counts = Vec::new();
    let mut now = 0;
    while now <= end {
        counts.push((now, in_window(&went, now * 1000, window) as u64));
        now += step;
    }
    counts
}

fn went(events: &[Event]) -> Vec<u64> {
    events.iter().filter_map(Event::went_us).collect()
}

fn in_window(went: &[u64], end_us: u64, window: Millis) -> usize {
    went.iter().filter(|at| **at <= end_us && **at + window * 1000 > end_us).count()
}

/// The windows that a fixed window counted in, as its own answers tell.
pub(crate) fn windows(
    limit: &str,
    arrivals: &[Millis],
    length: Millis,
) -> Result<Vec<(Millis, Millis)>, Box<dyn Error>> {
    let clock = ManualClock::at(START);
    let limiter = limiter(limit, &clock)?;
    let mut windows = Vec::new();
    for at in arrivals {
        clock.set(moment(*at));
        let reset = limiter.check(KEY).reset_after.unwrap_or_default();
        let end = at + u64::try_from(reset.as_millis())?;
        windows.push((end - length, end));
    }
    windows.dedup();
    Ok(windows)
}
