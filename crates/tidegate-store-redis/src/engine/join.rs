//! Waiting for several futures side by side.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// What all of them come to, in their order.
pub(super) async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    enum Place<F: Future> {
        Waiting(Pin<Box<F>>),
        Done(F::Output),
    }
    let places = futures.into_iter().map(|future| Place::Waiting(Box::pin(future)));
    let mut places: Vec<Place<F>> = places.collect();
    // Outputs are moved out when all are there; nobody holds a pin to them.
    let mut done = Box::pin(poll_fn(move |context| {
        let mut waiting = false;
        for place in &mut places {
            if let Place::Waiting(future) = place {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *place = Place::Done(output),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return Poll::Pending;
        }
        let outputs = std::mem::take(&mut places).into_iter().filter_map(|place| match place {
            Place::Done(output) => Some(output),
            Place::Waiting(_) => None,
        });
        Poll::Ready(outputs.collect())
    }));
    done.as_mut().await
}
