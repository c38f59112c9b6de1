//! A client's connection, with the scanner between it and the HTTP library.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::early::Early;
use crate::scan::{Fault, Scanner, Sizes};
use crate::socket::Plain;
use crate::watch::{Mode, Ticks, Wait, Watch};

/// What stands in for a request that is refused before it is parsed. The scanner lets no client
/// send it, so whoever gets it knows what it means; so refusals are answered in their turn, after
/// the requests before them.
const STAND_IN: &[u8] = b"GET * HTTP/1.1\r\nhost: -\r\nconnection: close\r\n\r\n";

/// How much of something that is not HTTP is read before it is known what it is.
const EARLY_MAX: usize = 64 * 1024;

/// How much a client may still send after its last answer, before the connection is cut: what one that is
/// in the middle of sending may send until it comes to read.
const LINGER_BYTES: usize = 64 << 20;

/// How many bytes of a head and a body are brought together before they are written: less than what it
/// costs the system to gather them, and with TLS one record instead of two.
const TOGETHER_MAX: usize = 4096;

thread_local! {
    static TOGETHER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether a request stands in for one that was refused.
pub(crate) fn is_stand_in(method: &http::Method, target: &http::Uri) -> bool {
    *method == http::Method::GET && target.path() == "*"
}

/// A connection, with or without TLS.
pub(crate) type Stream = Either<Plain, Box<TlsStream<Early<Plain>>>>;

/// How long a client may take, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) head: Ticks,
    pub(crate) body: Ticks,
    pub(crate) idle: Ticks,
    pub(crate) write: Ticks,
    pub(crate) linger: Ticks,
}

/// A connection whose requests are scanned.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Stream,
    scanner: Scanner,
    watch: Arc<Watch>,
    pace: Pace,
    /// What was read and has not gone on; the first `ready` bytes may.
    held: Vec<u8>,
    ready: usize,
    /// Whether the stand-in has been given.
    is_over: bool,
    /// How much more is read and thrown away, once nothing is written any more.
    lingering: Option<usize>,
}

impl Wire {
    /// A connection of which some bytes were read already.
    pub(crate) fn new(
        stream: Stream,
        early: Vec<u8>,
        sizes: Sizes,
        pace: Pace,
        watch: Arc<Watch>,
    ) -> Self {
        let mut scanner = Scanner::new(sizes);
        let ready = scanner.look(&early);
        if scanner.is_parked() {
            watch.set_mode(Mode::Parked);
        }
        Self { stream, scanner, watch, pace, held: early, ready, is_over: false, lingering: None }
    }

    /// Gives what is held, as far as it may go on.
    fn give(&mut self, most: usize, buffer: &mut ReadBuf<'_>) {
        let some = most.min(buffer.remaining());
        buffer.put_slice(&self.held[..some]);
        self.held.drain(..some);
        self.ready = self.ready.saturating_sub(some);
    }

    /// Reads behind what is held. Whether anything came; if not, the client sends no more.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut room = [0; 4096];
        let mut buffer = ReadBuf::new(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        self.held.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(!buffer.filled().is_empty()))
    }

    /// Looks at everything that is held.
    fn look(&mut self) {
        self.ready = self.scanner.look(&self.held);
    }

    fn poll_scanned(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.ready > 0 {
                self.give(self.ready, buffer);
                return Poll::Ready(Ok(()));
            }
            if let Some(fault) = self.scanner.fault() {
                // Behind the stand-in nothing comes any more, but the client is still there.
                return match self.is_over {
                    true => Poll::Pending,
                    false => Poll::Ready(self.refuse(fault, buffer)),
                };
            }
            if self.scanner.is_parked() {
                if self.watch.mode() == Mode::Parked {
                    if self.held.len() >= EARLY_MAX || !ready!(self.poll_more(context))? {
                        return Poll::Ready(Ok(()));
                    }
                } else {
                    self.scanner.go_on();
                    self.look();
                    // There may be another of its kind behind it.
                    if self.scanner.is_parked() {
                        self.watch.set_mode(Mode::Parked);
                    }
                    continue;
                }
            } else if self.held.is_empty() {
                let before = buffer.filled().len();
                ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
                let came = &buffer.filled()[before..];
                let good = self.scanner.look(came);
                if good < came.len() {
                    self.held.extend_from_slice(&came[good..]);
                    buffer.set_filled(before + good);
                } else if good == 0 {
                    return Poll::Ready(Ok(()));
                }
                if self.scanner.is_parked() {
                    self.watch.set_mode(Mode::Parked);
                }
                if good > 0 {
                    return Poll::Ready(Ok(()));
                }
                // A head has begun, and has to be done with in time.
                self.watch.wait(Wait::Read, self.pace.head);
            } else {
                if !ready!(self.poll_more(context))? {
                    return Poll::Ready(Ok(()));
                }
                self.look();
                if self.scanner.is_parked() {
                    self.watch.set_mode(Mode::Parked);
                }
            }
        }
    }

    /// Gives the stand-in where a request would be; a body is broken off.
    fn refuse(&mut self, fault: Fault, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        self.watch.set_fault(fault);
        self.is_over = true;
        if fault == Fault::Chunk || buffer.remaining() < STAND_IN.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        buffer.put_slice(STAND_IN);
        Ok(())
    }

    /// What to do about a client that is late.
    fn late(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        self.watch.forgive(Wait::Read);
        if !self.scanner.is_at_head() {
            self.watch.set_fault(Fault::Late);
            return Err(io::ErrorKind::TimedOut.into());
        }
        if self.held.is_empty() {
            // Nothing was begun, so there is nothing to answer.
            return Ok(());
        }
        self.held.clear();
        self.scanner.refuse(Fault::Late);
        self.refuse(Fault::Late, buffer)
    }

    /// Throws away what a client still sends that has its last answer. To cut a connection with
    /// bytes unread would make the system throw away the answer on its way.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut room = [0; 4096];
        while let Some(left @ 1..) = self.lingering
            && !self.watch.is_late(Wait::Read)
        {
            let mut buffer = ReadBuf::new(&mut room);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            let some = buffer.filled().len();
            self.lingering = Some(if some == 0 { 0 } else { left.saturating_sub(some) });
        }
        Poll::Ready(Ok(()))
    }

    /// Writes down how long the next byte may take.
    fn await_read(&self) {
        if !self.scanner.is_at_head() {
            self.watch.wait(Wait::Read, self.pace.body);
        } else if !self.held.is_empty() {
            self.watch.wait_on(Wait::Read, self.pace.head);
        } else if self.watch.is_in_flight() {
            self.watch.rest(Wait::Read);
        } else {
            self.watch.wait_on(Wait::Read, self.pace.idle);
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.watch.mode() == Mode::Tunnel {
            if this.held.is_empty() {
                return Pin::new(&mut this.stream).poll_read(context, buffer);
            }
            this.give(this.held.len(), buffer);
            return Poll::Ready(Ok(()));
        }
        if this.watch.is_late(Wait::Read) {
            if this.watch.is_in_flight() && this.scanner.is_at_head() && this.held.is_empty() {
                // It was a request that came just in time.
                this.watch.forgive(Wait::Read);
            } else {
                return Poll::Ready(this.late(buffer));
            }
        }
        let done = this.poll_scanned(context, buffer);
        match done {
            Poll::Ready(_) => this.watch.rest(Wait::Read),
            Poll::Pending => this.await_read(),
        }
        done
    }
}

impl Wire {
    /// Writes down how long the client may take to take what is written.
    fn written<T>(&self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match done {
            Poll::Ready(_) => self.watch.rest(Wait::Write),
            Poll::Pending if self.watch.is_late(Wait::Write) => {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            Poll::Pending => self.watch.wait_on(Wait::Write, self.pace.write),
        }
        done
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.written(done)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let stream = Pin::new(&mut this.stream);
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let done = match length <= TOGETHER_MAX {
            true => TOGETHER.with_borrow_mut(|together| {
                together.clear();
                parts.iter().for_each(|part| together.extend_from_slice(part));
                stream.poll_write(context, together)
            }),
            false => stream.poll_write_vectored(context, parts),
        };
        this.written(done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_flush(context);
        this.written(done)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let is_clean = this.scanner.is_at_head() && this.held.is_empty();
        if is_clean || this.watch.mode() == Mode::Tunnel {
            return Pin::new(&mut this.stream).poll_shutdown(context);
        }
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            this.lingering = Some(LINGER_BYTES);
            this.watch.forgive(Wait::Read);
            this.watch.wait(Wait::Read, this.pace.linger);
        }
        this.poll_linger(context)
    }
}
