//! A server in this process, and a client that speaks to it byte by byte.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use tidegate::rules::{File, Options, Rules};
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter, Timestamp};
use tidegate_server::{Address, Config, Server, Service, ServiceClock};
use tokio::runtime::Runtime;

pub(crate) const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { name: per-user, requests_per_unit: 2, unit: second, algorithm: token_bucket }
  - key: ip
    rate_limit: { name: per-ip, requests_per_unit: 10, unit: minute }
  - key: watched
    shadow_mode: true
    rate_limit: { requests_per_unit: 1, unit: hour }
  - key: shaped
    rate_limit: { name: shaper, requests_per_unit: 2, unit: second, algorithm: leaky_bucket, queue: { size: 3 } }
  - key: slots
    rate_limit: { name: slots, requests_per_unit: 1, algorithm: concurrency, lease: 30s }
  - key: blocked
    rate_limit: { name: blocked, requests_per_unit: 0, unit: second }
";

/// How long a test waits for what is to come, before it says that it does not.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Running {
    pub(crate) clock: ManualClock,
    pub(crate) service: Arc<Service>,
    pub(crate) port: u16,
    server: Option<Server>,
    runtime: Runtime,
}

/// A server with the rules above at a time that stands still.
pub(crate) fn start(change: impl FnOnce(&mut Config)) -> Running {
    start_with(RULES, change)
}

/// A server with other rules.
pub(crate) fn start_with(text: &str, change: impl FnOnce(&mut Config)) -> Running {
    let loaded = Rules::load(&[File { name: "rules.yaml", text }], &Options::default());
    let rules = loaded.rules.unwrap_or_else(|| panic!("{}", loaded.report));
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let service_clock = ServiceClock::Manual(clock.clone());
    let limits =
        RuleLimiter::build(MemoryStore::new().into(), service_clock, rules, Modes::default());
    let service = Arc::new(Service::new(limits.unwrap(), 0.8));
    let mut config = Config::default();
    (config.grpc, config.http) = (Address::Off, Address::Off);
    config.resp = "127.0.0.1:0".parse().unwrap();
    config.resp_threads = 2;
    change(&mut config);
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(Arc::clone(&service), config)).unwrap();
    let port = match &server.bound().resp {
        Address::Tcp(address) => address.rsplit_once(':').unwrap().1.parse().unwrap(),
        _ => 0,
    };
    Running { clock, service, port, server: Some(server), runtime }
}

impl Running {
    pub(crate) fn client(&self) -> Client {
        Client::new(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    /// Ends the server; whether all was done in time.
    pub(crate) fn drain(mut self) -> bool {
        let server = self.server.take().unwrap();
        self.runtime.block_on(server.drain())
    }

    /// Begins to end the server, and goes on.
    pub(crate) fn begin_to_drain(&mut self) -> tokio::task::JoinHandle<bool> {
        let server = self.server.take().unwrap();
        self.runtime.spawn(server.drain())
    }

    pub(crate) fn wait<T>(&self, task: tokio::task::JoinHandle<T>) -> T {
        self.runtime.block_on(task).unwrap()
    }
}

/// An answer, in either version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Simple(String),
    Error(String),
    Int(i64),
    Double(f64),
    Bulk(String),
    Null,
    Array(Vec<Answer>),
    Map(Vec<(Answer, Answer)>),
}

pub(crate) fn bulk(text: &str) -> Answer {
    Answer::Bulk(text.into())
}

pub(crate) fn ok() -> Answer {
    Answer::Simple("OK".into())
}

pub(crate) fn error(text: &str) -> Answer {
    Answer::Error(text.into())
}

pub(crate) fn ints<const N: usize>(numbers: [i64; N]) -> Answer {
    Answer::Array(numbers.map(Answer::Int).to_vec())
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
    /// How often something was read.
    pub(crate) reads: usize,
}

/// A command as clients send it.
pub(crate) fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new(), reads: 0 }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// A command, its words apart.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Answer {
        self.send(&encode(words));
        self.answer()
    }

    /// A command as it is typed.
    pub(crate) fn say(&mut self, line: &str) -> Answer {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.ask(&words)
    }

    fn more(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 64 * 1024];
        let read = self.stream.read(&mut bytes)?;
        self.reads += 1;
        self.buffer.extend_from_slice(&bytes[..read]);
        Ok(read)
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|end| end == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).unwrap();
            }
            assert_ne!(self.more().unwrap(), 0, "the server hung up: {:?}", self.buffer);
        }
    }

    fn bytes(&mut self, length: usize) -> String {
        while self.buffer.len() < length + 2 {
            assert_ne!(self.more().unwrap(), 0, "the server hung up");
        }
        let bytes: Vec<u8> = self.buffer.drain(..length + 2).take(length).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn answer(&mut self) -> Answer {
        let line = self.line();
        let (sign, rest) = line.split_at(1);
        let length = || rest.parse::<usize>().unwrap();
        match sign {
            "+" => Answer::Simple(rest.into()),
            "-" => Answer::Error(rest.into()),
            ":" => Answer::Int(rest.parse().unwrap()),
            "," => Answer::Double(rest.parse().unwrap()),
            "_" => Answer::Null,
            "$" if rest == "-1" => Answer::Null,
            "$" => Answer::Bulk(self.bytes(length())),
            "=" => Answer::Bulk(self.bytes(length()).strip_prefix("txt:").unwrap().into()),
            "*" | "~" => Answer::Array((0..length()).map(|_| self.answer()).collect()),
            "%" => Answer::Map((0..length()).map(|_| (self.answer(), self.answer())).collect()),
            _ => panic!("no answer: {line}"),
        }
    }

    /// Everything until the server hangs up.
    pub(crate) fn rest(&mut self) -> String {
        loop {
            match self.more() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("the server does not hang up: {error}"),
            }
        }
        String::from_utf8(std::mem::take(&mut self.buffer)).unwrap()
    }

    /// Sends `command` again and again without reading an answer, until nobody takes any more for a
    /// while; how many whole ones were taken.
    pub(crate) fn send_until_stuck(&mut self, command: &[u8]) -> usize {
        let pipeline = command.repeat(100);
        self.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut taken = 0usize;
        loop {
            match self.stream.write(&pipeline[taken % pipeline.len()..]) {
                Ok(written) => taken += written,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return taken / command.len();
                }
                Err(error) => panic!("{error}"),
            }
            assert!(taken < 256 << 20, "the server takes everything and keeps it");
        }
    }

    /// Whether the server hangs up without an answer.
    pub(crate) fn is_turned_away(&mut self) -> bool {
        let _ = self.stream.write_all(b"PING\r\n");
        !matches!(self.more(), Ok(1..))
    }

    /// Reads until the server hangs up, whatever it says.
    pub(crate) fn drop_all(&mut self) {
        while !matches!(self.more(), Ok(0) | Err(_)) {}
        self.buffer.clear();
    }

    /// Whether the server has hung up, with nothing more to say.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && matches!(self.more(), Ok(0))
    }
}
