//! Exceptions from the rules: how they are made, and what requests that meet them are told.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_rules::Entry;
use tidegate_store::{LocalStore, Op, Store};

use super::{Query, RuleLimiter, Wanted};
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

impl<S: LocalStore, C: Clock> RuleLimiter<S, C> {
    /// Asks where some keys have exceptions from the rules.
    #[cold]
    pub(super) fn ask_excepted(
        &self,
        armed: &Arc<Armed>,
        op: Op<'_>,
        query: &Query<'_>,
        now: Timestamp,
        wanted: Wanted,
    ) -> Verdict {
        if let Wanted::Permits = wanted {
            return self.ask_rules(armed, op, query, now, wanted);
        }
        let excepting = self.shared.exceptions.apply(query, now);
        let excepted = Query { descriptors: &excepting.descriptors, ..*query };
        if may_refuse(op) && !excepting.blocked.is_empty() {
            let verdict = self.ask_rules(armed, Op::Peek, &excepted, now, wanted);
            return verdict.blocked(&excepting.blocked);
        }
        if op == Op::Reset {
            // What was used before the exception is to be forgotten too.
            self.ask_rules(armed, op, query, now, wanted);
        }
        self.ask_rules(armed, op, &excepted, now, wanted)
    }
}

/// Whether the answer may be no, so that a block has something to say.
pub(super) fn may_refuse(op: Op<'_>) -> bool {
    matches!(op, Op::Check | Op::Peek | Op::UpTo)
}
