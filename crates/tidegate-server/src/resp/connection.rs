//! One connection: reads what there is, answers all of it in one write, and keeps nothing meanwhile.
//!
//! Bytes are read into a buffer of the thread, and answers are written into another. A connection has
//! memory of its own only for a command that has not come to its end, and for answers that the client
//! does not take, or that have yet to come from a store that is waited for.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::Resp;
use super::session::{Fed, Next, Session};
use crate::listen::Stream;

/// How many bytes are read at once.
const READ_MAX: usize = 64 * 1024;
/// How many bytes that have already arrived are still answered when the server drains.
const LAST_WORDS_MAX: usize = 1024 * 1024;
/// How long a connection that is being closed waits for the client to have read its last answers,
/// and how much of what the client still says it throws away.
const LINGER_MAX: Duration = Duration::from_millis(250);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// The buffers of a thread.
struct Scratch {
    input: Box<[u8]>,
    output: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: vec![0; READ_MAX].into(),
        output: Vec::new(),
    });
}

/// A connection between two reads.
struct Connection {
    stream: Stream,
    session: Session,
    /// A command that has not come to its end, or commands that wait for their answers to be taken.
    rest: Vec<u8>,
    /// How many bytes `rest` has to have to be worth another look.
    rest_least: usize,
    /// Answers that the client has not taken yet, and how many bytes of them it has.
    unsent: Vec<u8>,
    sent: usize,
    /// How many bytes were answered since the server drains.
    last_words: usize,
    /// Whether TLS may hold back what it was given to send.
    is_held: bool,
}

/// Serves a connection until the client leaves or the server drains.
pub(crate) async fn serve(stream: Stream, resp: Arc<Resp>) {
    let session = Session::new(resp.counts.connected());
    let mut connection = Connection {
        stream,
        session,
        rest: Vec::new(),
        rest_least: 0,
        unsent: Vec::new(),
        sent: 0,
        last_words: 0,
        is_held: false,
    };
    let _open = resp.counts.open_one();
    let mut drained = pin!(resp.drained());
    let mut is_waiting = false;
    let end = poll_fn(|context| {
        // Looked at once: it then wakes this task, whose waker stays the same.
        if !is_waiting {
            is_waiting = true;
            let _ = drained.as_mut().poll(context);
        }
        SCRATCH.with_borrow_mut(|scratch| connection.poll(context, &resp, scratch))
    })
    .await;
    match end {
        // Apart, since a task has the size of the largest thing it ever does.
        Ok(End::Ours) => Box::pin(linger(&mut connection.stream)).await,
        // All that there was has been read, so that closing throws away nothing.
        Ok(End::Drained) => drop(connection.stream.shutdown().await),
        Ok(End::Theirs) | Err(_) => {}
    }
}

/// Who ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has left.
    Theirs,
    /// The client was told that it was over.
    Ours,
    /// The server is about to end.
    Drained,
}

impl Connection {
    /// Goes on until there is nothing to do but to wait.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        resp: &Arc<Resp>,
        scratch: &mut Scratch,
    ) -> Poll<io::Result<End>> {
        loop {
            if !self.unsent.is_empty() {
                ready!(self.poll_unsent(context))?;
            }
            if self.is_held {
                // TLS says that it has written when it has only taken, and reading sends nothing.
                ready!(Pin::new(&mut self.stream).poll_flush(context))?;
                self.is_held = false;
            }
            if !self.session.pending.is_empty() {
                ready!(self.poll_pending(context, &mut scratch.output))?;
                continue;
            }
            if self.session.is_over {
                return Poll::Ready(Ok(End::Ours));
            }
            if !self.rest.is_empty() && self.rest.len() >= self.rest_least {
                // Commands that waited for room for their answers.
                let rest = std::mem::take(&mut self.rest);
                self.answer(context, resp, &rest, &mut scratch.output)?;
                continue;
            }
            let mut buffer = ReadBuf::new(&mut scratch.input);
            let read = match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(read) => read.map(|()| buffer.filled().len())?,
                Poll::Pending if resp.is_draining() => match self.last_words(scratch)? {
                    0 => return Poll::Ready(Ok(End::Drained)),
                    read => read,
                },
                Poll::Pending => return Poll::Pending,
            };
            if read == 0 {
                return Poll::Ready(Ok(End::Theirs));
            }
            let Scratch { input, output } = scratch;
            self.take_in(context, resp, &input[..read], output)?;
            if read == READ_MAX && !resp.is_draining() {
                // There is more, but others want to be served too.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Bytes that have just arrived.
    #[inline]
    fn take_in(
        &mut self,
        context: &mut Context<'_>,
        resp: &Arc<Resp>,
        bytes: &[u8],
        output: &mut Vec<u8>,
    ) -> io::Result<()> {
        if self.rest.is_empty() {
            return self.answer(context, resp, bytes, output);
        }
        self.rest.extend_from_slice(bytes);
        if self.rest.len() < self.rest_least {
            return Ok(());
        }
        let rest = std::mem::take(&mut self.rest);
        self.answer(context, resp, &rest, output)
    }

    /// Answers the commands that there are in one write, and keeps what is left of both.
    #[inline]
    fn answer(
        &mut self,
        context: &mut Context<'_>,
        resp: &Arc<Resp>,
        bytes: &[u8],
        output: &mut Vec<u8>,
    ) -> io::Result<()> {
        output.clear();
        let Fed { used, next } = self.session.feed(resp, bytes, output);
        if used < bytes.len() && next != Next::Close {
            self.rest = bytes[used..].to_vec();
            self.rest_least = if let Next::Read(least) = next { least } else { 0 };
        }
        self.send(context, output)
    }

    /// Sends answers, and keeps what the client does not take.
    #[inline]
    fn send(&mut self, context: &mut Context<'_>, output: &[u8]) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        self.is_held = matches!(self.stream, Stream::Tls(_));
        let sent = match Pin::new(&mut self.stream).poll_write(context, output) {
            Poll::Ready(sent) => sent?,
            Poll::Pending => 0,
        };
        if sent < output.len() {
            self.unsent = output[sent..].to_vec();
            self.sent = 0;
        }
        Ok(())
    }

    /// Goes on with what waits for the store, and sends those answers whose turn it is. Nothing is
    /// read meanwhile, so that what waits has a bound.
    fn poll_pending(
        &mut self,
        context: &mut Context<'_>,
        output: &mut Vec<u8>,
    ) -> Poll<io::Result<()>> {
        output.clear();
        let is_all = self.session.pending.poll(context, output);
        self.send(context, output)?;
        // What was not taken, or is held back by TLS, is sent before anything else is waited for.
        match is_all || !self.unsent.is_empty() || self.is_held {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Sends what the client did not take at once.
    #[cold]
    fn poll_unsent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.unsent.len() {
            let bytes = &self.unsent[self.sent..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.unsent = Vec::new();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// What has arrived but has not been announced yet; zero if there is nothing more to answer.
    #[cold]
    fn last_words(&mut self, scratch: &mut Scratch) -> io::Result<usize> {
        if self.last_words >= LAST_WORDS_MAX {
            return Ok(0);
        }
        let read = match self.stream.read_now(&mut scratch.input) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            read => read?,
        };
        self.last_words += read;
        Ok(read)
    }
}

/// Says that this was all, and lets the client read it: if a connection is closed while there is
/// something to read, the system may throw away what it still has to send.
async fn linger(stream: &mut Stream) {
    let _ = stream.flush().await;
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut left = LINGER_BYTES_MAX;
    let thrown_away = poll_fn(|context| {
        SCRATCH.with_borrow_mut(|scratch| {
            while left > 0 {
                let mut buffer = ReadBuf::new(&mut scratch.input);
                match ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer)) {
                    Ok(()) if !buffer.filled().is_empty() => {
                        left = left.saturating_sub(buffer.filled().len());
                    }
                    _ => break,
                }
            }
            Poll::Ready(())
        })
    });
    // It has had its time, whether it took it or not.
    let _ = tokio::time::timeout(LINGER_MAX, thrown_away).await;
}
