//! Going on in the order in which requests were let go.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::room::Room;
use crate::held::Part;

/// The place of a request that has been let go before all that are let go after it and share a key with
/// it. It is dropped when the request has gone on, whatever that means to whoever holds it, or never will.
///
/// Requests get ready for it side by side, such as by connecting, and go on one after another:
///
/// ```
/// use tidegate::{Admission, Held};
///
/// # async fn connect() {}
/// # async fn send() {}
/// # async fn answer() {}
/// # async fn serve(mut admission: Admission) {
/// let (held, mut going) = match admission.turn.take() {
///     Some(turn) => {
///         let (held, going) = turn.in_order().await;
///         (Some(held), Some(going))
///     }
///     None => {
///         let going = admission.held.as_ref().and_then(Held::going);
///         (admission.held.take(), going)
///     }
/// };
/// connect().await;
/// if let Some(going) = &mut going {
///     going.first().await;
/// }
/// send().await;
/// drop(going); // the next one may follow
/// answer().await;
/// drop(held);
/// # }
/// ```
///
/// Whoever keeps it for longer than that keeps others waiting.
#[must_use = "dropping it lets others go before"]
pub struct Going {
    room: Arc<Room>,
    number: u64,
}

impl Going {
    pub(super) fn new(room: Arc<Room>, number: u64) -> Self {
        Self { room, number }
    }

    /// Of a request that need not wait, and took such parts; `None` if too many are on their way.
    pub(crate) fn pass<'a>(
        room: &Arc<Room>,
        parts: impl Iterator<Item = &'a Part>,
    ) -> Option<Self> {
        let number = room.pass(parts)?;
        Some(Self::new(Arc::clone(room), number))
    }

    /// Whether all that were let go before it have gone on.
    pub fn is_first(&self) -> bool {
        self.room.is_first(self.number)
    }

    /// Waits until all that were let go before it have gone on. Nothing happens if that is given up.
    pub async fn first(&mut self) {
        poll_fn(|context| self.poll_first(context)).await;
    }

    /// [`first`](Self::first), for those who write futures by hand.
    pub fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.room.poll_first(self.number, context)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.room.gone_on(self.number);
    }
}

impl fmt::Debug for Going {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Going")
    }
}
