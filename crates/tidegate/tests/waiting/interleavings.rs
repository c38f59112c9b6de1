//! Whatever happens in whatever order: nobody gets more than the limit, nobody is forgotten.

use std::task::Poll;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate::{Limit, LimitSpec, ManualClock, MemoryStore, Permit, Rate, Timestamp};

use crate::{Clocked, Permitted, SECOND, Waited, Waiter, limiter};

const KEYS: [&str; 2] = ["user:42", "user:43"];
/// Much longer than any test lasts: nothing that lies so far ahead may be needed to go on.
const LONG: Duration = Duration::from_secs(1_000_000);

/// One thing that happens.
#[derive(Clone, Debug)]
enum Step {
    /// Somebody comes and waits, perhaps not for ever.
    Come { key: usize, cost: u64, within: Option<Duration> },
    /// Somebody takes without waiting.
    Check { key: usize },
    /// Those who were woken look, from the first or from the last.
    Look { backwards: bool },
    /// Somebody looks who was not woken.
    Disturb { nth: usize },
    /// Somebody leaves.
    Leave { nth: usize },
    /// Time passes.
    Pass(Duration),
    /// Time passes up to the next moment that somebody waits for.
    Skip,
    /// A permit comes back.
    Release { nth: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = |most: u64| (0..most).prop_map(Duration::from_millis);
    let come = (0..KEYS.len(), 1..=2_u64, prop::option::of(span(3000)));
    let step = prop_oneof![
        4 => come.prop_map(|(key, cost, within)| Step::Come { key, cost, within }),
        1 => (0..KEYS.len()).prop_map(|key| Step::Check { key }),
        3 => any::<bool>().prop_map(|backwards| Step::Look { backwards }),
        1 => any::<usize>().prop_map(|nth| Step::Disturb { nth }),
        2 => any::<usize>().prop_map(|nth| Step::Leave { nth }),
        2 => span(700).prop_map(Step::Pass),
        2 => Just(Step::Skip),
        2 => any::<usize>().prop_map(|nth| Step::Release { nth }),
    ];
    vec(step, 1..60)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() }
}

/// Somebody who waits, and for what.
struct Guest<'a, T> {
    key: usize,
    cost: u64,
    within: Option<Duration>,
    came: u64,
    waiter: Waiter<'a, Waited<T>>,
}

/// All who wait, in the order they came, and who was admitted so far.
struct House<'a, T> {
    clock: &'a ManualClock,
    guests: Vec<Guest<'a, T>>,
    came: u64,
    admitted: Vec<Admission>,
    /// What they were admitted to, until they give it back.
    taken: Vec<(Admission, T)>,
    /// Whether the head of a queue goes before everybody behind it.
    is_fair: bool,
}

#[derive(Clone, Copy, Debug)]
struct Admission {
    key: usize,
    cost: u64,
    at: Timestamp,
}

impl<'a, T> House<'a, T> {
    fn new(clock: &'a ManualClock, is_fair: bool) -> Self {
        Self {
            clock,
            guests: Vec::new(),
            came: 0,
            admitted: Vec::new(),
            taken: Vec::new(),
            is_fair,
        }
    }

    fn now(&self) -> Timestamp {
        tidegate::Clock::now(self.clock)
    }

    fn come(
        &mut self,
        (key, cost, within): (usize, u64, Option<Duration>),
        waiter: Waiter<'a, Waited<T>>,
    ) {
        self.came += 1;
        self.guests.push(Guest { key, cost, within, came: self.came, waiter });
        // A place in the queue is taken by the first poll.
        self.look(self.guests.len() - 1);
    }

    /// Polls a guest, and sees it off if that was all.
    fn look(&mut self, index: usize) {
        let Poll::Ready(waited) = self.guests[index].waiter.poll() else { return };
        let guest = self.guests.remove(index);
        match waited {
            Ok(taken) => {
                let ahead =
                    |other: &&Guest<'_, T>| other.key == guest.key && other.came < guest.came;
                let overtaken = self.guests.iter().find(ahead).map(|other| other.came);
                assert!(
                    !self.is_fair || overtaken.is_none(),
                    "number {} before {overtaken:?}",
                    guest.came
                );
                let admission = Admission { key: guest.key, cost: guest.cost, at: self.now() };
                self.admitted.push(admission);
                self.taken.push((admission, taken));
            }
            // Only who set a limit to its patience gives up.
            Err(error) => assert!(guest.within.is_some(), "{error}"),
        }
    }

    /// Lets everybody look who was woken, until nobody is.
    fn look_all(&mut self, backwards: bool) {
        loop {
            let mut called = self.guests.iter().enumerate().filter(|(_, g)| g.waiter.is_called());
            let next = if backwards { called.next_back() } else { called.next() };
            let Some((index, _)) = next else { return };
            self.look(index);
        }
    }

    /// Moves the clock to where somebody waits for; says whether there is such a moment.
    fn skip(&mut self) -> bool {
        let Some(moment) = self.clock.sleepers().1 else { return false };
        // Deadlines and leases that nobody is to reach.
        if moment.since(self.now()) >= LONG / 4 {
            return false;
        }
        self.clock.set(moment);
        true
    }

    /// The steps that are the same whatever is waited for.
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Look { backwards } => self.look_all(backwards),
            Step::Disturb { nth } if !self.guests.is_empty() => self.look(nth % self.guests.len()),
            Step::Leave { nth } if !self.guests.is_empty() => {
                drop(self.guests.remove(nth % self.guests.len()));
            }
            Step::Pass(span) => self.clock.advance(span),
            Step::Skip => {
                self.skip();
            }
            _ => {}
        }
    }
}

/// Limits, and whether they may have admitted what they did.
type Rated = (LimitSpec, fn(&[Admission]) -> bool);
/// One unit at four per second.
const QUARTER: Duration = Duration::from_millis(250);

const RATES: [Rated; 4] = [
    (Limit::per_second(4).burst(3), |taken| {
        spans(taken).all(|(span, units)| QUARTER * units.saturating_sub(3) <= span)
    }),
    (Limit::sliding_log(Rate::per_second(3)), |taken| {
        spans(taken).all(|(span, units)| span >= SECOND || units <= 3)
    }),
    (Limit::fixed_window(Rate::per_second(3)), |taken| {
        let second = |admission: &Admission| admission.at.as_nanos() / 1_000_000_000;
        let alike = |a: &Admission, b: &Admission| second(a) == second(b);
        taken.chunk_by(alike).all(|window| window.iter().map(|a| a.cost).sum::<u64>() <= 3)
    }),
    // Everybody leaves after the cost of all before it, or later if nobody looks: so from the start
    // on, all costs but the last one's have been waited for.
    (Limit::leaky_queue(Rate::per_second(4), 3), |taken| {
        let start = tidegate::Clock::now(&ManualClock::new());
        let mut units = 0;
        taken.iter().all(|admission| {
            units += admission.cost as u32;
            QUARTER * units.saturating_sub(2) <= admission.at.since(start)
        })
    }),
];

/// Every stretch from one admission to another: how long it took, and what was taken in it.
fn spans(taken: &[Admission]) -> impl Iterator<Item = (Duration, u32)> + '_ {
    (0..taken.len()).flat_map(move |first| {
        (first..taken.len()).map(move |last| {
            let units: u64 = taken[first..=last].iter().map(|admission| admission.cost).sum();
            (taken[last].at.since(taken[first].at), units as u32)
        })
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn nobody_gets_more_than_the_rate_and_nobody_is_forgotten(
        kind in 0..RATES.len(),
        steps in steps(),
    ) {
        let (limit, is_within) = RATES[kind];
        let (clock, limiter) = limiter(limit);
        let mut house = House::new(&clock, limit.queue.is_none());
        for step in &steps {
            match *step {
                Step::Come { key, cost, within } => {
                    let waiter = wait(&limiter, key, cost, within);
                    house.come((key, cost, within), waiter);
                }
                // What is taken past a shaper would have to be held by whoever takes it.
                Step::Check { key } if limit.queue.is_none() => {
                    if limiter.check(KEYS[key]).allowed {
                        house.admitted.push(Admission { key, cost: 1, at: limiter.now() });
                    }
                }
                _ => house.take(step),
            }
        }
        finish(&mut house, |_| false);
        prop_assert_eq!(limiter.waiters(), 0);
        prop_assert_eq!(clock.sleepers(), (0, None));
        for key in 0..KEYS.len() {
            let taken: Vec<Admission> =
                house.admitted.iter().copied().filter(|admission| admission.key == key).collect();
            prop_assert!(is_within(&taken), "{}: {:?}", limit, taken);
        }
    }

    #[test]
    fn nobody_gets_more_than_the_permits_and_nobody_is_forgotten(
        has_lease in any::<bool>(),
        steps in steps(),
    ) {
        // A lease that outlasts the test, or none: permits come back only from their holders.
        let limit = Limit::concurrency(2);
        let limit = if has_lease { limit.lease(LONG / 2) } else { limit.without_lease() };
        let (clock, limiter) = limiter(limit);
        let mut house: House<'_, Permit<MemoryStore, ManualClock>> = House::new(&clock, true);
        for step in &steps {
            match *step {
                Step::Come { key, cost, within } => {
                    house.come((key, cost, within), acquire(&limiter, key, cost, within));
                }
                Step::Release { nth } if !house.taken.is_empty() => {
                    drop(house.taken.swap_remove(nth % house.taken.len()));
                }
                _ => house.take(step),
            }
            for (key, name) in KEYS.iter().enumerate() {
                let of_key = house.taken.iter().filter(|(admission, _)| admission.key == key);
                let out: u64 = of_key.map(|(admission, _)| admission.cost).sum();
                prop_assert!(out <= 2, "{} permits out", out);
                prop_assert_eq!(limiter.peek(*name).remaining, 2 - out);
            }
        }
        finish(&mut house, |taken| taken.pop().is_some());
        prop_assert_eq!(limiter.waiters(), 0);
        house.taken.clear();
        for key in KEYS {
            prop_assert_eq!(limiter.peek(key).remaining, 2);
        }
    }
}

fn wait(limiter: &Clocked, key: usize, cost: u64, within: Option<Duration>) -> Waiter<'_, Waited> {
    let request = limiter.on(KEYS[key]).cost(cost);
    match within {
        Some(most) => Waiter::new(request.until_ready_within(most)),
        None => Waiter::new(request.until_ready()),
    }
}

fn acquire(
    limiter: &Clocked,
    key: usize,
    cost: u64,
    within: Option<Duration>,
) -> Waiter<'_, Permitted> {
    let most = within.unwrap_or(LONG);
    Waiter::new(limiter.on(KEYS[key]).cost(cost).acquire_within(most))
}

/// Polls only who is woken, moves the clock only to where somebody waits for, and gives back what
/// was taken when nothing else helps: everybody has to come to an end by that.
fn finish<T>(
    house: &mut House<'_, T>,
    mut give_back: impl FnMut(&mut Vec<(Admission, T)>) -> bool,
) {
    for _ in 0..10_000 {
        house.look_all(false);
        if house.guests.is_empty() {
            return;
        }
        let goes_on = house.skip() || give_back(&mut house.taken);
        assert!(goes_on, "{} wait for ever", house.guests.len());
    }
    panic!("{} are still waiting", house.guests.len());
}
