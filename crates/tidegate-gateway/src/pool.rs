//! Connections to upstreams: those of one thread, kept for the next request.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use crate::body::Sending;
use crate::passing::pass_writes;
use crate::socket::{self, Plain};
use crate::upstream::{Address, Protocol, Target, Upstream};
use crate::watch::now;

/// The connections of one thread to all upstreams.
pub(crate) struct Pools {
    upstreams: Vec<PerUpstream>,
}

struct PerUpstream {
    shared: Arc<Upstream>,
    turn: Cell<usize>,
    addresses: Vec<PerAddress>,
}

#[derive(Default)]
struct PerAddress {
    idle: RefCell<Vec<Conn>>,
    /// One connection carries them all; those behind it are at the end of their streams.
    http2: RefCell<Option<http2::SendRequest<Sending>>>,
    open: Rc<Cell<usize>>,
}

/// A connection for one request at a time.
pub(crate) struct Conn {
    pub(crate) sender: http1::SendRequest<Sending>,
    /// Bytes that have come by it.
    pub(crate) came: Arc<AtomicU64>,
    born: u32,
    idle_since: u32,
}

/// What a request can be sent by.
pub(crate) enum Way {
    Http1 { conn: Conn, is_reused: bool },
    Http2(http2::SendRequest<Sending>),
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoWay {
    /// Nobody answers there.
    Refused,
    /// Nobody answers in time.
    Late,
    /// There are as many as there may be.
    Full,
}

impl Pools {
    pub(crate) fn new(upstreams: &[Arc<Upstream>]) -> Self {
        let each = |shared: &Arc<Upstream>| PerUpstream {
            turn: Cell::new(0),
            addresses: shared.addresses.iter().map(|_| PerAddress::default()).collect(),
            shared: Arc::clone(shared),
        };
        Self { upstreams: upstreams.iter().map(each).collect() }
    }

    pub(crate) fn upstream(&self, upstream: usize) -> &Arc<Upstream> {
        &self.upstreams[upstream].shared
    }

    /// The address whose turn it is.
    pub(crate) fn next_address(&self, upstream: usize) -> usize {
        let upstream = &self.upstreams[upstream];
        if upstream.addresses.len() == 1 {
            return 0;
        }
        let turn = upstream.turn.get();
        upstream.turn.set(turn.wrapping_add(1));
        upstream.shared.choose(turn)
    }

    /// A connection that was used before, if one is there.
    pub(crate) async fn reuse(&self, upstream: usize, address: usize) -> Option<Way> {
        let PerUpstream { shared, addresses, .. } = &self.upstreams[upstream];
        let of = &addresses[address];
        if let Some(sender) = of.http2.borrow().as_ref().filter(|sender| !sender.is_closed()) {
            return Some(Way::Http2(sender.clone()));
        }
        loop {
            let conn = of.idle.borrow_mut().pop()?;
            if conn.sender.is_closed()
                || shared.age_max.is_over(conn.born)
                || shared.idle_for.is_over(conn.idle_since)
            {
                continue;
            }
            if !conn.sender.is_ready() {
                // Its last answer has been read to the end, and its task only has to notice. If it
                // does not, it is still sending a request that nobody reads any more.
                tokio::task::yield_now().await;
            }
            if conn.sender.is_ready() {
                return Some(Way::Http1 { conn, is_reused: true });
            }
        }
    }

    /// A new connection.
    pub(crate) async fn connect(
        &self,
        upstream: usize,
        address: usize,
        most: Duration,
    ) -> Result<Way, NoWay> {
        let PerUpstream { shared, addresses, .. } = &self.upstreams[upstream];
        let of = &addresses[address];
        let place = Place::take(&of.open, shared.connections_max).ok_or(NoWay::Full)?;
        let dialled = dial(&shared.addresses[address], place);
        match tokio::time::timeout(most, dialled).await {
            Ok(Ok(way)) => {
                if let Way::Http2(sender) = &way {
                    *of.http2.borrow_mut() = Some(sender.clone());
                }
                Ok(way)
            }
            Ok(Err(error)) => {
                let address = &shared.addresses[address].name;
                tracing::debug!(%address, %error, "cannot connect to an upstream");
                Err(NoWay::Refused)
            }
            Err(_) => Err(NoWay::Late),
        }
    }

    /// Lends a connection to an answer that comes by it.
    pub(crate) fn lend(self: &Rc<Self>, upstream: usize, address: usize, conn: Conn) -> Lent {
        Lent { pools: Rc::clone(self), upstream, address, conn }
    }

    /// Closes what has been idle for too long.
    pub(crate) fn tidy(&self) {
        for PerUpstream { shared, addresses, .. } in &self.upstreams {
            for of in addresses {
                of.idle.borrow_mut().retain(|conn| {
                    !conn.sender.is_closed()
                        && !shared.idle_for.is_over(conn.idle_since)
                        && !shared.age_max.is_over(conn.born)
                });
                let mut http2 = of.http2.borrow_mut();
                if http2.as_ref().is_some_and(http2::SendRequest::is_closed) {
                    *http2 = None;
                }
            }
        }
    }
}

/// A connection that an answer comes by.
pub(crate) struct Lent {
    pools: Rc<Pools>,
    upstream: usize,
    address: usize,
    conn: Conn,
}

impl Lent {
    /// Keeps it for the next request, if there is room.
    pub(crate) fn give_back(self) {
        let Self { pools, upstream, address, mut conn } = self;
        let PerUpstream { shared, addresses, .. } = &pools.upstreams[upstream];
        if conn.sender.is_closed() || shared.age_max.is_over(conn.born) {
            return;
        }
        let mut idle = addresses[address].idle.borrow_mut();
        if idle.len() < shared.idle_max {
            conn.idle_since = now();
            idle.push(conn);
        }
    }
}

/// A place among the connections to an address.
struct Place(Rc<Cell<usize>>);

impl Place {
    fn take(open: &Rc<Cell<usize>>, most: usize) -> Option<Self> {
        if open.get() >= most {
            return None;
        }
        open.set(open.get() + 1);
        Some(Self(Rc::clone(open)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn dial(address: &Address, place: Place) -> io::Result<Way> {
    let plain = match &address.target {
        Target::Known(known) => socket::tcp(TcpStream::connect(known).await?),
        Target::Named(name, port) => socket::tcp(TcpStream::connect((name.as_str(), *port)).await?),
        Target::Unix(path) => Plain::Right(UnixStream::connect(path).await?),
    };
    let came = Arc::new(AtomicU64::new(0));
    let (stream, agreed) = match &address.tls {
        None => (Stream::Left(plain), None),
        Some((connector, name)) => {
            let stream = connector.connect(name.clone(), plain).await?;
            let agreed = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            (Stream::Right(Box::new(stream)), agreed)
        }
    };
    let is_http2 = match address.protocol {
        Protocol::Http1 => false,
        Protocol::Http2 => true,
        Protocol::Agreed => agreed.as_deref() == Some(b"h2"),
    };
    let io = TokioIo::new(Tallied { stream, came: Arc::clone(&came) });
    if is_http2 {
        let (sender, conn) = http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(10))
            .handshake(io)
            .await
            .map_err(io::Error::other)?;
        tokio::task::spawn_local(async move {
            let _place = place;
            // Whoever had a request on it has been told.
            let _ = conn.await;
        });
        return Ok(Way::Http2(sender));
    }
    let (sender, conn) = http1::handshake(io).await.map_err(io::Error::other)?;
    tokio::task::spawn_local(async move {
        let _place = place;
        // Whoever had a request on it has been told.
        let _ = conn.with_upgrades().await;
    });
    let conn = Conn { sender, came, born: now(), idle_since: now() };
    Ok(Way::Http1 { conn, is_reused: false })
}

/// Runs tasks on the thread that they are made on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, task: F) {
        tokio::task::spawn_local(task);
    }
}

/// A connection to an upstream, with or without TLS.
type Stream = Either<Plain, Box<TlsStream<Plain>>>;

/// A connection that counts what comes: a request is tried again only if nothing did.
struct Tallied {
    stream: Stream,
    came: Arc<AtomicU64>,
}

impl AsyncRead for Tallied {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let done = Pin::new(&mut this.stream).poll_read(context, buffer);
        let some = buffer.filled().len() - before;
        // Nobody else writes to it.
        this.came.store(this.came.load(Relaxed).wrapping_add(some as u64), Relaxed);
        done
    }
}

pass_writes!([] Tallied, stream);
