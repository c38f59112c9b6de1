//! Making a connection that is ready for commands, and talking on it one question at a time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::resp::{Parser, encoded};
use super::{ClientError, Reply};
use crate::target::Address;

/// How long it may take to connect to an address, and then to come in. What waits for that has
/// deadlines of its own, which are shorter. Who tries again soon is there soon after a host is back.
const STEP_MAX: Duration = Duration::from_millis(500);
/// How long a name may take: a resolver that asks its second server does not begin anew in less.
const RESOLVE_MAX: Duration = Duration::from_secs(6);
/// How the connections are called in `CLIENT LIST`.
const NAME: &[u8] = b"tidegate";
const READ_LEN: usize = 16 << 10;

/// How to come in to servers of one kind.
pub(super) struct Dialer {
    pub(super) tls: Option<TlsConnector>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: u32,
    /// Whether a server that says to be a replica is refused.
    pub(super) masters_only: bool,
}

impl Dialer {
    /// Connects, says who we are, and hears whether we may.
    pub(super) async fn connect(&self, address: &Address) -> Result<Conversation, String> {
        let text = |error: io::Error| error.to_string();
        let (stream, host) = match address {
            Address::Unix(path) => {
                let stream = in_time(UnixStream::connect(path)).await.map_err(text)?;
                (Stream::Unix(stream), "")
            }
            Address::Tcp { host, port } => {
                (Stream::Tcp(tcp(host, *port).await.map_err(text)?), host.as_str())
            }
        };
        let greeting = async {
            let stream = self.secured(stream, host).await?;
            let mut conversation = Conversation::new(stream);
            self.introduce(&mut conversation).await.map_err(io::Error::other)?;
            Ok(conversation)
        };
        in_time(Box::pin(greeting)).await.map_err(text)
    }

    async fn secured(&self, stream: Stream, host: &str) -> io::Result<Stream> {
        match (&self.tls, stream) {
            (Some(tls), Stream::Tcp(stream)) => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                Ok(Stream::Tls(Box::new(tls.connect(name, stream).await?)))
            }
            (_, stream) => Ok(stream),
        }
    }

    /// All of it in one go: a connection costs one round trip more than its handshake.
    async fn introduce(&self, conversation: &mut Conversation) -> Result<(), String> {
        let mut steps: Vec<(Step, Vec<u8>)> = Vec::new();
        if let Some(password) = &self.password {
            let words: &[&[u8]] = match &self.username {
                Some(username) => &[b"AUTH", username.as_bytes(), password.as_bytes()],
                None => &[b"AUTH", password.as_bytes()],
            };
            steps.push((Step::Auth, encoded(words)));
        }
        if self.database != 0 {
            let number = self.database.to_string();
            steps.push((Step::Select, encoded(&[b"SELECT", number.as_bytes()])));
        }
        steps.push((Step::Name, encoded(&[b"CLIENT", b"SETNAME", NAME])));
        if self.masters_only {
            steps.push((Step::Role, encoded(&[b"ROLE"])));
        }
        let bytes: Vec<u8> = steps.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
        let failed = |error: io::Error| error.to_string();
        conversation.send(&bytes).await.map_err(failed)?;
        for (step, _) in steps {
            let reply = conversation.hear().await.map_err(failed)?;
            step.check(reply)?;
        }
        Ok(())
    }
}

/// Connects to whichever of a host's addresses answers first, in their order.
async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let found = timeout(RESOLVE_MAX, lookup_host((host, port))).await;
    let found = found.map_err(|_| late("the name is not resolved within", RESOLVE_MAX))??;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in found {
        match in_time(TcpStream::connect(address)).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(STEP_MAX, step).await {
        Ok(result) => result,
        Err(_) => Err(late("no answer within", STEP_MAX)),
    }
}

fn late(what: &str, limit: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} {limit:?}"))
}

/// What is said at the beginning.
enum Step {
    Auth,
    Select,
    Name,
    Role,
}

impl Step {
    fn check(self, reply: Result<Reply, ClientError>) -> Result<(), String> {
        let text = match (self, reply) {
            (Self::Role, Ok(Reply::Array(parts))) => {
                return match parts.first() {
                    Some(Reply::Bulk(role)) if role == "master" => Ok(()),
                    _ => Err("it is no master".to_owned()),
                };
            }
            (_, Ok(_)) => return Ok(()),
            (step, Err(ClientError::Reply(text))) => match step {
                Self::Auth => format!("it does not accept user and password: {text}"),
                Self::Select => format!("it does not give us the database: {text}"),
                Self::Role => format!("it does not say whether it is a master: {text}"),
                // Who may not have a name works without, but to be turned away is another thing.
                Self::Name if is_closed_to_us(&text) => text,
                Self::Name => return Ok(()),
            },
            (_, Err(error)) => error.to_string(),
        };
        Err(text)
    }
}

fn is_closed_to_us(text: &str) -> bool {
    ["NOAUTH", "DENIED", "ERR max number of clients"].iter().any(|start| text.starts_with(start))
}

/// A connection on which one question is asked after the other.
pub(super) struct Conversation {
    pub(super) stream: Stream,
    pub(super) buffer: BytesMut,
    parser: Parser,
}

impl Conversation {
    fn new(stream: Stream) -> Self {
        Self { stream, buffer: BytesMut::with_capacity(READ_LEN), parser: Parser::default() }
    }

    /// Asks and waits for the answer, so long at the most.
    pub(super) async fn ask(
        &mut self,
        bytes: &[u8],
        at_most: Duration,
    ) -> io::Result<Result<Reply, ClientError>> {
        let asking = async {
            self.send(bytes).await?;
            self.hear().await
        };
        timeout(at_most, asking).await?
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    async fn hear(&mut self) -> io::Result<Result<Reply, ClientError>> {
        loop {
            if let Some(reply) = self.parser.take(&mut self.buffer).map_err(io::Error::other)? {
                return Ok(reply);
            }
            self.buffer.reserve(READ_LEN);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// A connection, of whatever kind.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
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

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }
}
