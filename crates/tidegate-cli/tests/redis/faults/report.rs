//! What was seen of a fault: checked, and as a row of the table.

use std::time::Duration;

use super::Length;
use super::trial::{ASKS, Bound, Marks, Seen as Trial, TIGHT, TIGHT_LIMIT, breakers_opened};
use crate::load::{Event, Seen, Source};
use crate::services::Services;

/// The deadline of a command, if nobody says otherwise.
pub(super) const DEADLINE: Duration = Duration::from_millis(10);

/// What was seen.
pub(super) struct Report {
    pub(super) name: &'static str,
    length: Length,
    pub(super) events: Vec<Event>,
    pub(super) degraded: usize,
    /// From the beginning of the fault on, of those who waited while the machine ran.
    pub(super) longest: Duration,
    pub(super) p999: Duration,
    /// Of all, also those that the machine held up.
    p999_of_all: Duration,
    /// How many it held up, and for how long at the most.
    left_out: usize,
    stall: Duration,
    /// From the fault until the last service was seen with its breaker open.
    pub(super) opened_after: Option<Duration>,
    pub(super) opened: f64,
    /// From Redis being back until the last decision without it.
    pub(super) normal_after: Option<Duration>,
    /// How much more was admitted by the store than the limit, of the key with the most.
    pub(super) over: usize,
    pub(super) bound: usize,
}

impl Report {
    pub(super) fn new(
        name: &'static str,
        length: Length,
        marks: Marks,
        seen: Trial,
        services: &Services,
        bound: Bound,
    ) -> Self {
        let Trial { events, opened, stalls } = seen;
        let hurt = marks.hurt.expect("there was a fault");
        let after = || events.iter().filter(|event| event.answered() >= hurt);
        let all = sorted(after().map(|event| event.wait));
        let own = sorted(after().filter(|event| !stalls.touch(event)).map(|event| event.wait));
        let is_own = |event: &&Event| event.seen.is_degraded() && !stalls.touch(event);
        let last = events.iter().rev().find(is_own);
        let healed = marks.healed.unwrap_or(hurt);
        let normal_after = last.map(|event| event.answered().saturating_duration_since(healed));
        let opened_after = opened
            .iter()
            .map(|opened| opened.map(|opened| opened.saturating_duration_since(hurt)))
            .max()
            .flatten();
        let by_store = |ask: usize| {
            let is_one =
                |event: &&Event| event.ask == ask && event.seen == Seen::Allowed(Source::Store);
            events.iter().filter(is_one).count()
        };
        let over = (TIGHT..ASKS.len()).map(|ask| by_store(ask).saturating_sub(TIGHT_LIMIT)).max();
        Self {
            name,
            length,
            degraded: events.iter().filter(|event| event.seen.is_degraded()).count(),
            longest: share_of(&own, 1.0),
            p999: share_of(&own, 0.999),
            p999_of_all: share_of(&all, 0.999),
            left_out: all.len() - own.len(),
            stall: stalls.longest(),
            opened_after,
            opened: breakers_opened(services),
            normal_after,
            over: over.unwrap_or(0),
            bound: bound.losses * TIGHT_LIMIT,
            events,
        }
    }

    /// How many answers were so.
    pub(super) fn count(&self, is_so: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| is_so(event)).count()
    }

    /// What holds whatever happens to the store, and however slow a machine is.
    pub(super) fn check(self) -> Self {
        let failed = self.count(|event| matches!(event.seen, Seen::Failed(_)));
        assert_eq!(failed, 0, "{}: everybody gets an answer that says who decided", self.name);
        // `deny` admits nothing that the store did not.
        let of = |asks: [usize; 2], seen: Seen| {
            self.count(|event| asks.contains(&event.ask) && event.seen == seen)
        };
        assert_eq!(of([1, 4], Seen::Allowed(Source::Fallback)), 0, "{}: deny denies", self.name);
        assert_eq!(of([0, 3], Seen::Refused(Source::Fallback)), 0, "{}: allow allows", self.name);
        // `local` admits one limit more at the most, of all services together.
        let local = of([5, 5], Seen::Allowed(Source::Fallback));
        assert!(local <= TIGHT_LIMIT, "{}: local admitted {local}", self.name);
        assert!(self.over <= self.bound, "{}: {} over its limit", self.name, self.over);
        self
    }

    /// What is measured only where it means something.
    pub(super) fn check_times(self, opens: bool, normal: Duration) -> Self {
        if self.length.is_full() {
            let most = DEADLINE + Duration::from_millis(5);
            assert!(self.p999 <= most, "{}: {:?} at p99.9", self.name, self.p999);
            if opens {
                let opened = self.opened_after.expect("the breaker opens");
                assert!(opened <= Duration::from_millis(100), "{}: {opened:?}", self.name);
            }
            let took = self.normal_after.unwrap_or_default();
            assert!(took <= normal, "{}: normal after {took:?}", self.name);
        }
        self
    }

    /// The row of the table.
    pub(super) fn print(self) -> Self {
        let seen = |seen: Seen| self.count(|event| event.seen == seen);
        let time = |time: Option<Duration>| match time {
            Some(time) => format!("{:.0} ms", time.as_secs_f64() * 1e3),
            None => "-".to_owned(),
        };
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        println!(
            "| {} | {} | {} / {} | {} | {} / {} | {} | {} | {} | {} | {} | {} of {} | {} of all; {} held up, stalls up to {} |",
            self.name,
            self.events.len(),
            seen(Seen::Allowed(Source::Store)),
            seen(Seen::Refused(Source::Store)),
            seen(Seen::Refused(Source::DenialCache)),
            seen(Seen::Allowed(Source::Fallback)),
            seen(Seen::Refused(Source::Fallback)),
            self.count(|event| matches!(event.seen, Seen::Failed(_))),
            ms(self.p999),
            ms(self.longest),
            time(self.opened_after),
            time(self.normal_after),
            self.over,
            self.bound,
            ms(self.p999_of_all),
            self.left_out,
            ms(self.stall),
        );
        self
    }
}

fn sorted(waits: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut waits: Vec<Duration> = waits.collect();
    waits.sort_unstable();
    waits
}

fn share_of(waits: &[Duration], share: f64) -> Duration {
    waits.get((waits.len().saturating_sub(1) as f64 * share) as usize).copied().unwrap_or_default()
}
