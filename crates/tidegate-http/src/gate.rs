//! Who decides on requests: limits from rules, or limits that a program has built.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate::rules::HttpRequest;
use tidegate::{
    Admission, Clock, Keep, Limiter, MemoryStore, Query, RuleLimiter, Store, SystemClock,
    Timestamp, Verdict,
};

use crate::asked::Asked;
use crate::key::KeyOf;
use crate::room::Room;

/// Decides on requests before they go on. What comes after is the [`Admission`]'s: its `turn` is waited
/// for, its `held` is settled or refunded when the answer is there, and dropped when the answer has
/// been sent.
///
/// ```
/// use tidegate::{Admission, RuleLimiter};
/// use tidegate_http::{Asking, Gate, RuleGate};
/// use tidegate::rules::HttpRequest;
///
/// /// Counts what a gate decides.
/// #[derive(Clone)]
/// struct Counting(RuleGate);
///
/// impl<R: HttpRequest + Sync> Gate<R> for Counting {
///     fn waits(&self) -> bool {
///         Gate::<R>::waits(&self.0)
///     }
///
///     async fn admit(&self, request: &R, asking: Asking) -> Admission {
///         let admission = self.0.admit(request, asking).await;
///         println!("{}: {}", request.path(), admission.verdict.allowed);
///         admission
///     }
/// }
/// ```
pub trait Gate<R: ?Sized>: Clone + Send + Sync + 'static {
    /// Whether somebody may have to be waited for. A gate that says no answers when its future is
    /// first polled; only the turn of a request may then take time.
    fn waits(&self) -> bool;

    /// Whether it may refuse or count anybody. Where it does not, front ends need not ask.
    fn asks(&self) -> bool {
        true
    }

    /// Decides on a request. Where the decision takes time and is given up meanwhile, it may or may not
    /// have been counted.
    fn admit(&self, request: &R, asking: Asking) -> impl Future<Output = Admission> + Send;

    /// Decides on a request if nobody has to be waited for, and shows what was decided; `None` if somebody
    /// has. A future has the size of all that it may keep while it waits: so front ends need room for one
    /// only if they wait. An admission is large too, and is looked at where it is.
    fn admit_at_once<T>(
        &self,
        request: &R,
        asking: Asking,
        judge: impl FnOnce(&mut Admission) -> T,
    ) -> Option<T> {
        if self.waits() {
            return None;
        }
        match pin!(self.admit(request, asking)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(mut admission) => Some(judge(&mut admission)),
            Poll::Pending => None,
        }
    }
}

/// A gate without limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl<R: Sync + ?Sized> Gate<R> for Open {
    fn waits(&self) -> bool {
        false
    }

    fn asks(&self) -> bool {
        false
    }

    async fn admit(&self, _: &R, _: Asking) -> Admission {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp::from_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        Admission::new(Verdict::unlimited(now))
    }
}

/// How a request is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asking {
    /// What it costs, where the rules do not say otherwise.
    pub cost: u64,
    /// What may come back when it is over.
    pub keep: Keep,
}

impl Asking {
    /// So many units, of which so much may come back.
    pub fn new(cost: u64, keep: Keep) -> Self {
        Self { cost, keep }
    }
}

impl Default for Asking {
    fn default() -> Self {
        Self::new(1, Keep::Needed)
    }
}

/// Limits from rules: what the `http` section of a domain says.
pub struct RuleGate<S = MemoryStore, C: Clock = SystemClock> {
    limiter: RuleLimiter<S, C>,
    domain: Arc<str>,
}

impl<S: Store, C: Clock> RuleGate<S, C> {
    /// A domain of a limiter's rules.
    pub fn new(limiter: RuleLimiter<S, C>, domain: impl Into<Arc<str>>) -> Self {
        Self { limiter, domain: domain.into() }
    }

    /// The limiter, to replace its rules, make exceptions, look into its store.
    pub fn limiter(&self) -> &RuleLimiter<S, C> {
        &self.limiter
    }

    /// The domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }
}

impl<S, C: Clock> Clone for RuleGate<S, C> {
    fn clone(&self) -> Self {
        Self { limiter: self.limiter.clone(), domain: Arc::clone(&self.domain) }
    }
}

impl<S, C: Clock> fmt::Debug for RuleGate<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RuleGate").field(&self.domain).finish()
    }
}

impl<S: Store + 'static, C: Clock, R: HttpRequest + Sync + ?Sized> Gate<R> for RuleGate<S, C> {
    fn waits(&self) -> bool {
        self.limiter.store().waits()
    }

    async fn admit(&self, request: &R, asking: Asking) -> Admission {
        let query = Query::new(&self.domain, &[]).cost(asking.cost);
        let mapped = &mut Room::take();
        self.limiter.admit_http(&query, request, mapped, asking.keep, |_, _| ()).await
    }

    fn admit_at_once<T>(
        &self,
        request: &R,
        asking: Asking,
        judge: impl FnOnce(&mut Admission) -> T,
    ) -> Option<T> {
        let query = Query::new(&self.domain, &[]).cost(asking.cost);
        Room::at_hand(|mapped| {
            let judge = |_: &Query<'_>, admission: &mut Admission| judge(admission);
            self.limiter.admit_http_at_once(&query, request, mapped, asking.keep, judge)
        })
    }
}

/// Limits that a program has built, for keys that it finds in requests.
pub struct KeyGate<S, C: Clock, E> {
    limiter: Limiter<S, C>,
    key: E,
    denies_missing: bool,
}

impl<S: Store, C: Clock, E> KeyGate<S, C, E> {
    /// A limiter, and how to find the key of a request.
    pub fn new(limiter: Limiter<S, C>, key: E) -> Self {
        Self { limiter, key, denies_missing: false }
    }

    /// The limiter.
    pub fn limiter(&self) -> &Limiter<S, C> {
        &self.limiter
    }

    /// Refuses requests that have no key, instead of letting them through uncounted.
    #[must_use]
    pub fn deny_missing(self) -> Self {
        Self { denies_missing: true, ..self }
    }
}

impl<S, C: Clock, E: Clone> Clone for KeyGate<S, C, E> {
    fn clone(&self) -> Self {
        let Self { limiter, key, denies_missing } = self;
        Self { limiter: limiter.clone(), key: key.clone(), denies_missing: *denies_missing }
    }
}

impl<S, C: Clock, E> fmt::Debug for KeyGate<S, C, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyGate").field(&self.limiter).finish()
    }
}

impl<S: Store + 'static, C: Clock, E: KeyOf> Gate<Asked> for KeyGate<S, C, E> {
    fn waits(&self) -> bool {
        self.limiter.store().waits()
    }

    async fn admit(&self, request: &Asked, asking: Asking) -> Admission {
        let Some(key) = self.key.key_of(request) else {
            return Admission::new(self.limiter.unasked(self.denies_missing));
        };
        self.limiter.on(&key).cost(asking.cost).admit(asking.keep).await
    }
}
