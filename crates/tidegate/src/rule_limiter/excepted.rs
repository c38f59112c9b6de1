//! Exceptions from the rules: how they are made, and what requests that meet them are told.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_rules::Entry;
use tidegate_store::{Op, Store};

use super::planning::Wanted;
use super::way::Way;
use super::{Query, RuleLimiter, Shared};
use crate::armed::Armed;
use crate::clock::Clock;
use crate::exceptions::{Excepted, Exception, ExceptionError, ExceptionKind};
use crate::verdict::Verdict;

impl<S: Store, C: Clock> RuleLimiter<S, C> {
    /// Makes an exception from the rules for a key, until so long from now. The key is what a
    /// descriptor with exactly these entries is counted by; one that is made again is changed.
    ///
    /// A blocked key is refused by [`Op::Check`], [`Op::Peek`] and [`Op::UpTo`], and nothing is
    /// consumed. Exceptions are this process's; they end with it.
    ///
    /// # Errors
    /// If there are too many.
    pub fn except(
        &self,
        domain: &str,
        entries: &[Entry<'_>],
        exception: Exception,
        span: Duration,
    ) -> Result<(), ExceptionError> {
        let now = self.now();
        self.shared.exceptions.set(domain, entries, exception, now + span, now)
    }

    /// These exceptions and no others: for processes that share them by other means.
    pub fn replace_exceptions(&self, all: Vec<Excepted>) {
        self.shared.exceptions.replace(all, self.now());
    }

    /// Ends an exception. Whether there was one.
    pub fn lift(&self, domain: &str, entries: &[Entry<'_>], kind: ExceptionKind) -> bool {
        self.shared.exceptions.lift(domain, entries, kind, self.now())
    }

    /// The exceptions of a key.
    pub fn exceptions_of(&self, domain: &str, entries: &[Entry<'_>]) -> Vec<Excepted> {
        self.shared.exceptions.of(domain, entries, self.now())
    }

    /// All exceptions, those that end first before the others.
    pub fn exceptions(&self) -> Vec<Excepted> {
        self.shared.exceptions.list(self.now())
    }
}

impl<S: Store, C: Send + Sync> Shared<S, C> {
    /// Asks where some keys have exceptions from the rules.
    pub(super) async fn ask_excepted<W: Way>(
        &self,
        way: &W,
        armed: &Arc<Armed>,
        op: Op<'_>,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Result<Verdict, W::Error> {
        if let Wanted::Permits = wanted {
            return self.ask_rules(way, armed, op, query, now, wanted).await;
        }
        let excepting = self.exceptions.apply(query, now);
        let excepted = Query { descriptors: &excepting.descriptors, ..*query };
        if may_refuse(op) && !excepting.blocked.is_empty() {
            let verdict = self.ask_rules(way, armed, Op::Peek, &excepted, now, wanted).await?;
            return Ok(verdict.blocked(&excepting.blocked));
        }
        if op == Op::Reset {
            // What was used before the exception is to be forgotten too.
            self.ask_rules(way, armed, op, query, now, wanted).await?;
        }
        self.ask_rules(way, armed, op, &excepted, now, wanted).await
    }
}

/// Whether the answer may be no, so that a block has something to say.
fn may_refuse(op: Op<'_>) -> bool {
    matches!(op, Op::Check | Op::Peek | Op::UpTo)
}
