//! Listeners and the connections that come in by them.

use std::future::Future;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::address::Address;
use crate::config::TlsFiles;
use crate::drain::Drain;
use crate::front_end::FrontEnd;
use crate::lanes::Lanes;
use crate::metrics::Metrics;
use crate::server::StartError;
use crate::tls::{TlsError, server_config};
use crate::unix::{SocketFile, bind_unix};

/// How long a client may take to agree on TLS.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// How long accepting pauses when the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(50);
/// After how much silence the system asks whether the other side is still there, and how often
/// before the connection is given up.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);

/// A place that connections of one front end come in by.
pub(crate) struct Listener {
    front_end: FrontEnd,
    socket: Socket,
    tls: Option<Arc<Tls>>,
    /// Who serves its connections; the runtime that accepts them if nobody.
    lanes: Option<Arc<Lanes>>,
}

enum Socket {
    Tcp(TcpListener),
    Unix { listener: UnixListener, file: SocketFile },
}

/// TLS of a listener; its certificate can be changed while it is in use.
pub(crate) struct Tls {
    files: TlsFiles,
    protocols: &'static [&'static [u8]],
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads the files again. If anything is wrong with them, all stays as it is.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        self.config.store(server_config(&self.files, self.protocols)?);
        Ok(())
    }
}

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Somebody at an address.
    Ip(SocketAddr),
    /// Somebody on this machine, by a Unix socket.
    Unix,
}

impl Peer {
    /// Whether it is on this machine.
    pub(crate) fn is_local(self) -> bool {
        match self {
            Self::Ip(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix => true,
        }
    }
}

impl Listener {
    /// Binds an address; `None` if the front end is off.
    pub(crate) async fn bind(
        front_end: FrontEnd,
        address: &Address,
        tls: Option<&TlsFiles>,
        protocols: &'static [&'static [u8]],
    ) -> Result<Option<Self>, StartError> {
        let failed = |source| StartError::Bind { front_end, address: address.to_string(), source };
        let socket = match address {
            Address::Off => return Ok(None),
            Address::Tcp(address) => Socket::Tcp(TcpListener::bind(address).await.map_err(failed)?),
            Address::Unix(path) => {
                let (listener, file) = bind_unix(path).map_err(failed)?;
                Socket::Unix { listener: UnixListener::from_std(listener).map_err(failed)?, file }
            }
        };
        let tls = match tls {
            None => None,
            Some(files) => {
                let config = server_config(files, protocols)?.into();
                Some(Arc::new(Tls { files: files.clone(), protocols, config }))
            }
        };
        Ok(Some(Self { front_end, socket, tls, lanes: None }))
    }

    /// Lets these threads serve its connections.
    pub(crate) fn on(mut self, lanes: Option<&Arc<Lanes>>) -> Self {
        self.lanes = lanes.cloned();
        self
    }

    /// Where it listens, with the real port.
    pub(crate) fn address(&self) -> Address {
        match &self.socket {
            Socket::Tcp(listener) => {
                let address = listener.local_addr().map(|address| address.to_string());
                Address::Tcp(address.unwrap_or_default())
            }
            Socket::Unix { file, .. } => Address::Unix(file.path().to_owned()),
        }
    }

    /// Its TLS, for those who change certificates.
    pub(crate) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// Gives every connection to `handle`, each in a task of its own, until the server drains.
    /// Beyond `connections_max` new ones are closed at once, and counted.
    pub(crate) async fn serve<F, H>(
        self,
        drain: Drain,
        metrics: Arc<Metrics>,
        connections_max: usize,
        handle: F,
    ) where
        F: Fn(Stream, Peer) -> H + Clone + Send + 'static,
        H: Future<Output = ()> + Send + 'static,
    {
        let (tracker, lanes) = (drain.tracker().clone(), self.lanes.clone());
        let spawn = |accepted: Accepted| {
            let handle = handle.clone();
            let Some(lanes) = &lanes else {
                tracker.spawn(async move {
                    let Accepted { stream, peer, tls, place: _place } = accepted;
                    if let Some(stream) = agree(stream, tls.as_deref()).await {
                        handle(stream, peer).await;
                    }
                });
                return;
            };
            let peer = accepted.peer;
            let Some(loose) = accepted.let_loose() else { return };
            lanes.spawn(tracker.track_future(async move {
                if let Some((stream, _place)) = loose.agree().await {
                    handle(stream, peer).await;
                }
            }));
        };
        self.accept_all(drain, metrics, connections_max, spawn).await;
    }

    async fn accept_all(
        self,
        drain: Drain,
        metrics: Arc<Metrics>,
        connections_max: usize,
        mut take: impl FnMut(Accepted),
    ) {
        let mut end = std::pin::pin!(drain.begun());
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let (stream, peer) = tokio::select! {
                biased;
                () = &mut end => break,
                accepted = self.accept() => match accepted {
                    Ok(accepted) => accepted,
                    // Those who left again before they were accepted.
                    Err(error) if is_of_one_connection(&error) => continue,
                    Err(error) => {
                        metrics.accept_failed(self.front_end);
                        tracing::warn!(front_end = self.front_end.as_str(), %error, "cannot accept");
                        tokio::time::sleep(NO_ROOM_PAUSE).await;
                        continue;
                    }
                },
            };
            if open.load(Ordering::Relaxed) >= connections_max {
                metrics.turned_away(self.front_end);
                continue;
            }
            let place = Place::take(&open, &metrics, self.front_end);
            take(Accepted { stream, peer, tls: self.tls.clone(), place });
        }
    }

    async fn accept(&self) -> io::Result<(Plain, Peer)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // Neither is worth losing a client over.
                let _ = stream.set_nodelay(true);
                let keepalive =
                    TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
                let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
                Ok((Plain::Tcp(stream), Peer::Ip(address)))
            }
            Socket::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                Ok((Plain::Unix(stream), Peer::Unix))
            }
        }
    }
}

/// Whether an error of accepting is about a single connection, which is gone.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Agrees on TLS, where that is spoken; `None` if the client does not get it done.
async fn agree(stream: Plain, tls: Option<&Tls>) -> Option<Stream> {
    let (tls, tcp) = match (tls, stream) {
        (None, Plain::Tcp(stream)) => return Some(Stream::Tcp(stream)),
        (_, Plain::Unix(stream)) => return Some(Stream::Unix(stream)),
        (Some(tls), Plain::Tcp(stream)) => (tls, stream),
    };
    let acceptor = TlsAcceptor::from(tls.config.load_full());
    match tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(tcp)).await {
        Ok(Ok(stream)) => Some(Stream::Tls(Box::new(stream))),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a client did not get through the TLS handshake");
            None
        }
        Err(_) => None,
    }
}

/// A connection that has just come in.
struct Accepted {
    stream: Plain,
    peer: Peer,
    tls: Option<Arc<Tls>>,
    place: Place,
}

impl Accepted {
    /// Takes it from the runtime. One that cannot be let go of is of no use to anybody.
    fn let_loose(self) -> Option<Loose> {
        let Self { stream, peer: _, tls, place } = self;
        Some(Loose { stream: stream.let_loose().ok()?, tls, place })
    }
}

/// A connection that belongs to no runtime.
struct Loose {
    stream: LooseStream,
    tls: Option<Arc<Tls>>,
    place: Place,
}

enum LooseStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Loose {
    /// Makes it one of this runtime, and agrees on TLS where that is spoken; `None` if the client
    /// does not get it done.
    async fn agree(self) -> Option<(Stream, Place)> {
        let stream = match self.stream {
            LooseStream::Tcp(stream) => Plain::Tcp(TcpStream::from_std(stream).ok()?),
            LooseStream::Unix(stream) => Plain::Unix(UnixStream::from_std(stream).ok()?),
        };
        let stream = match (stream, &self.tls) {
            (Plain::Tcp(stream), None) => Stream::Tcp(stream),
            (Plain::Unix(stream), _) => Stream::Unix(stream),
            // A handshake takes a lot of room, which the task is not to keep.
            (stream, Some(tls)) => Box::pin(agree(stream, Some(tls))).await?,
        };
        Some((stream, self.place))
    }
}

/// A place among the connections of a front end, free again when it is dropped.
struct Place {
    open: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    front_end: FrontEnd,
}

impl Place {
    fn take(open: &Arc<AtomicUsize>, metrics: &Arc<Metrics>, front_end: FrontEnd) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        metrics.connected(front_end);
        Self { open: Arc::clone(open), metrics: Arc::clone(metrics), front_end }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.metrics.disconnected(self.front_end);
    }
}

/// A connection before TLS.
enum Plain {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Plain {
    /// Takes it off this runtime.
    fn let_loose(self) -> io::Result<LooseStream> {
        Ok(match self {
            Self::Tcp(stream) => LooseStream::Tcp(stream.into_std()?),
            Self::Unix(stream) => LooseStream::Unix(stream.into_std()?),
        })
    }
}

/// A connection.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Reads what there is, whether the runtime has heard of it or not. With TLS there is nothing
    /// to read that way.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*SockRef::from(stream)).read(buffer),
            Self::Unix(stream) => (&*SockRef::from(stream)).read(buffer),
            Self::Tls(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// Calls a method on whatever the connection is.
macro_rules! each {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($inner) => $call,
            Stream::Unix($inner) => $call,
            Stream::Tls($inner) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }
}
