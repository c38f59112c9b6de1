//! Who is told about decisions.

use std::time::Duration;

use tidegate_core::Decision;
use tidegate_store::{Answer, Item, Op};

/// Something that wants to know about every decision: metrics, logs, an audit.
///
/// It is called on the thread that decides, after the decision and outside of all locks; what it
/// takes is added to every check.
pub trait Observer: Send + Sync + 'static {
    /// A request was decided.
    fn decided(&self, event: &Event<'_>);

    /// Somebody at the head of a queue begins to wait for a limit, for so long at the most; `None`
    /// if nobody can tell.
    fn waiting(&self, most: Option<Duration>) {
        let _ = most;
    }
}

/// One decision.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Event<'a> {
    /// What was asked.
    pub op: Op<'a>,
    /// How much.
    pub cost: u64,
    /// The answer as a whole.
    pub decision: &'a Decision,
    /// The limits that were asked, with the key.
    pub items: &'a [Item<'a>],
    /// What each of them said, in the same order.
    pub answers: &'a [Answer],
}
