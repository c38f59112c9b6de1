//! Speaking to a server of Redis, one command after the other.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// What a server replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Error(String),
    Number(i64),
    List(Vec<Reply>),
    Null,
}

impl Reply {
    /// The text of it; panics if it is none.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    /// The number of it; panics if it is none.
    pub(crate) fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            other => panic!("not a number: {other:?}"),
        }
    }

    /// The parts of it; panics if it has none.
    pub(crate) fn list(&self) -> &[Self] {
        match self {
            Self::List(list) => list,
            other => panic!("not a list: {other:?}"),
        }
    }
}

/// A connection.
pub(crate) struct Talk {
    reader: BufReader<TcpStream>,
}

impl Talk {
    /// Gives up after so long, with each reply too.
    pub(crate) fn connect(port: u16, at_most: Duration) -> io::Result<Self> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, at_most)?;
        stream.set_read_timeout(Some(at_most))?;
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends a command and waits for its reply.
    pub(crate) fn ask(&mut self, command: &[&str]) -> io::Result<Reply> {
        let mut bytes = format!("*{}\r\n", command.len());
        for word in command {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.reader.get_mut().write_all(bytes.as_bytes())?;
        self.read()
    }

    fn read(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Number(number()?),
            "$" => match usize::try_from(number()?) {
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.reader.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                Err(_) => Reply::Null,
            },
            "*" => match usize::try_from(number()?) {
                Ok(count) => {
                    Reply::List((0..count).map(|_| self.read()).collect::<io::Result<_>>()?)
                }
                Err(_) => Reply::Null,
            },
            _ => return Err(io::Error::other(format!("not a reply: {line:?}"))),
        })
    }
}
