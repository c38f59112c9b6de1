//! Where the requests of a connection run.

use std::future::Future;
use std::task::{Context, Waker};

use hyper::rt::Executor;

/// Runs a request where its connection runs, as long as it needs to wait for nothing; only then it
/// gets a task of its own.
///
/// Nearly every request has come in whole by the time it is seen, and a decision waits for nobody:
/// a task for each would cost more than the decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct HereFirst;

impl<F> Executor<F> for HereFirst
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        let mut future = Box::pin(future);
        // Nobody has to be woken: a future that waits is asked again by its task.
        let mut context = Context::from_waker(Waker::noop());
        if future.as_mut().poll(&mut context).is_pending() {
            tokio::spawn(future);
        }
    }
}
