//! The end of a server, in order: nobody new, those under way finish.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The way from serving to having ended, shared by all front ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    leaving: CancellationToken,
    token: CancellationToken,
    tracker: TaskTracker,
}

impl Drain {
    /// Says that this server is about to end: health and readiness answer no from now on, and
    /// everything else goes on.
    pub(crate) fn leave(&self) {
        self.leaving.cancel();
    }

    /// Whether it is about to end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Ready once [`leave`](Self::leave) was called.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + Send + 'static {
        self.leaving.clone().cancelled_owned()
    }

    /// Nobody new is accepted from now on; connections finish what they have begun and close.
    pub(crate) fn begin(&self) {
        self.leave();
        self.token.cancel();
        self.tracker.close();
    }

    /// Ready once [`begin`](Self::begin) was called.
    pub(crate) fn begun(&self) -> impl Future<Output = ()> + Send + 'static {
        self.token.clone().cancelled_owned()
    }

    /// Something that has to be over before the server ends; spawn it with
    /// [`TaskTracker::spawn`], or keep its token.
    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Waits until everything tracked is over, or for so long. Whether it is.
    pub(crate) async fn wait(&self, most: Duration) -> bool {
        tokio::time::timeout(most, self.tracker.wait()).await.is_ok()
    }
}
