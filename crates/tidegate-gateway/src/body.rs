//! Bodies on their way through, in both directions.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::fields;
use crate::pool::Lent;
use crate::watch::{Ticks, Wait, Watch};

/// Why a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the body is too large")]
    TooLarge,
    #[error("the client broke off")]
    Client,
    #[error("the client stopped on its way")]
    ClientLate,
    #[error("the upstream broke off")]
    Upstream,
    #[error("the upstream stopped on its way")]
    Late,
}

/// The body of a request, on its way to an upstream.
pub(crate) enum Sending {
    Nothing,
    Stream(Box<Streaming>),
}

pub(crate) struct Streaming {
    pub(crate) inner: Incoming,
    /// How much more may come.
    pub(crate) left: u64,
    pub(crate) watch: Arc<Watch>,
    /// How long the upstream may take from the last byte on.
    pub(crate) response: Ticks,
    /// How long the client may take for the next byte, if nobody else looks after that.
    pub(crate) patience: Option<Ticks>,
    pub(crate) fate: Rc<Fate>,
}

/// What becomes of the body of a request, for whoever waits for the answer.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// Why it ended early, if it did.
    pub(crate) broken: Cell<Option<Broken>>,
    /// Whether it is the client that is waited for.
    pub(crate) awaits_client: Cell<bool>,
    /// Whether the answer has begun. Its deadlines count from then on.
    pub(crate) is_answered: Cell<bool>,
}

impl Streaming {
    /// Waits for the client, where nobody else does.
    fn await_client(&self) {
        if self.fate.is_answered.get() {
            return;
        }
        match self.patience {
            None => self.watch.rest(Wait::Upstream),
            Some(_) if self.fate.awaits_client.get() => {}
            Some(most) => {
                self.fate.awaits_client.set(true);
                self.watch.wait(Wait::Upstream, most);
            }
        }
    }

    /// Waits for the upstream.
    fn await_upstream(&self) {
        if self.fate.is_answered.get() {
            return;
        }
        self.fate.awaits_client.set(false);
        self.watch.wait(Wait::Upstream, self.response);
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Self::Stream(body) = self.get_mut() else { return Poll::Ready(None) };
        let polled = Pin::new(&mut body.inner).poll_frame(context);
        let broken = match &polled {
            Poll::Pending => {
                body.await_client();
                return Poll::Pending;
            }
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                match body.left.checked_sub(length) {
                    Some(left) => {
                        body.left = left;
                        None
                    }
                    None => Some(Broken::TooLarge),
                }
            }
            Poll::Ready(Some(Err(_))) => Some(Broken::Client),
            Poll::Ready(None) => None,
        };
        body.await_upstream();
        if let Some(broken) = broken {
            body.fate.broken.set(Some(broken));
            return Poll::Ready(Some(Err(broken)));
        }
        polled.map(|frame| frame.map(|frame| frame.map(decent).map_err(|_| Broken::Client)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Stream(body) => body.inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            Self::Stream(body) => body.inner.size_hint(),
        }
    }
}

/// A part of a body as it may go on: trailers say nothing that heads have to.
fn decent(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        fields::strip_trailers(trailers);
    }
    frame
}

/// What happens when an answer is over, however it ends.
pub(crate) trait AtEnd {
    /// How many bytes of body went out, and whether all did.
    fn ended(self: Box<Self>, bytes: u64, is_whole: bool);

    /// Does something else after it.
    fn set_next(&mut self, _next: Option<Box<dyn AtEnd>>) {}
}

/// The body of an answer.
pub(crate) struct Answer {
    kind: Kind,
    /// The request under way that this is the answer of.
    watch: Option<Arc<Watch>>,
    at_end: Option<Box<dyn AtEnd>>,
    bytes: u64,
    is_whole: bool,
}

enum Kind {
    Text(Bytes),
    Stream {
        inner: Incoming,
        /// The connection that it comes by, to go back when it is over.
        lent: Option<Lent>,
        watch: Arc<Watch>,
        idle: Ticks,
        /// How long the client may take for the next part, if nobody else looks after that.
        patience: Option<Ticks>,
    },
}

impl Answer {
    /// A body that is there.
    pub(crate) fn text(text: impl Into<Bytes>) -> Self {
        Self::new(Kind::Text(text.into()))
    }

    /// A body that comes from an upstream.
    pub(crate) fn stream(
        inner: Incoming,
        lent: Option<Lent>,
        watch: Arc<Watch>,
        idle: Ticks,
    ) -> Self {
        Self::new(Kind::Stream { inner, lent, watch, idle, patience: None })
    }

    fn new(kind: Kind) -> Self {
        Self { kind, watch: None, at_end: None, bytes: 0, is_whole: false }
    }

    /// Writes down by when each part has to be taken, for whoever gives up the answer then. What is there
    /// already has one part, and is over when that is taken.
    pub(crate) fn limit(&mut self, watch: &Watch, most: Ticks) {
        watch.wait(Wait::Write, most);
        if let Kind::Stream { patience, .. } = &mut self.kind {
            *patience = Some(most);
        }
    }

    /// Ends a request under way with it.
    pub(crate) fn end_with(&mut self, watch: Arc<Watch>) {
        self.watch = Some(watch);
    }

    /// Does something once it is over, before what is done then already.
    pub(crate) fn keep(&mut self, mut first: impl AtEnd + 'static) {
        first.set_next(self.at_end.take());
        self.at_end = Some(Box::new(first));
    }

    /// Does something once it is over.
    pub(crate) fn do_after(&mut self, at_end: Box<dyn AtEnd>) {
        self.at_end = Some(at_end);
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let frame = match &mut this.kind {
            Kind::Text(text) if text.is_empty() => None,
            Kind::Text(text) => Some(Ok(Frame::data(std::mem::take(text)))),
            Kind::Stream { inner, watch, idle, patience, .. } => {
                if patience.is_some() {
                    watch.forgive(Wait::Write);
                }
                match Pin::new(inner).poll_frame(context) {
                    Poll::Pending if watch.is_late(Wait::Upstream) => Some(Err(Broken::Late)),
                    Poll::Pending => {
                        watch.wait_on(Wait::Upstream, *idle);
                        return Poll::Pending;
                    }
                    Poll::Ready(frame) => {
                        watch.rest(Wait::Upstream);
                        if let Some(most) = *patience {
                            watch.wait(Wait::Write, most);
                        }
                        frame.map(|frame| frame.map(decent).map_err(|_| Broken::Upstream))
                    }
                }
            }
        };
        match &frame {
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) => this.bytes += data.len() as u64,
                // Trailers are the end.
                None => this.is_whole = true,
            },
            Some(Err(_)) => {}
            None => this.is_whole = true,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Text(text) => text.is_empty(),
            Kind::Stream { inner, .. } => inner.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Text(text) => SizeHint::with_exact(text.len() as u64),
            Kind::Stream { inner, .. } => inner.size_hint(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let is_whole = self.is_whole || self.is_end_stream();
        if let Kind::Stream { lent, watch, .. } = &mut self.kind {
            watch.forgive(Wait::Upstream);
            // A connection that still has a part of an answer on it is of no use to others.
            if let Some(lent) = lent.take().filter(|_| is_whole) {
                lent.give_back();
            }
        }
        if let Some(at_end) = self.at_end.take() {
            at_end.ended(self.bytes, is_whole);
        }
        if let Some(watch) = self.watch.take() {
            watch.end_request();
        }
    }
}
