//! The task of one connection: writes what there is to write in one go, and hands out replies.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::time::{Duration, Instant, Sleep, sleep_until};

use super::dial::{Conversation, Stream};
use super::link::{Link, State};
use super::node::Failure;
use super::resp::Parser;
use super::{ClientError, Reply};

/// A connection that gives no reply for so long, while some are due, is dropped.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// How often that is looked at.
const SILENCE_LOOK: Duration = Duration::from_millis(100);
const READ_LEN: usize = 32 << 10;
/// So many replies are handed out together.
const BATCH: usize = 256;

/// Connects, and then does what commands need until the connection ends or is not wanted.
pub(super) async fn drive(link: Arc<Link>, again: bool) {
    let mut end = End { link: Arc::clone(&link), connected: false, why: None };
    let mut clock = Clock::new();
    let connected = {
        let mut connecting = Box::pin(link.node.connect());
        // Those who wait for the connection have their deadlines too.
        poll_fn(|context| {
            if let Poll::Ready(connected) = connecting.as_mut().poll(context) {
                return Poll::Ready(Some(connected));
            }
            if rest(&link, context, false) == Rest::Done {
                return Poll::Ready(None);
            }
            clock.poll(&link, context);
            Poll::Pending
        })
        .await
    };
    let conversation = match connected {
        Some(Ok(conversation)) => conversation,
        Some(Err(why)) => return end.failed(why),
        None => return,
    };
    end.begun(again);
    let mut driver = Driver::new(link, conversation, clock);
    if let Err(error) = poll_fn(|context| driver.poll(context)).await {
        end.failed(error.to_string());
    }
}

/// What there is to do next.
#[derive(Debug, PartialEq, Eq)]
enum Rest {
    /// There is something to write.
    Write,
    /// The link is to end, and nothing is due.
    Done,
    /// Nothing: whoever has a command is going to wake us.
    Sleep,
}

fn rest(link: &Link, context: &mut Context<'_>, can_write: bool) -> Rest {
    let mut inner = link.lock();
    if can_write && inner.queue.has_output() {
        return Rest::Write;
    }
    if inner.state != State::Open && inner.queue.len() == 0 {
        return Rest::Done;
    }
    match &mut inner.driver {
        Some(known) => known.clone_from(context.waker()),
        none => *none = Some(context.waker().clone()),
    }
    inner.asleep = true;
    Rest::Sleep
}

/// What is done when a connection ends, also if that is because its runtime does.
struct End {
    link: Arc<Link>,
    connected: bool,
    why: Option<String>,
}

impl End {
    fn begun(&mut self, again: bool) {
        let (node, stats) = (&self.link.node, &self.link.node.common.stats);
        self.connected = true;
        stats.connections.add(1);
        if again {
            stats.reconnects.add(1);
            tracing::debug!(redis = %node.address, "connected again");
        }
    }

    fn failed(&mut self, why: String) {
        self.why = Some(why);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let (node, stats) = (&self.link.node, &self.link.node.common.stats);
        let mut wakers = Vec::new();
        let mut inner = self.link.lock();
        // One that was being closed has been replaced: its end says nothing of the node.
        let is_replaced = inner.state == State::Closing;
        inner.state = State::Dead;
        inner.driver = None;
        let (due, sent) = (inner.queue.len(), inner.queue.sent());
        let lost = self.why.clone().unwrap_or_else(|| "its runtime ended".to_owned());
        inner.queue.fail_all(&ClientError::Lost(lost), &ClientError::Down, &mut wakers);
        drop(inner);
        stats.in_flight.sub(sent as u64);
        stats.connections.sub(u64::from(self.connected));
        if let Some(why) = self.why.take() {
            match self.connected {
                // The server, or something on the way, ends connections that are not used.
                _ if is_replaced => tracing::debug!(redis = %node.address, why, "given up"),
                true if due == 0 => tracing::debug!(redis = %node.address, why, "disconnected"),
                true => node.fail(Failure::Lost(why)),
                false => node.fail(Failure::Refused(why)),
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The one timer of a link: for the next deadline, and for silence.
struct Clock {
    sleep: Pin<Box<Sleep>>,
    armed: bool,
    /// Whether anything was heard since the clock last looked, and when that last was so.
    heard: bool,
    heard_at: Instant,
    wakers: Vec<Waker>,
}

impl Clock {
    fn new() -> Self {
        let now = Instant::now();
        let sleep = Box::pin(sleep_until(now));
        Self { sleep, armed: false, heard: true, heard_at: now, wakers: Vec::new() }
    }

    /// Answers those whose time is up, and sees to it that we are woken for the next. Whether the
    /// other side has been silent for too long.
    ///
    /// The timer is not set anew for every command: it may ring too early and is set then.
    fn poll(&mut self, link: &Link, context: &mut Context<'_>) -> bool {
        loop {
            if !self.armed {
                let inner = link.lock();
                let next = match inner.queue.next_deadline() {
                    Some(deadline) => deadline,
                    None if inner.queue.len() > 0 => Instant::now() + SILENCE_LOOK,
                    None => {
                        // Silence begins with the next command.
                        self.heard = true;
                        return false;
                    }
                };
                drop(inner);
                self.sleep.as_mut().reset(next);
                self.armed = true;
            }
            if self.sleep.as_mut().poll(context).is_pending() {
                return false;
            }
            self.armed = false;
            if self.ring(link) {
                return true;
            }
        }
    }

    fn ring(&mut self, link: &Link) -> bool {
        let now = Instant::now();
        let mut inner = link.lock();
        let missed = inner.queue.expire(now, &mut self.wakers);
        if std::mem::take(&mut self.heard) || inner.queue.len() == 0 {
            self.heard_at = now;
        }
        drop(inner);
        self.wakers.drain(..).for_each(Waker::wake);
        if missed > 0 {
            link.node.missed(missed, now);
        }
        now.duration_since(self.heard_at) >= SILENCE_MAX
    }
}

/// A connection that is up.
struct Driver {
    link: Arc<Link>,
    stream: Stream,
    /// What is being written, from `written` on.
    output: Vec<u8>,
    written: usize,
    input: BytesMut,
    parser: Parser,
    replies: Vec<Result<Reply, ClientError>>,
    clock: Clock,
}

impl Driver {
    fn new(link: Arc<Link>, conversation: Conversation, clock: Clock) -> Self {
        let Conversation { stream, buffer: input, .. } = conversation;
        Self {
            link,
            stream,
            output: Vec::new(),
            written: 0,
            input,
            parser: Parser::default(),
            replies: Vec::with_capacity(BATCH),
            clock,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while let Poll::Ready(result) = self.poll_read(context) {
                result?;
            }
            let written = match self.poll_write(context) {
                Poll::Ready(result) => result.map(|()| true)?,
                Poll::Pending => false,
            };
            match rest(&self.link, context, written) {
                Rest::Write => continue,
                Rest::Done => return Poll::Ready(Ok(())),
                Rest::Sleep => {}
            }
            if self.clock.poll(&self.link, context) {
                let why = format!("no reply for {SILENCE_MAX:?}");
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)));
            }
            return Poll::Pending;
        }
    }

    /// Writes all that there is.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.output.is_empty() {
            let mut inner = self.link.lock();
            if !inner.queue.has_output() {
                return Poll::Ready(Ok(()));
            }
            let count = inner.queue.take_output(&mut self.output) as u64;
            drop(inner);
            let stats = &self.link.node.common.stats;
            stats.sent.add(count);
            stats.in_flight.add(count);
        }
        while let Some(left) = self.output.get(self.written..)
            && !left.is_empty()
        {
            match ready!(Pin::new(&mut self.stream).poll_write(context, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.written += n,
            }
        }
        // Only TLS holds anything back.
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.output.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Reads what has come, and hands it out.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What is in use by those who wait cannot be used again, so it is not asked for too often.
        if self.input.capacity() - self.input.len() < READ_LEN / 8 {
            self.input.reserve(READ_LEN);
        }
        let reading = pin!(self.stream.read_buf(&mut self.input));
        if ready!(reading.poll(context))? == 0 {
            let why = "the server closed it";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, why)));
        }
        loop {
            while self.replies.len() < BATCH
                && let Some(reply) = self.parser.take(&mut self.input).map_err(io::Error::other)?
            {
                self.replies.push(reply);
            }
            let count = self.replies.len();
            self.hand_out()?;
            if count < BATCH {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn hand_out(&mut self) -> io::Result<()> {
        let node = &self.link.node;
        let stats = &node.common.stats;
        for reply in &self.replies {
            if let Err(ClientError::Reply(text)) = reply {
                node.hear_error(text);
            }
        }
        let wakers = &mut self.clock.wakers;
        let delivered = self.link.lock().queue.deliver(self.replies.drain(..), wakers);
        stats.in_flight.sub(delivered.count as u64);
        self.clock.heard |= delivered.count > 0;
        if delivered.in_time > 0 {
            node.succeeded();
        }
        match delivered.script {
            None => {}
            Some(Ok(_)) => stats.scripts_loaded.add(1),
            Some(Err(error)) => {
                tracing::warn!(redis = %node.address, %error, "the script cannot be loaded");
            }
        }
        wakers.drain(..).for_each(Waker::wake);
        match delivered.unasked {
            false => Ok(()),
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "a reply answers nothing")),
        }
    }
}
