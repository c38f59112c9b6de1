//! A gate that keeps the limits of rules.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};
use tidegate::rules::{HttpRequest, Mapped};
use tidegate::{
    Clock, LocalStore, MemoryStore, Op, Query, Retry, RuleLimiter, SystemClock, Verdict,
};

use crate::gate::{Gate, Pass, Ruling};
use crate::queue::{Queue, Ticket};

/// How long a reservation is kept for an answer to settle it.
const RESERVED_FOR: Duration = Duration::from_secs(600);
/// How many requests wait for their slots at the most, over all keys.
const WAITING_MAX: usize = 10_000;

thread_local! {
    static MAPPED: RefCell<Mapped> = RefCell::new(Mapped::new());
}

/// A gate that keeps the limits of a domain.
#[derive(Debug)]
pub struct Limits<S = MemoryStore, C: Clock = SystemClock> {
    limiter: RuleLimiter<S, C>,
    domain: Arc<str>,
    settling: Option<Arc<Settling>>,
    queue: Arc<Queue>,
}

/// What upstreams' answers change of what was counted.
#[derive(Clone, Debug, Default)]
pub struct Settling {
    /// The header of an answer that tells what it has cost.
    pub cost_header: Option<HeaderName>,
    /// What is reserved until that is known.
    pub reserve: u64,
    /// The statuses that are not counted at all, as first and last of a range.
    pub free_statuses: Vec<(u16, u16)>,
}

impl<S, C: Clock> Clone for Limits<S, C> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            domain: Arc::clone(&self.domain),
            settling: self.settling.clone(),
            queue: Arc::clone(&self.queue),
        }
    }
}

impl<S, C: Clock> Limits<S, C> {
    /// The limits of a domain.
    pub fn new(limiter: RuleLimiter<S, C>, domain: impl Into<Arc<str>>) -> Self {
        let queue = Arc::new(Queue::new(WAITING_MAX));
        Self { limiter, domain: domain.into(), settling: None, queue }
    }

    /// Lets answers change what was counted.
    #[must_use]
    pub fn settling(mut self, settling: Settling) -> Self {
        self.settling = Some(Arc::new(settling));
        self
    }

    /// How many requests wait for their slots.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }
}

impl<S: LocalStore + 'static, C: Clock> Limits<S, C> {
    /// Asks, and gives the id of the reservation if there is one.
    fn ask<R: HttpRequest>(
        &self,
        request: &R,
        mapped: &mut Mapped,
    ) -> (Verdict, Option<u128>, u128) {
        let holder = random();
        let query = Query::new(&self.domain, &[]).holder(holder);
        let now = self.limiter.now();
        if let Some(settling) = &self.settling {
            let query = query.cost(settling.reserve.max(1));
            let id = random();
            let term = (id, RESERVED_FOR);
            if let Ok(verdict) = self.limiter.reserve_http_at(&query, request, mapped, term, now) {
                let is_taken = verdict.allowed;
                return (verdict, is_taken.then_some(id), holder);
            }
        }
        (self.limiter.ask_http_at(Op::Check, &query, request, mapped, now), None, holder)
    }

    /// Asks, tells, and takes along what has to be known later, if anything has.
    fn rule<R: HttpRequest, T>(
        &self,
        request: &R,
        mapped: &mut Mapped,
        tell: impl FnOnce(&Verdict) -> T,
    ) -> Ruled<T, S, C> {
        let (mut verdict, id, holder) = self.ask(request, mapped);
        let delay = verdict.decision.map_or(Duration::ZERO, |decision| decision.delay);
        let must_release = verdict
            .limits
            .iter()
            .any(|answered| verdict.rule(answered).is_some_and(|rule| rule.limit.is_concurrency()));
        let mut ruled = Ruled { told: None, pass: None, ticket: None, must_release };
        if verdict.allowed && (id.is_some() || must_release || !delay.is_zero()) {
            let pass = self.pass(mapped, id, holder);
            if !delay.is_zero() {
                ruled.ticket = self.queue.enter(line_of(&verdict, &pass.mapped), delay);
            }
            match delay.is_zero() || ruled.ticket.is_some() {
                true => ruled.pass = Some(pass),
                // What it took goes back with the pass.
                false => refuse(&mut verdict, delay),
            }
        }
        ruled.told = Some(tell(&verdict));
        ruled
    }

    fn pass(&self, mapped: &mut Mapped, id: Option<u128>, holder: u128) -> LimitsPass<S, C> {
        LimitsPass {
            gate: self.clone(),
            mapped: std::mem::take(mapped),
            id,
            holder,
            taken: Taken::All,
        }
    }
}

impl<S: LocalStore + 'static, C: Clock> Gate for Limits<S, C> {
    type Pass = LimitsPass<S, C>;

    async fn decide<R: HttpRequest, T>(
        &self,
        request: &R,
        tell: impl FnOnce(&Verdict) -> T,
    ) -> Ruling<T, Self::Pass> {
        let ruled = MAPPED.with_borrow_mut(|mapped| self.rule(request, mapped, tell));
        let Ruled { told, mut pass, ticket, must_release } = ruled;
        let was_delayed = ticket.is_some();
        if let Some(mut ticket) = ticket {
            ticket.wait().await;
        }
        if let Some(pass) = &mut pass {
            pass.taken = if must_release { Taken::Permits } else { Taken::Nothing };
        }
        Ruling { told, pass, was_delayed }
    }
}

/// What was decided, before any waiting.
struct Ruled<T, S: LocalStore, C: Clock> {
    told: Option<T>,
    pass: Option<LimitsPass<S, C>>,
    /// The place in the line of those who wait.
    ticket: Option<Ticket>,
    /// Whether permits were taken.
    must_release: bool,
}

/// Refuses a request that would have been admitted, had there been room to wait.
fn refuse(verdict: &mut Verdict, delay: Duration) {
    let refuse = |decision: &mut tidegate::Decision| {
        (decision.allowed, decision.retry) = (false, Retry::After(delay));
    };
    (verdict.allowed, verdict.granted) = (false, 0);
    let held = verdict.limits.iter_mut().filter(|answered| !answered.decision.delay.is_zero());
    held.for_each(|answered| refuse(&mut answered.decision));
    verdict.decision.iter_mut().for_each(refuse);
}

/// The line that a request waits in: that of the limit that holds it back for longest, and of the
/// key that it counts.
fn line_of(verdict: &Verdict, mapped: &Mapped) -> Box<[u8]> {
    let longest = verdict.limits.iter().max_by_key(|answered| answered.decision.delay);
    let mut key = Vec::new();
    let Some(answered) = longest else { return key.into() };
    let rule = verdict.rule(answered).map_or(&b"override"[..], |rule| rule.counter.as_bytes());
    let mut push = |bytes: &[u8]| {
        key.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        key.extend_from_slice(bytes);
    };
    push(rule);
    if let Some(descriptor) = mapped.descriptors().nth(answered.descriptor as usize) {
        for entry in descriptor.entries() {
            push(entry.key.as_bytes());
            push(entry.value.as_bytes());
        }
    }
    key.into()
}

/// What an admitted request holds.
#[derive(Debug)]
pub struct LimitsPass<S: LocalStore = MemoryStore, C: Clock = SystemClock> {
    gate: Limits<S, C>,
    mapped: Mapped,
    /// The reservation that is open.
    id: Option<u128>,
    holder: u128,
    /// What has to be given back when it is dropped.
    taken: Taken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Everything: the request has not been let through yet.
    All,
    Permits,
    Nothing,
}

impl<S: LocalStore + 'static, C: Clock> Pass for LimitsPass<S, C> {
    fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        let (Some(id), Some(settling)) = (self.id.take(), &self.gate.settling) else { return };
        let status = status.as_u16();
        let is_free = settling.free_statuses.iter().any(|(a, z)| (*a..=*z).contains(&status));
        let told = || {
            let value = headers.get(settling.cost_header.as_ref()?)?;
            value.to_str().ok()?.trim().parse::<u64>().ok()
        };
        let cost = match is_free {
            true => 0,
            false => told().unwrap_or(settling.reserve.max(1)),
        };
        let limiter = &self.gate.limiter;
        // A store in this process has an answer; an unknown id is one that has passed its time.
        let _ = limiter.settle_at(id, cost, limiter.now());
    }
}

impl<S: LocalStore, C: Clock> Drop for LimitsPass<S, C> {
    fn drop(&mut self) {
        let limiter = &self.gate.limiter;
        let now = limiter.now();
        let query = Query::new(&self.gate.domain, &[]).holder(self.holder);
        if self.taken == Taken::All {
            match self.id.take() {
                Some(id) => {
                    let _ = limiter.settle_at(id, 0, now);
                }
                None => self.mapped.with(|descriptors| {
                    let _ = limiter.ask_at(Op::Refund, &Query { descriptors, ..query }, now);
                }),
            }
        } else if self.taken == Taken::Permits {
            self.mapped.with(|descriptors| {
                let _ = limiter.release_at(&Query { descriptors, ..query }, now);
            });
        }
    }
}

/// An id that nobody else has. Without random numbers the limiter would not have started.
fn random() -> u128 {
    thread_local! {
        static STATE: RefCell<(u64, u64)> = RefCell::new((getrandom::u64().unwrap_or(1), 0));
    }
    STATE.with_borrow_mut(|(first, count)| {
        *count += 1;
        (u128::from(*first) << 64) | u128::from(*count)
    })
}
