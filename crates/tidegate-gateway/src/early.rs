//! A stream of which some bytes were read already, to find out what is spoken.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::passing::pass_writes;

/// A stream of which some bytes were read already.
#[derive(Debug)]
pub(crate) struct Early<T> {
    pub(crate) early: Vec<u8>,
    pub(crate) inner: T,
}

impl<T: AsyncRead + Unpin> AsyncRead for Early<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.early.is_empty() {
            return Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        let some = this.early.len().min(buffer.remaining());
        buffer.put_slice(&this.early[..some]);
        this.early.drain(..some);
        if this.early.is_empty() {
            this.early = Vec::new();
        }
        Poll::Ready(Ok(()))
    }
}

pass_writes!([T] Early<T>, inner);
