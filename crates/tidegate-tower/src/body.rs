//! The body of an answer: that of the service, or the text of a refusal.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tidegate::Held;

pin_project! {
    /// The body of an answer.
    ///
    /// It keeps the permits of concurrency limits until it has come to its end or is dropped.
    pub struct LimitBody<B> {
        #[pin]
        body: Kind<B>,
        held: Option<Box<Held>>,
    }
}

pin_project! {
    #[project = KindProjected]
    enum Kind<B> {
        /// What the service answered.
        Inner { #[pin] body: B },
        /// Why it was not asked.
        Text { text: Option<Bytes> },
    }
}

impl<B> LimitBody<B> {
    pub(crate) fn inner(body: B, held: Option<Held>) -> Self {
        Self { body: Kind::Inner { body }, held: held.map(Box::new) }
    }

    pub(crate) fn text(text: Bytes) -> Self {
        Self { body: Kind::Text { text: Some(text).filter(|text| !text.is_empty()) }, held: None }
    }
}

impl<B: Body<Data: From<Bytes>>> Body for LimitBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        match this.body.project() {
            KindProjected::Inner { body } => {
                let polled = body.poll_frame(context);
                if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    *this.held = None;
                }
                polled
            }
            KindProjected::Text { text } => {
                Poll::Ready(text.take().map(|text| Ok(Frame::data(text.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Text { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Kind::Inner { body } => body.size_hint(),
            Kind::Text { text } => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

impl<B> fmt::Debug for LimitBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Kind::Inner { .. } => f.write_str("LimitBody(..)"),
            Kind::Text { text } => f.debug_tuple("LimitBody").field(text).finish(),
        }
    }
}
