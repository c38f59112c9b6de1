//! The limits of a limiter, registered with its store.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, Ordering};
use tidegate_core::{Inherit, LimitError, LimitSpec, Timestamp};
use tidegate_store::{Item, OnError, RegisterError, Registered, Store};

use crate::calendar::Calendar;

/// A limiter could not be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A limit is impossible.
    #[error("limit `{id}` cannot be built")]
    Limit {
        /// The id of the limit.
        id: String,
        /// What is wrong with it.
        #[source]
        source: LimitError,
    },
    /// Nothing to limit by.
    #[error("a limiter needs at least one limit; add one with `limit`")]
    NoLimits,
    /// Nowhere to count.
    #[error("no store was given; call `build` for memory, or give one with `store`")]
    NoStore,
    /// A limit by the calendar, but no calendar.
    #[error("limit `{id}` follows a calendar; add it with `calendar` instead of `limit`")]
    NoCalendar {
        /// The name of the limit.
        id: String,
    },
    /// Two limits with one name.
    #[error("two limits are named `{id}`")]
    Twice {
        /// The name.
        id: String,
    },
    /// The store knows too many limits.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

/// Limits by name, in order: what a limiter is built from, and what replaces them.
///
/// ```
/// use tidegate::{Limit, Limits};
///
/// let limits = Limits::new().named("burst", Limit::per_second(5)).limit(Limit::per_day(1000));
/// # let _ = limits;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Limits {
    drafts: Vec<Draft>,
    on_error: Option<OnError>,
}

#[derive(Clone, Debug)]
struct Draft {
    id: String,
    spec: LimitSpec,
    calendar: Option<Calendar>,
}

impl Limits {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a limit, named by its position: `limit-0`, `limit-1`.
    #[must_use]
    pub fn limit(self, limit: LimitSpec) -> Self {
        let name = format!("limit-{}", self.drafts.len());
        self.named(name, limit)
    }

    /// Adds a limit by name. The name is what snapshots, and other limiters of the same store,
    /// know it by.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>, limit: LimitSpec) -> Self {
        self.drafts.push(Draft { id: name.into(), spec: limit, calendar: None });
        self
    }

    /// What all of them answer when a store that others share cannot: yes if not said. Limits that
    /// replace others answer as those did if they do not say.
    #[must_use]
    pub fn on_store_error(mut self, on_error: OnError) -> Self {
        self.on_error = Some(on_error);
        self
    }

    /// Adds a limit of so many units per day, week, month or year of a calendar.
    #[cfg(feature = "time-zones")]
    #[must_use]
    pub fn calendar(mut self, name: impl Into<String>, units: u64, calendar: Calendar) -> Self {
        let spec = calendar.limit(units);
        self.drafts.push(Draft { id: name.into(), spec, calendar: Some(calendar) });
        self
    }
}

impl<N: Into<String>, I: IntoIterator<Item = (N, LimitSpec)>> From<I> for Limits {
    fn from(limits: I) -> Self {
        limits.into_iter().fold(Self::new(), |limits, (name, spec)| limits.named(name, spec))
    }
}

/// Limits with their handles.
pub(crate) struct Policy {
    pub(crate) handles: Box<[Arc<Registered>]>,
    calendars: Box<[Option<Calendar>]>,
    has_calendar: bool,
    is_plain: bool,
    pub(crate) on_error: OnError,
    /// The same as verdicts want it.
    #[cfg(feature = "rules")]
    pub(crate) armed: Arc<crate::armed::Armed>,
}

pub(crate) type Items<'a> = SmallVec<[Item<'a>; 4]>;

impl Policy {
    pub(crate) fn register<S: Store>(
        store: &S,
        Limits { drafts, on_error }: Limits,
        inherit: Inherit,
        on_error_before: OnError,
    ) -> Result<Self, BuildError> {
        if drafts.is_empty() {
            return Err(BuildError::NoLimits);
        }
        for (index, draft) in drafts.iter().enumerate() {
            if drafts[..index].iter().any(|earlier| earlier.id == draft.id) {
                return Err(BuildError::Twice { id: draft.id.clone() });
            }
        }
        let mut handles = Vec::with_capacity(drafts.len());
        for Draft { id, spec, calendar } in &drafts {
            let limit =
                spec.build().map_err(|source| BuildError::Limit { id: id.clone(), source })?;
            if limit.needs_calendar() && calendar.is_none() {
                return Err(BuildError::NoCalendar { id: id.clone() });
            }
            handles.push(store.register(id, limit, inherit)?);
        }
        let calendars: Box<[_]> = drafts.into_iter().map(|draft| draft.calendar).collect();
        let has_calendar = calendars.iter().any(Option::is_some);
        let is_plain = !has_calendar && !handles.iter().any(|known| known.limit().is_concurrency());
        let on_error = on_error.unwrap_or(on_error_before);
        #[cfg(feature = "rules")]
        let armed = Arc::new(crate::armed::Armed::limits(&handles, &calendars, on_error));
        Ok(Self {
            handles: handles.into(),
            calendars,
            has_calendar,
            is_plain,
            on_error,
            #[cfg(feature = "rules")]
            armed,
        })
    }

    /// The limits, if none needs a calendar or a holder; otherwise none.
    #[inline(always)]
    pub(crate) fn plain(&self) -> &[Arc<Registered>] {
        if self.is_plain { &self.handles } else { &[] }
    }

    /// The items of a call: each limit with its part of the key, or with the last one.
    pub(crate) fn items<'a>(&'a self, parts: &[&'a [u8]], now: Timestamp) -> Items<'a> {
        let last = parts.last().copied().unwrap_or_default();
        let parts = parts.iter().copied().chain(std::iter::repeat(last));
        let on_error = self.on_error;
        let item = |(handle, part)| Item { on_error, ..Item::new(part, handle) };
        let handles = self.handles.iter().map(|handle| &**handle);
        let mut items: Items<'a> = handles.zip(parts).map(item).collect();
        if self.has_calendar {
            for (item, calendar) in items.iter_mut().zip(&self.calendars) {
                item.windows = calendar.as_ref().map(|calendar| calendar.windows(now));
            }
        }
        items
    }
}

/// A policy that may be replaced while it is used.
///
/// Plain limits that were never replaced lie here, one step from the key; only after a replacement
/// do readers pay for the swap.
pub(crate) struct PolicyCell {
    plain: SmallVec<[Arc<Registered>; 2]>,
    first: Arc<Policy>,
    replaced: AtomicBool,
    current: ArcSwapOption<Policy>,
}

impl PolicyCell {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            plain: policy.plain().iter().cloned().collect(),
            first: Arc::new(policy),
            replaced: AtomicBool::new(false),
            current: ArcSwapOption::empty(),
        }
    }

    /// The limits, if all are plain and were never replaced; otherwise none.
    #[inline(always)]
    pub(crate) fn plain(&self) -> &[Arc<Registered>] {
        if self.replaced.load(Ordering::Acquire) { &[] } else { &self.plain }
    }

    pub(crate) fn get(&self) -> Arc<Policy> {
        if self.replaced.load(Ordering::Acquire)
            && let Some(current) = self.current.load_full()
        {
            return current;
        }
        Arc::clone(&self.first)
    }

    pub(crate) fn replace(&self, policy: Policy) {
        self.current.store(Some(Arc::new(policy)));
        self.replaced.store(true, Ordering::Release);
    }
}
