//! Connections to Redis: commands go out in one order and replies come back in the same.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::stats::Stats;
use crate::target::{Shape, Target};

/// How connections behave.
#[derive(Clone, Debug)]
pub(crate) struct ClientOptions {
    /// How long a command may take, from being asked for to its reply.
    pub(crate) deadline: Duration,
    /// How many commands may wait for replies at once, on one connection.
    pub(crate) in_flight_max: usize,
    /// The text of the script, for servers that do not have it.
    pub(crate) script: &'static str,
    /// A command that does what the others do, writing included: what tells that a node that has
    /// failed works again. One for each slot that is asked for.
    pub(crate) probe: fn(prefix: &str, slot: u16) -> Command,
    pub(crate) prefix: String,
}

/// A command, encoded as it goes over the wire.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// The slot of its keys, all of which are in the same; without a cluster nobody looks at it.
    pub(crate) slot: u16,
    pub(crate) bytes: Vec<u8>,
}

/// What a server replied. Errors are [`ClientError::Reply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A string, also a simple one.
    Bulk(Bytes),
    Integer(i64),
    Array(Vec<Reply>),
    Null,
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// It took too long. The command may still be executed.
    #[error("Redis did not answer in time")]
    Deadline,
    /// Too many commands wait for their replies already. It was not sent.
    #[error("too many commands are waiting for Redis")]
    Full,
    /// The node has failed lately, or is not connected. It was not sent.
    #[error("Redis is not asked because it has failed")]
    Down,
    /// The connection broke. The command may have been executed.
    #[error("the connection to Redis broke: {0}")]
    Lost(String),
    /// The server replied with an error, and did nothing.
    #[error("Redis says: {0}")]
    Reply(String),
}

/// All connections of a store. Opening does not wait for a server to be there.
#[derive(Debug)]
pub(crate) struct Client {
    target: Target,
    options: ClientOptions,
    stats: Arc<Stats>,
    connection: Mutex<Option<BufReader<TcpStream>>>,
}

impl Client {
    /// To be called within a tokio runtime, which outlives it and does its work in the background.
    pub(crate) fn open(target: Target, options: ClientOptions, stats: Arc<Stats>) -> Arc<Self> {
        Arc::new(Self { target, options, stats, connection: Mutex::default() })
    }

    pub(crate) async fn wait_ready(&self, at_most: Duration) -> bool {
        at_most.is_zero()
    }

    /// Whether commands have to be for keys of one slot each.
    pub(crate) fn is_cluster(&self) -> bool {
        self.target.shape == Shape::Cluster
    }

    /// Sends a command and waits for its reply, until its deadline at the longest. Whoever stops
    /// waiting does not undo it.
    pub(crate) async fn run(&self, command: Command) -> Result<Reply, ClientError> {
        let mut place = self.connection.lock().await;
        let lost = |error: std::io::Error| ClientError::Lost(error.to_string());
        if place.is_none() {
            let stream = TcpStream::connect(&self.target.addresses[0]).await.map_err(lost)?;
            stream.set_nodelay(true).map_err(lost)?;
            *place = Some(BufReader::new(stream));
        }
        let Some(connection) = place.as_mut() else { return Err(ClientError::Down) };
        self.stats.sent.add(1);
        connection.get_mut().write_all(&command.bytes).await.map_err(lost)?;
        let reply = Box::pin(read(connection)).await.map_err(lost)?;
        match reply {
            Err(ClientError::Reply(text)) if text.starts_with("NOSCRIPT") => {
                let script = self.options.script;
                let load = format!(
                    "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n${}\r\n{script}\r\n",
                    script.len()
                );
                connection.get_mut().write_all(load.as_bytes()).await.map_err(lost)?;
                Box::pin(read(connection)).await.map_err(lost)??;
                connection.get_mut().write_all(&command.bytes).await.map_err(lost)?;
                Box::pin(read(connection)).await.map_err(lost)?
            }
            other => other,
        }
    }
}

async fn read(
    connection: &mut BufReader<TcpStream>,
) -> std::io::Result<Result<Reply, ClientError>> {
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    let line = line.trim_end();
    let (kind, rest) = line.split_at_checked(1).unwrap_or(("", ""));
    let number = rest.parse::<i64>().unwrap_or(0);
    Ok(Ok(match kind {
        "+" => Reply::Bulk(Bytes::copy_from_slice(rest.as_bytes())),
        "-" => return Ok(Err(ClientError::Reply(rest.to_owned()))),
        ":" => Reply::Integer(number),
        "$" if number < 0 => Reply::Null,
        "$" => {
            let mut bytes = vec![0; usize::try_from(number).unwrap_or(0) + 2];
            connection.read_exact(&mut bytes).await?;
            bytes.truncate(bytes.len() - 2);
            Reply::Bulk(bytes.into())
        }
        "*" => {
            let mut all = Vec::new();
            for _ in 0..number {
                if let Ok(reply) = Box::pin(read(connection)).await? {
                    all.push(reply);
                }
            }
            Reply::Array(all)
        }
        _ => return Err(std::io::ErrorKind::InvalidData.into()),
    }))
}
