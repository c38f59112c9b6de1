//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Body, Frame};
use tonic::Status;

/// The body of an answer: nothing, one message with the word that all is well, or whatever tonic
/// makes.
#[derive(Default)]
pub(super) enum AnswerBody {
    #[default]
    Empty,
    Message(Bytes),
    Well,
    Other(tonic::body::Body),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Self::Other(body) = &mut *self {
            return Pin::new(body).poll_frame(context);
        }
        Poll::Ready(match std::mem::take(&mut *self) {
            Self::Message(message) => {
                *self = Self::Well;
                Some(Ok(Frame::data(message)))
            }
            Self::Well => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
                Some(Ok(Frame::trailers(trailers)))
            }
            Self::Empty | Self::Other(_) => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Message(_) | Self::Well => false,
            Self::Other(body) => body.is_end_stream(),
        }
    }
}
