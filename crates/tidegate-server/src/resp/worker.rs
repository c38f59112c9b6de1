//! The threads that serve RESP: each has a runtime of its own, so that a connection never moves.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Resp;
use super::connection::serve;
use crate::listen::Loose;

/// How much later than the server gives them up connections are cut off.
const CUT_OFF_AFTER: Duration = Duration::from_secs(1);

/// A connection for a thread. The server waits for as long as it is there.
pub(crate) struct Given {
    pub(crate) connection: Loose,
    pub(crate) tracked: TaskTrackerToken,
}

/// A thread that serves connections until nobody can give it more and those it has are over.
#[derive(Debug)]
pub(crate) struct Worker {
    /// As many as there may be connections.
    inbox: UnboundedSender<Given>,
}

impl Worker {
    /// Starts a thread. `drain` is how long connections may take once there are no new ones.
    pub(crate) fn start(resp: &Arc<Resp>, drain: Duration) -> io::Result<Self> {
        let (inbox, given) = unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let resp = Arc::clone(resp);
        std::thread::Builder::new()
            .name("resp".into())
            .spawn(move || runtime.block_on(work(given, resp, drain)))?;
        Ok(Self { inbox })
    }

    /// Gives it a connection.
    pub(crate) fn give(&self, given: Given) {
        // A thread that is gone has panicked, which was reported.
        let _ = self.inbox.send(given);
    }
}

async fn work(mut given: UnboundedReceiver<Given>, resp: Arc<Resp>, drain: Duration) {
    let tasks = TaskTracker::new();
    while let Some(Given { connection, tracked }) = given.recv().await {
        let resp = Arc::clone(&resp);
        tasks.spawn(async move {
            let _tracked = tracked;
            if let Some((stream, _place)) = connection.agree().await {
                serve(stream, resp).await;
            }
        });
    }
    tasks.close();
    // Those who do not come to an end are cut off with the runtime.
    let _ = tokio::time::timeout(drain.saturating_add(CUT_OFF_AFTER), tasks.wait()).await;
}
