//! The moment at which a request has gone on: when its connection has had its turn to write it.

use std::cell::Cell;
use std::rc::Rc;

use tidegate::Going;

/// A request that has been handed over to the task of an upstream connection.
///
/// It keeps its place before those of its key until that task has been run. A thread runs its tasks in the
/// order in which they were woken, and the connection's was woken first: by the request. With HTTP/2
/// there is another one behind it, which writes for all streams.
pub(crate) struct Handover(Option<Rc<Cell<Option<Going>>>>);

impl Handover {
    /// Of a request that was handed over just now.
    pub(crate) fn new(going: Option<Going>) -> Self {
        Self(going.map(|going| {
            let going = Rc::new(Cell::new(Some(going)));
            let kept = Rc::clone(&going);
            tokio::task::spawn_local(async move {
                tokio::task::yield_now().await;
                drop(kept.take());
            });
            going
        }))
    }

    /// What is left of it for one that comes back at once, since its connection was closed already.
    pub(crate) fn take_back(self) -> Option<Going> {
        self.0?.take()
    }
}
