//! A service that runs while a test talks to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take that should not take long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A running service; it ends when this is dropped.
pub struct Serving {
    child: Child,
    pub ready: String,
    log: Receiver<String>,
    /// What it has logged so far, as far as somebody looked.
    pub logged: Vec<String>,
}

impl Serving {
    /// Starts it on free ports.
    pub fn start(arguments: &[&str]) -> Self {
        Self::spawn(command(arguments))
    }

    /// Starts it as it is given.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, log) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let mut serving = Self { child, ready, log, logged: Vec::new() };
        if !serving.ready.starts_with("ready ") {
            let status = serving.wait();
            panic!("it did not start: {status}\n{}", serving.logged.join("\n"));
        }
        serving
    }

    /// An address of the ready line.
    pub fn address(&self, front_end: &str) -> String {
        let start = format!("{front_end}=");
        let found = self.ready.split_whitespace().find_map(|word| word.strip_prefix(&start));
        found.unwrap_or_else(|| panic!("no {front_end} in {:?}", self.ready)).to_owned()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a line is logged that contains this.
    pub fn wait_for_log(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(rest) {
                Ok(line) => {
                    self.logged.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(_) => panic!("nobody logged {text:?}; only:\n{}", self.logged.join("\n")),
            }
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        // It ends when it has closed its log.
        while let Ok(line) =
            self.log.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            self.logged.push(line);
        }
        assert!(Instant::now() < deadline, "it does not end:\n{}", self.logged.join("\n"));
        self.child.wait().unwrap()
    }

    /// Tells it to end and waits for that.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Asks by HTTP; the status and the whole answer.
    pub fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.address("http")).unwrap();
        http_on(stream, method, path, body)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command on free ports, with the environment of somebody who has not set anything.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.env_clear().arg("serve");
    for flag in ["--http", "--grpc", "--resp"] {
        if !arguments.contains(&flag) {
            command.args([flag, "127.0.0.1:0"]);
        }
    }
    command.args(arguments);
    command
}

/// One request on a connection of its own.
pub fn http_on(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    body: &str,
) -> (u16, String) {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {answer:?}")), answer)
}
