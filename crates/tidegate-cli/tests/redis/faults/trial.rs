//! Two services under load, and what is seen of them while something is done to their store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::machine::{Machine, Stalls};
use super::{Length, Report};
use crate::load::{Event, Load, Plan};
use crate::servers::wait_for;
use crate::services::{Services, body, metric};
use crate::support::serving::{Serving, http_on};

/// For each policy a limit that nobody reaches, and one that is reached soon.
pub(super) const RULES: &str = "
domain: faults
descriptors:
  - { key: allow, rate_limit: { requests_per_unit: 4000000000, unit: day, algorithm: token_bucket, on_store_error: allow } }
  - { key: deny, rate_limit: { requests_per_unit: 4000000000, unit: day, on_store_error: deny } }
  - { key: local, rate_limit: { requests_per_unit: 4000000000, unit: day, algorithm: gcra, on_store_error: local } }
  - { key: allow_tight, rate_limit: { requests_per_unit: 50, unit: day, algorithm: token_bucket, on_store_error: allow } }
  - { key: deny_tight, rate_limit: { requests_per_unit: 50, unit: day, algorithm: sliding_window_log, on_store_error: deny } }
  - { key: local_tight, rate_limit: { requests_per_unit: 50, unit: day, algorithm: gcra, on_store_error: local } }
  - { key: hourly, rate_limit: { requests_per_unit: 50, unit: hour, on_store_error: deny } }
";

/// What is asked for; the last three have the tight limit.
pub(super) const ASKS: [&str; 6] =
    ["allow", "deny", "local", "allow_tight", "deny_tight", "local_tight"];
pub(super) const TIGHT: usize = 3;
pub(super) const TIGHT_LIMIT: usize = 50;

const SERVICES: usize = 2;
const CLIENTS: usize = 60;

/// Flags for services whose store does not fail: that a machine is busy is no failure either.
pub(super) fn patience() -> &'static [&'static str] {
    if Length::wanted().is_full() { &[] } else { &["--store-timeout", "20s"] }
}

/// How much more than their limit keys may admit, when all that the store knew may be lost so many
/// times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) losses: usize,
}

/// Two services under load.
pub(super) struct Trial {
    pub(super) length: Length,
    pub(super) services: Services,
    load: Load,
    watches: Vec<Watch>,
    machine: Machine,
    marks: Marks,
}

/// What was seen of a trial.
pub(super) struct Seen {
    pub(super) events: Vec<Event>,
    /// When each service's breaker was first seen open.
    pub(super) opened: Vec<Option<Instant>>,
    pub(super) stalls: Stalls,
}

/// When what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// When the fault began.
    pub(super) hurt: Option<Instant>,
    /// When Redis was there again.
    pub(super) healed: Option<Instant>,
}

impl Trial {
    /// Starts services and clients, and waits until they are at it.
    pub(super) fn start(store: &str) -> Self {
        Self::with(store, &[])
    }

    pub(super) fn with(store: &str, flags: &[&str]) -> Self {
        let length = Length::wanted();
        let services = Services::start(SERVICES, store, RULES, flags);
        Self::of(services, length)
    }

    /// With services that are started already.
    pub(super) fn of(services: Services, length: Length) -> Self {
        for serving in &services.all {
            wait_for("the store is there", || is_by_the_store(serving).then_some(()));
            // Shares are those of as many as are known.
            let count = services.all.len() as f64;
            wait_for("each knows of the others", || {
                (metric(serving, "tidegate_store_nodes") == count).then_some(())
            });
        }
        let plan = Plan {
            services: services.addresses(),
            asks: ASKS.iter().map(|key| body("faults", &[(key, "k")], 1)).collect(),
            clients: CLIENTS,
            per_second: Some(length.per_second()),
            each: None,
        };
        let watches = services.all.iter().map(Watch::start).collect();
        let machine = Machine::watch();
        let load = Load::start(plan);
        load.wait_for_answers(length.answers());
        Self { length, services, load, watches, machine, marks: Marks::default() }
    }

    /// The fault begins now.
    pub(super) fn hurt(&mut self) {
        self.marks.hurt = Some(Instant::now());
    }

    /// Redis is there again now.
    pub(super) fn healed(&mut self) {
        self.marks.healed = Some(Instant::now());
    }

    /// Lets the clients go on for as long as a fault lasts.
    pub(super) fn last(&self) {
        let answers = self.length.per_second() * self.length.fault().as_millis() as u32 / 1000;
        self.load.wait_for_answers(u64::from(answers));
    }

    /// Waits until every service decides by its store again, and a while longer, and says what was
    /// seen.
    pub(super) fn end(mut self, name: &'static str, bound: Bound) -> Report {
        for serving in &self.services.all {
            wait_for("the store is there again", || is_by_the_store(serving).then_some(()));
        }
        self.load.wait_for_answers(self.length.answers());
        let events: Vec<Event> = self.load.stop();
        let opened = self.watches.drain(..).map(Watch::stop).collect();
        let seen = Seen { events, opened, stalls: self.machine.stop() };
        Report::new(name, self.length, self.marks, seen, &self.services, bound)
    }

    /// What is admitted for a key that nobody has seen before, from both services together.
    pub(super) fn rush(&self, key: &str, value: &str, each: usize) -> Vec<Event> {
        let plan = Plan {
            services: self.services.addresses(),
            asks: vec![body("faults", &[(key, value)], 1)],
            clients: 2 * SERVICES,
            per_second: None,
            each: Some(each),
        };
        Load::start(plan).finish()
    }
}

fn is_by_the_store(serving: &Serving) -> bool {
    let body = body("faults", &[("allow", "probe")], 1);
    let (_, answer) = serving.http("POST", "/v1/check", &body);
    answer.contains("\"source\":\"store\"")
}

/// Looks again and again whether the breaker is open.
struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Option<Instant>>,
}

impl Watch {
    fn start(serving: &Serving) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (told, address) = (Arc::clone(&stop), serving.address("http"));
        let thread = std::thread::spawn(move || {
            let mut opened = None;
            while !told.load(Ordering::SeqCst) {
                let stream = std::net::TcpStream::connect(&address).unwrap();
                let (_, text) = http_on(stream, "GET", "/metrics", "");
                let is_open = text.lines().any(|line| {
                    let value = line.strip_prefix("tidegate_breaker_open ");
                    value.is_some_and(|value| value.trim() != "0")
                });
                if is_open && opened.is_none() {
                    opened = Some(Instant::now());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            opened
        });
        Self { stop, thread }
    }

    /// When it was first seen open.
    fn stop(self) -> Option<Instant> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// How often breakers opened, of all services.
pub(super) fn breakers_opened(services: &Services) -> f64 {
    services.all.iter().map(|serving| metric(serving, "tidegate_breaker_opened_total")).sum()
}
