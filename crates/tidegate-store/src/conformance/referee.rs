//! A store and the oracle, asked the same questions side by side.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Decision, Inherit, LimitSpec, Retry, Taken, Timestamp};

use super::oracle::Oracle;
use crate::registry::Registered;
use crate::store::{Answer, Call, Item, Op, Outcome, Store};

/// When cases begin: the start of a week, a day and an hour as the engine counts them from the
/// epoch, so that the ends of windows are round numbers.
pub(super) const START: Timestamp = Timestamp::from_secs(2811 * 7 * 86_400);

/// Milliseconds, the unit that most cases think in.
pub(super) const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Seconds.
pub(super) const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A duration in whole microseconds, rounded up: the unit that all stores can tell.
pub(super) fn whole_us(span: Duration) -> Duration {
    Duration::from_micros(u64::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX))
}

/// One microsecond.
pub(super) const MICROSECOND: Duration = Duration::from_micros(1);

/// One case: the store under test, the oracle beside it, and how far the case has come.
pub(super) struct Referee<'a, S> {
    store: &'a S,
    pub(super) oracle: Oracle,
    case: String,
    step: usize,
}

/// What was taken, as the store and as the oracle wrote it down: a mark is the store's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taking {
    pub(super) store: Taken,
    oracle: Taken,
}

/// An answer of the store that the oracle agrees with.
pub(super) struct Reply {
    place: String,
    pub(super) outcome: Outcome,
    pub(super) decisions: Vec<Decision>,
    pub(super) takings: Vec<Taking>,
}

impl<'a, S: Store> Referee<'a, S> {
    pub(super) fn new(store: &'a S, case: impl Into<String>) -> Self {
        Self { store, oracle: Oracle::default(), case: case.into(), step: 0 }
    }

    /// A key that no other case uses.
    pub(super) fn key(&self, name: impl std::fmt::Display) -> Vec<u8> {
        format!("{}:{name}", self.case).into_bytes()
    }

    /// An id that no other case uses.
    pub(super) fn id(&self, number: u64) -> u128 {
        // FNV-1a over the name of the case.
        let hash = self.case.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        u128::from(hash) << 64 | u128::from(number)
    }

    /// A limit that no other case uses.
    pub(super) fn limit(&self, name: &str, spec: LimitSpec) -> Arc<Registered> {
        self.change(name, spec, Inherit::Used)
    }

    /// The same name with other numbers.
    pub(super) fn change(&self, name: &str, spec: LimitSpec, inherit: Inherit) -> Arc<Registered> {
        let limit = spec.build().expect("the suite's limits can be built");
        let id = format!("{}/{name}", self.case);
        let registered = self.store.register(&id, limit.clone(), inherit);
        let registered = registered.unwrap_or_else(|error| panic!("{}: {error}", self.place()));
        self.agree("the handle's id", &registered.id(), &id.as_str());
        self.agree("the handle's limit", registered.limit(), &limit);
        registered
    }

    /// Asks both, compares everything they say, and gives what the store said.
    pub(super) async fn apply(&mut self, call: &Call<'_>) -> Reply {
        let expected = self.oracle.apply(call);
        self.ask(call, expected).await
    }

    pub(super) async fn check(&mut self, items: &[Item<'_>], cost: u64, now: Timestamp) -> Reply {
        self.apply(&Call::new(Op::Check, items, cost, now)).await
    }

    pub(super) async fn peek(&mut self, items: &[Item<'_>], cost: u64, now: Timestamp) -> Reply {
        self.apply(&Call::new(Op::Peek, items, cost, now)).await
    }

    /// Gives takings back, to each its own.
    pub(super) async fn give_back(
        &mut self,
        items: &[Item<'_>],
        takings: &[Taking],
        now: Timestamp,
    ) -> Reply {
        let of_oracle: Vec<Taken> = takings.iter().map(|taking| taking.oracle).collect();
        let of_store: Vec<Taken> = takings.iter().map(|taking| taking.store).collect();
        let expected = self.oracle.apply(&Call::new(Op::GiveBack(&of_oracle), items, 0, now));
        self.ask(&Call::new(Op::GiveBack(&of_store), items, 0, now), expected).await
    }

    pub(super) async fn reserve(&mut self, call: &Call<'_>, id: u128, ttl: Duration) -> Reply {
        self.step += 1;
        let expected = self.oracle.reserve(call, id, ttl);
        let mut answers = vec![Answer::default(); call.items.len()];
        let found = self.store.reserve(call, &mut answers, id, ttl).await;
        self.compare(call, "reserve", found, answers, expected)
    }

    pub(super) async fn settle(&mut self, id: u128, cost: u64, now: Timestamp) -> bool {
        self.step += 1;
        let expected = self.oracle.settle(id, cost, now);
        let found = self.store.settle(id, cost, now).await;
        let found = found.unwrap_or_else(|error| self.cannot_answer(&error));
        let what = format!("whether there was something to settle at cost {cost}, {now}");
        self.agree(&what, &found, &expected);
        found
    }

    pub(super) async fn settles(&mut self, id: u128, cost: u64, now: Timestamp, expected: bool) {
        let found = self.settle(id, cost, now).await;
        self.agree("settled", &found, &expected);
    }

    /// Says that something has to be so.
    pub(super) fn agree<T: PartialEq + Debug + ?Sized>(&self, what: &str, found: &T, expected: &T) {
        agree(&self.place(), what, found, expected);
    }

    async fn ask(&mut self, call: &Call<'_>, expected: (Outcome, Vec<Answer>)) -> Reply {
        self.step += 1;
        let mut answers = vec![Answer::default(); call.items.len()];
        let found = self.store.apply(call, &mut answers).await;
        self.compare(call, "apply", found, answers, expected)
    }

    fn compare(
        &self,
        call: &Call<'_>,
        method: &str,
        found: Result<Outcome, S::Error>,
        answers: Vec<Answer>,
        (expected_outcome, expected_answers): (Outcome, Vec<Answer>),
    ) -> Reply {
        let outcome = found.unwrap_or_else(|error| self.cannot_answer(&error));
        let asked = describe(method, call);
        for (index, (found, expected)) in answers.iter().zip(&expected_answers).enumerate() {
            let what = format!("decision {index} of {asked}");
            self.agree(&what, &found.decision, &expected.decision);
            let what = format!("units taken by item {index} of {asked}");
            self.agree(&what, &found.taken.cost, &expected.taken.cost);
        }
        self.agree(&format!("outcome of {asked}"), &outcome, &expected_outcome);
        let takings = answers.iter().zip(&expected_answers);
        let takings = takings.map(|(a, b)| Taking { store: a.taken, oracle: b.taken }).collect();
        let decisions = answers.iter().map(|answer| answer.decision).collect();
        Reply { place: self.place(), outcome, decisions, takings }
    }

    fn place(&self) -> String {
        format!("conformance case `{}`, step {}", self.case, self.step)
    }

    fn cannot_answer(&self, error: &S::Error) -> ! {
        panic!("{}: the store could not answer: {error}", self.place())
    }
}

/// What the definition says, as opposed to what the oracle works out.
impl Reply {
    pub(super) fn admitted(self) -> Self {
        agree(&self.place, "admitted", &self.outcome.allowed, &true);
        self
    }

    pub(super) fn refused(self) -> Self {
        agree(&self.place, "admitted", &self.outcome.allowed, &false);
        self
    }

    pub(super) fn granted(self, expected: u64) -> Self {
        agree(&self.place, "granted", &self.outcome.granted, &expected);
        self
    }

    /// What each limit says by itself.
    pub(super) fn opinions(self, expected: &[bool]) -> Self {
        let found: Vec<bool> = self.decisions.iter().map(|decision| decision.allowed).collect();
        agree(&self.place, "allowed by each limit", &*found, expected);
        self
    }

    pub(super) fn remaining(self, expected: &[u64]) -> Self {
        let found: Vec<u64> = self.decisions.iter().map(|decision| decision.remaining).collect();
        agree(&self.place, "remaining", &*found, expected);
        self
    }

    pub(super) fn retry(self, expected: &[Retry]) -> Self {
        let found: Vec<Retry> = self.decisions.iter().map(|decision| decision.retry).collect();
        agree(&self.place, "retry", &*found, expected);
        self
    }
}

fn agree<T: PartialEq + Debug + ?Sized>(place: &str, what: &str, found: &T, expected: &T) {
    assert!(found == expected, "{place}: {what}\n   found: {found:?}\nexpected: {expected:?}");
}

fn describe(method: &str, call: &Call<'_>) -> String {
    let items = call.items.iter().map(|item| {
        let key = String::from_utf8_lossy(item.key);
        format!("\n    key `{key}` under {:?}, {:?} x {}", item.limit, item.mode, item.factor)
    });
    format!(
        "{method} {:?} of cost {} at {} by {}, asking{}\n",
        call.op,
        call.cost,
        call.now,
        call.holder,
        items.collect::<String>()
    )
}
