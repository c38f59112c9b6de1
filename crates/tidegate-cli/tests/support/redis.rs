//! A real Redis for one test, at a socket of its own.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::run_command;

/// How long it may take to start.
const START_MAX: Duration = Duration::from_secs(20);

/// A server that ends with the test.
pub struct Redis {
    child: Child,
    folder: TempDir,
}

impl Redis {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = start(folder.path().join("socket"));
        let mut redis = Self { child, folder };
        redis.wait();
        redis
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = std::fs::remove_file(self.socket());
    }

    /// Starts it anew, empty, at the same place.
    pub fn start_again(&mut self) {
        self.child = start(self.socket());
        self.wait();
    }

    /// Says one command, and gives the first line of the reply.
    pub fn ask(&self, command: &str) -> String {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn wait(&mut self) {
        let begun = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "redis-server does not start");
            assert!(begun.elapsed() < START_MAX, "redis-server does not answer");
            std::thread::yield_now();
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(socket: PathBuf) -> Child {
    let folder = socket.parent().unwrap().to_owned();
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]).arg(socket);
    command.arg("--dir").arg(folder).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("redis-server cannot be started: {error}"))
}

/// Runs a replay once more, in Redis, which has to say the same to the letter and to leave nothing
/// behind. Lines with times that Redis cannot tell apart have to be refused; they are compared as
/// they are without the rest. So have limits beyond what it can count.
pub fn assert_same_in_redis(command: impl Fn() -> Command, input: &[u8], memory: &Output) {
    let redis = Redis::start();
    let in_redis = |input: &[u8]| {
        let mut command = command();
        command.args(["--store", &redis.url()]);
        let output = run_command(command, input);
        assert_eq!(redis.ask("DBSIZE"), ":0", "keys are left: {}", shown(&output.stderr));
        output
    };
    let output = in_redis(input);
    if shown(&output.stderr).contains("it takes more than a century to fill") {
        // Beyond what the script can count exactly, and so it says no.
        assert_eq!((output.status.code(), &*output.stdout), (Some(2), &b""[..]));
        return;
    }
    let Some(rounded) = in_whole_microseconds(input) else {
        return assert_same(&output, memory);
    };
    let told = shown(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("is not in whole microseconds"), "{told}");
    assert!(memory.stdout.starts_with(&output.stdout), "what comes before is the same");
    assert_same(&in_redis(&rounded), &run_command(command(), &rounded));
}

fn assert_same(redis: &Output, memory: &Output) {
    assert_eq!(shown(&redis.stdout), shown(&memory.stdout), "{}", shown(&redis.stderr));
    assert_eq!(shown(&redis.stderr), shown(&memory.stderr));
    assert_eq!(redis.status, memory.status);
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The latest time to compare: what ends after the end of all times is said in other words.
const T_NS_MAX: u64 = 1 << 62;

/// The same lines in whole microseconds, if they are not already.
fn in_whole_microseconds(input: &[u8]) -> Option<Vec<u8>> {
    let mut is_changed = false;
    let mut rounded = Vec::new();
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice::<serde_json::Value>(line) {
            Ok(mut line) if line["t_ns"].as_u64().is_some_and(|t_ns| t_ns % 1_000 != 0) => {
                is_changed = true;
                let t_ns = line["t_ns"].as_u64().unwrap_or(0).min(T_NS_MAX);
                line["t_ns"] = (t_ns / 1_000 * 1_000).into();
                rounded.extend(format!("{line}\n").into_bytes());
            }
            _ => rounded.extend(line),
        }
    }
    is_changed.then_some(rounded)
}
