//! Servers for tests: each on a free port, with a directory of its own, and gone with its handle.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tempfile::TempDir;

use crate::client::resp::{Parser, encoded};
use crate::client::{Client, ClientError, ClientOptions, Command, Reply};
use crate::stats::Stats;

/// How long anything may take that is sure to happen.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// Counts a key up and gives back what it was given.
pub(super) const SCRIPT: &str = "redis.call('INCR', KEYS[1]) return ARGV[1]";
static SHA: LazyLock<String> = LazyLock::new(|| sha1_smol::Sha1::from(SCRIPT).digest().to_string());

/// A redis-server, or a Sentinel.
pub(super) struct Server {
    pub(super) port: u16,
    child: Child,
    program: &'static [&'static str],
    args: Vec<String>,
    dir: TempDir,
}

impl Server {
    /// Starts one, with these words after its own on the command line.
    pub(super) fn start(args: &[&str]) -> Self {
        Self::start_on(free_port(), args)
    }

    pub(super) fn start_on(port: u16, args: &[&str]) -> Self {
        let mut words = vec!["--save".to_owned(), String::new()];
        words.extend(args.iter().map(|word| (*word).to_owned()));
        let dir = tempfile::tempdir().unwrap();
        let server = Self::spawn(&["redis-server"], port, words, dir);
        server.wait_up();
        server
    }

    /// Starts a Sentinel, with these lines in its file.
    pub(super) fn sentinel(lines: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sentinel.conf");
        std::fs::write(&file, lines).unwrap();
        let words = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        let server = Self::spawn(&["redis-server"], free_port(), words, dir);
        server.wait_up();
        server
    }

    fn spawn(program: &'static [&'static str], port: u16, args: Vec<String>, dir: TempDir) -> Self {
        let child = start(program, port, &args, dir.path());
        Self { port, child, program, args, dir }
    }

    fn wait_up(&self) {
        until("a server is up", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends it as a crash would.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, at the same port.
    pub(super) fn start_again(&mut self) {
        self.child = start(self.program, self.port, &self.args, self.dir.path());
        self.wait_up();
    }

    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let done = Process::new("kill").args([&format!("-{name}"), &pid]).status().unwrap();
        assert!(done.success());
    }

    /// Asks on a connection of its own.
    pub(super) fn ask(&self, words: &[&str]) -> Result<Reply, ClientError> {
        self.try_ask(&[words]).unwrap()
    }

    /// The same with a password.
    pub(super) fn ask_as(&self, password: &str, words: &[&str]) -> Result<Reply, ClientError> {
        self.try_ask(&[&["AUTH", password], words]).unwrap()
    }

    /// Asks one after the other; the last reply.
    fn try_ask(&self, commands: &[&[&str]]) -> io::Result<Result<Reply, ClientError>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(LONG))?;
        for words in commands {
            let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
            stream.write_all(&encoded(&words))?;
        }
        let (mut parser, mut buffer) = (Parser::default(), BytesMut::new());
        let mut left = commands.len();
        loop {
            while let Some(reply) = parser.take(&mut buffer).unwrap() {
                left -= 1;
                if left == 0 {
                    return Ok(reply);
                }
            }
            let mut bytes = [0; 4096];
            let len = stream.read(&mut bytes)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buffer.extend_from_slice(&bytes[..len]);
        }
    }

    /// A number that the server knows of itself.
    pub(super) fn info(&self, name: &str) -> u64 {
        let Ok(Reply::Bulk(text)) = self.ask(&["INFO", "everything"]) else { panic!("no info") };
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name}")).trim().parse().unwrap()
    }

    /// How often a command was called.
    pub(super) fn calls(&self, command: &str) -> u64 {
        calls(self.ask(&["INFO", "commandstats"]), command)
    }

    /// The same with a password. Who becomes master or replica ends all connections, also ours.
    pub(super) fn calls_as(&self, password: &str, command: &str) -> u64 {
        let commands: [&[&str]; 2] = [&["AUTH", password], &["INFO", "commandstats"]];
        let mut info = None;
        until("it answers", || {
            info = self.try_ask(&commands).ok();
            info.is_some()
        });
        calls(info.unwrap(), command)
    }
}

fn calls(info: Result<Reply, ClientError>, command: &str) -> u64 {
    let Ok(Reply::Bulk(text)) = info else { panic!("{info:?}") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let name = format!("cmdstat_{command}:calls=");
    let rest = text.lines().find_map(|line| line.strip_prefix(&name));
    rest.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

fn start(program: &[&str], port: u16, args: &[String], dir: &Path) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).unwrap();
    Process::new(program[0])
        .args(&program[1..])
        .args(args)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        // Also one that is stopped, or gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that is free now. Low enough that no connection is given it before the server is, and
/// that the second port of a cluster's node exists.
pub(super) fn free_port() -> u16 {
    loop {
        let port = 10_000 + u16::try_from(getrandom::u32().unwrap() % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok()
        {
            return port;
        }
    }
}

/// Waits until something is so.
pub(super) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < end, "it never comes about that {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same, without keeping the runtime.
pub(super) async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !is_so().await {
        assert!(Instant::now() < end, "it never comes about that {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Options as usual, but that nothing fails because this machine is busy.
pub(super) fn options() -> ClientOptions {
    ClientOptions {
        deadline: Duration::from_secs(2),
        in_flight_max: 10_000,
        script: SCRIPT,
        probe: |prefix, slot| eval(&format!("{prefix}{}", key_of(slot)), "probe"),
        prefix: "t".to_owned(),
        tls: crate::tls::TlsFiles::default(),
        sentinel_username: None,
        sentinel_password: None,
    }
}

pub(super) fn open(url: &str, options: ClientOptions) -> (Arc<Client>, Arc<Stats>) {
    let stats = Arc::<Stats>::default();
    let client = Client::open(url.parse().unwrap(), options, Arc::clone(&stats)).unwrap();
    (client, stats)
}

/// A call of the script.
pub(super) fn eval(key: &str, text: &str) -> Command {
    let words: [&[u8]; 5] = [b"EVALSHA", SHA.as_bytes(), b"1", key.as_bytes(), text.as_bytes()];
    Command { slot: slot_of(key), bytes: encoded(&words) }
}

/// Any command, of which the second word is the key.
pub(super) fn command(words: &[&str]) -> Command {
    let slot = words.get(1).map_or(0, |key| slot_of(key));
    let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
    Command { slot, bytes: encoded(&words) }
}

pub(super) fn bulk(text: &str) -> Result<Reply, ClientError> {
    Ok(Reply::Bulk(text.to_owned().into()))
}

/// The slot of a key, by the book.
pub(super) fn slot_of(key: &str) -> u16 {
    let tagged = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tagged.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key);
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc % 16_384
}

/// A key of a slot.
pub(super) fn key_of(slot: u16) -> String {
    static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut tags = vec![String::new(); 16_384];
        let mut left = tags.len();
        for n in 0_u32.. {
            let tag = format!("{{{n}}}");
            let place = &mut tags[usize::from(slot_of(&tag))];
            if place.is_empty() {
                *place = tag;
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        tags
    });
    TAGS[usize::from(slot)].clone()
}
