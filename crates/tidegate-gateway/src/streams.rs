//! The streams of a client's HTTP/2 connection, each a task of its own.

use std::cell::{OnceCell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use crate::watch::{Wait, Watch};

type Slot = Rc<OnceCell<Arc<Watch>>>;

thread_local! {
    /// The slot of the stream that is being polled.
    static CURRENT: RefCell<Option<Slot>> = const { RefCell::new(None) };
}

/// Runs streams on the thread that they are made on. One whose client takes nothing of its answer for too
/// long is given up: the library waits for room in the stream's window and asks nobody meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(async move {
            let slot = Slot::default();
            let mut stream = pin!(stream);
            poll_fn(|context| {
                let before = CURRENT.replace(Some(Rc::clone(&slot)));
                let polled = stream.as_mut().poll(context);
                CURRENT.set(before);
                match slot.get() {
                    Some(watch) if watch.is_late(Wait::Write) => Poll::Ready(()),
                    _ => polled,
                }
            })
            .await;
        });
    }
}

/// Gives up the stream that is being polled once the client is late to take its answer. The watch has to
/// wake the stream.
pub(crate) fn give_up_with(watch: &Arc<Watch>) {
    CURRENT.with_borrow(|current| {
        if let Some(slot) = current {
            // A stream is one request, and asks once.
            let _ = slot.set(Arc::clone(watch));
        }
    });
}
