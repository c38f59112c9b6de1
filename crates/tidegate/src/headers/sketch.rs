//! What the answer to a refusal says, in few numbers.

use std::sync::{Arc, Weak};

use smallvec::SmallVec;
use tidegate_core::{Retry, Source};

use super::seconds_up;
use crate::armed::Armed;
use crate::verdict::{Answered, By, Verdict};

/// What the answer to a refusal says, in few numbers: refusals of the same sketch are told by the same
/// text, so that it need not be written again for everybody who is refused within the same second.
#[derive(Clone, Debug)]
pub struct Sketch {
    /// Which rules spoke. They are not kept for it, but nobody else can be where they were.
    armed: Weak<Armed>,
    reported: u32,
    limits: SmallVec<[Said; 2]>,
}

/// What one limit says, as far as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    rule: u32,
    allowed: bool,
    soft: bool,
    source: Source,
    limit: u64,
    remaining: u64,
    retry: Option<u64>,
    is_never: bool,
    reset: Option<u64>,
}

impl Said {
    /// `None` if it is no limit of rules that speaks.
    fn of(answered: &Answered) -> Option<Self> {
        let By::Rule(rule) = answered.by else { return None };
        let decision = &answered.decision;
        Some(Self {
            rule,
            allowed: decision.allowed,
            soft: decision.soft,
            source: decision.source,
            limit: decision.limit,
            remaining: decision.remaining,
            retry: match decision.retry {
                Retry::After(wait) => Some(seconds_up(wait)),
                _ => None,
            },
            is_never: decision.retry == Retry::Never,
            reset: decision.reset_after.map(seconds_up),
        })
    }
}

impl Sketch {
    /// The sketch of a refusal; `None` of anything else, and of what rules alone do not tell.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        let reported = reported(verdict)?;
        let limits = verdict.limits.iter().map(Said::of).collect::<Option<_>>()?;
        Some(Self { armed: Arc::downgrade(&verdict.armed), reported, limits })
    }

    /// Whether a verdict has this sketch.
    pub fn is_of(&self, verdict: &Verdict) -> bool {
        self.armed.as_ptr() == Arc::as_ptr(&verdict.armed)
            && self.limits.len() == verdict.limits.len()
            && reported(verdict) == Some(self.reported)
            && self.limits.iter().zip(&verdict.limits).all(|(said, it)| Said::of(it) == Some(*said))
    }
}

/// The position of the limit that is reported of a refusal.
fn reported(verdict: &Verdict) -> Option<u32> {
    if verdict.allowed || verdict.denied_by.is_some() || verdict.is_unanswered() {
        return None;
    }
    verdict.reported().map(|answered| answered.decision.rule)
}
