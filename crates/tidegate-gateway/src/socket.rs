//! Sockets of both kinds: where the gateway listens, and what connections go by.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tidegate_server::{Address, SocketFile, bind_unix};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A connection before TLS.
pub(crate) type Plain = Either<TcpStream, UnixStream>;

/// A connection that sends what it is given at once.
pub(crate) fn tcp(stream: TcpStream) -> Plain {
    // Not worth losing a connection over.
    let _ = stream.set_nodelay(true);
    Either::Left(stream)
}

/// What one thread accepts connections by.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// The next connection, and the address that it is from, if there is such a thing.
    pub(crate) fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Plain, Option<IpAddr>)>> {
        Poll::Ready(match self {
            Self::Tcp(listener) => ready!(listener.poll_accept(context))
                .map(|(stream, peer)| (tcp(stream), Some(peer.ip()))),
            Self::Unix(listener) => ready!(listener.poll_accept(context))
                .map(|(stream, _)| (Either::Right(stream), None)),
        })
    }
}

/// A listener that belongs to no thread yet.
pub(crate) enum Loose {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl Loose {
    /// Gives it to this thread.
    pub(crate) fn settle(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Tcp(listener) => Listener::Tcp(TcpListener::from_std(listener)?),
            Self::Unix(listener) => Listener::Unix(UnixListener::from_std(listener)?),
        })
    }
}

/// The listeners of a gateway, one for each thread.
pub(crate) struct Bound {
    /// Where they listen, with the real port.
    pub(crate) address: Address,
    pub(crate) tcp: Option<SocketAddr>,
    /// What a Unix socket is found by.
    pub(crate) file: Option<SocketFile>,
    pub(crate) listeners: Vec<Loose>,
}

/// Binds an address. At a TCP port each thread has a listener of its own, and the system gives each
/// connection to one; a Unix socket they share.
pub(crate) fn bind(address: &Address, count: usize) -> io::Result<Bound> {
    match address {
        Address::Off => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is turned off")),
        Address::Tcp(text) => {
            let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            let first = listen(text.to_socket_addrs()?.next().ok_or_else(no_address)?)?;
            let tcp = first.local_addr()?;
            let mut listeners = vec![Loose::Tcp(first)];
            for _ in 1..count {
                listeners.push(Loose::Tcp(listen(tcp)?));
            }
            let address = Address::Tcp(tcp.to_string());
            Ok(Bound { address, tcp: Some(tcp), file: None, listeners })
        }
        Address::Unix(path) => {
            let (first, file) = bind_unix(path)?;
            let mut listeners = Vec::with_capacity(count);
            for _ in 1..count {
                listeners.push(Loose::Unix(first.try_clone()?));
            }
            listeners.push(Loose::Unix(first));
            Ok(Bound { address: address.clone(), tcp: None, file: Some(file), listeners })
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Connections inherit it.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(15));
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
