//! The engine as the front ends see it: asked in one place, counted in one place.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::rules::{HttpRequest, Mapped, Rules};
use tidegate::{
    Admission, Answer, Call, Decision, Item, Keep, Op, Query, Registered, RuleError, RuleLimiter,
    Store as _, Verdict,
};

use crate::clock::ServiceClock;
use crate::front_end::FrontEnd;
use crate::metrics::{GatewayStats, Metrics};
use crate::stores::{AnyStore, StoreError};

/// The limiter of a service.
pub type Limits = RuleLimiter<AnyStore, ServiceClock>;

/// What all front ends ask.
pub struct Service {
    limits: Limits,
    metrics: Arc<Metrics>,
    gateway: OnceLock<Box<dyn Fn() -> GatewayStats + Send + Sync>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Service {
    /// A service around a limiter. `near_limit_ratio` is the part of a limit from which on Lyft's
    /// counters call a request near it.
    #[must_use]
    pub fn new(limits: Limits, near_limit_ratio: f32) -> Self {
        let metrics = Arc::new(Metrics::new(near_limit_ratio, limits.modes().independent));
        limits.with_generation(|generation, rules| metrics.follow(generation, rules));
        Self { limits, metrics, gateway: OnceLock::new() }
    }

    /// The limiter. What is asked of it directly shows in no metric.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether the store may have to be waited for.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.limits.store().waits()
    }

    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Does something with the limits that a request meets, and counts it.
    ///
    /// # Errors
    /// If the store could not answer, and was built to say so.
    #[inline]
    pub async fn ask(
        &self,
        front_end: FrontEnd,
        op: Op<'_>,
        query: &Query<'_>,
    ) -> Result<Verdict, StoreError> {
        let now = self.limits.now();
        let verdict = self.limits.ask_at_async(op, query, now).await?;
        self.metrics.decided(front_end, op, query, &verdict);
        self.metrics.took(front_end, self.limits.now().since(now));
        log_refusal(front_end, query.domain, &verdict);
        Ok(verdict)
    }

    /// [`ask`](Self::ask) for an HTTP request, which the `http` section of the rules turns into
    /// descriptors.
    ///
    /// # Errors
    /// As there.
    pub async fn ask_http<R: HttpRequest + Sync + ?Sized>(
        &self,
        front_end: FrontEnd,
        op: Op<'_>,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
    ) -> Result<Verdict, StoreError> {
        let now = self.limits.now();
        let verdict = self.limits.ask_http_at_async(op, query, request, mapped, now).await?;
        mapped.with(|descriptors| {
            let query = Query { descriptors, ..*query };
            self.metrics.decided(front_end, op, &query, &verdict);
        });
        self.metrics.took(front_end, self.limits.now().since(now));
        log_refusal(front_end, query.domain, &verdict);
        Ok(verdict)
    }

    /// Checks an HTTP request that is seen through to its end, and counts it.
    pub(crate) async fn admit_http<R: HttpRequest + Sync + ?Sized>(
        &self,
        front_end: FrontEnd,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        keep: Keep,
    ) -> Admission {
        let seen = |query: &Query<'_>, verdict: &Verdict| self.seen(front_end, query, verdict);
        self.limits.admit_http(query, request, mapped, keep, seen).await
    }

    /// [`admit_http`](Self::admit_http) if nobody has to be waited for; `None` if somebody has.
    pub(crate) fn admit_http_at_once<R: HttpRequest + Sync + ?Sized, T>(
        &self,
        front_end: FrontEnd,
        query: &Query<'_>,
        request: &R,
        mapped: &mut Mapped,
        keep: Keep,
        judge: impl FnOnce(&mut Admission) -> T,
    ) -> Option<T> {
        self.limits.admit_http_at_once(query, request, mapped, keep, |query, admission| {
            self.seen(front_end, query, &admission.verdict);
            judge(admission)
        })
    }

    /// Counts a request that was checked.
    fn seen(&self, front_end: FrontEnd, query: &Query<'_>, verdict: &Verdict) {
        self.metrics.decided(front_end, Op::Check, query, verdict);
        self.metrics.took(front_end, self.limits.now().since(verdict.now));
        log_refusal(front_end, query.domain, verdict);
    }

    /// Checks a request and remembers under `id` what it took, to be settled within `ttl`.
    ///
    /// # Errors
    /// If the store could not answer, or has no room for another reservation.
    pub async fn reserve(
        &self,
        front_end: FrontEnd,
        query: &Query<'_>,
        id: u128,
        ttl: Duration,
    ) -> Result<Verdict, StoreError> {
        let now = self.limits.now();
        let verdict = self.limits.reserve_at_async(query, id, ttl, now).await?;
        self.metrics.decided(front_end, Op::Check, query, &verdict);
        self.metrics.took(front_end, self.limits.now().since(now));
        Ok(verdict)
    }

    /// [`reserve`](Self::reserve) for an HTTP request.
    ///
    /// # Errors
    /// As there.
    pub async fn reserve_http<R: HttpRequest + Sync + ?Sized>(
        &self,
        front_end: FrontEnd,
        query: &Query<'_>,
        request: &R,
        id: u128,
        ttl: Duration,
    ) -> Result<Verdict, StoreError> {
        let now = self.limits.now();
        let mut mapped = Mapped::new();
        let limits = &self.limits;
        let verdict = limits.reserve_http_at_async(query, request, &mut mapped, (id, ttl), now);
        let verdict = verdict.await?;
        mapped.with(|descriptors| {
            let query = Query { descriptors, ..*query };
            self.metrics.decided(front_end, Op::Check, &query, &verdict);
        });
        self.metrics.took(front_end, self.limits.now().since(now));
        Ok(verdict)
    }

    /// Ends a reservation at its real cost; zero cancels it. Whether there was one.
    ///
    /// # Errors
    /// If the store could not answer.
    pub async fn settle(&self, id: u128, cost: u64) -> Result<bool, StoreError> {
        self.limits.settle_at_async(id, cost, self.limits.now()).await
    }

    /// A check by a limit that is in no rules, under the name that metrics call it by.
    ///
    /// # Errors
    /// If the store could not answer, and was built to say so.
    pub async fn check_with(
        &self,
        front_end: FrontEnd,
        name: &'static str,
        limit: &Registered,
        key: &[u8],
        cost: u64,
    ) -> Result<Decision, StoreError> {
        let now = self.limits.now();
        let item = Item::new(key, limit);
        let decision = match cost {
            0 => {
                let mut answers = [Answer::default()];
                let call = Call::new(Op::Peek, std::slice::from_ref(&item), 0, now);
                self.limits.store().apply(&call, &mut answers).await?;
                answers[0].decision
            }
            cost => self.limits.store().check_one(&item, cost, now).await?,
        };
        self.metrics.decided_with(front_end, name, cost, &decision);
        self.metrics.took(front_end, self.limits.now().since(now));
        Ok(decision)
    }

    /// Replaces the rules while everything goes on.
    ///
    /// # Errors
    /// If they cannot be enforced; the old ones then stay.
    pub fn replace(&self, rules: Rules) -> Result<(), RuleError> {
        let replaced = self.limits.replace(rules);
        self.metrics.reloaded(replaced.is_ok());
        self.limits.with_generation(|generation, rules| self.metrics.follow(generation, rules));
        replaced
    }

    /// Lets metrics show a gateway in front of which this service stands; the first one stays.
    pub fn show_gateway(&self, look: impl Fn() -> GatewayStats + Send + Sync + 'static) {
        let _ = self.gateway.set(Box::new(look));
    }

    /// All metrics, as Prometheus reads them.
    pub fn render_metrics(&self) -> String {
        let held = self.limits.held();
        let gateway = self.gateway.get().map(|look| look());
        self.metrics.render(self.limits.store().stats(), held, gateway)
    }

    /// How many decisions a front end has asked for.
    pub fn decisions(&self, front_end: FrontEnd) -> u64 {
        self.metrics.decisions(front_end)
    }

    /// Counts rules that could not be loaded.
    pub fn reload_failed(&self) {
        self.metrics.reloaded(false);
    }
}

/// Refusals are counted; they are logged one by one only for those who ask for it.
fn log_refusal(front_end: FrontEnd, domain: &str, verdict: &Verdict) {
    if verdict.allowed || !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let rule = verdict.reported().and_then(|answered| verdict.rule(answered));
    let rule = rule.map_or("", |rule| &*rule.id);
    tracing::debug!(front_end = front_end.as_str(), domain, rule, "refused");
}
