//! Real servers for tests: started on free ports, ended with the test.
#![allow(dead_code, reason = "not every test needs all of it")]
#![allow(clippy::panic, reason = "a test without its server has failed")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_secs(20);

/// A server of one's own, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    program: PathBuf,
    dir: TempDir,
}

impl Server {
    /// A Redis without persistence.
    pub(crate) fn redis() -> Self {
        Self::start(&PathBuf::from("redis-server"), &[])
    }

    /// A Valkey without persistence.
    pub(crate) fn valkey() -> Self {
        Self::start(&valkey_path(), &[])
    }

    pub(crate) fn start(program: &PathBuf, more: &[&str]) -> Self {
        let mut last = String::new();
        // Another process may take the port between being found free and being bound.
        for _ in 0..5 {
            let port = free_port();
            let dir = TempDir::new().expect("a temporary folder");
            let child = spawn(program, port, &dir, more);
            let mut server = Self { child, port, program: program.clone(), dir };
            match server.wait() {
                Ok(()) => return server,
                Err(why) => last = why,
            }
        }
        panic!("{} does not start: {last}", program.display());
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Starts it anew on the same port, with what it has on disk.
    pub(crate) fn start_again(&mut self) {
        self.child = spawn(&self.program, self.port, &self.dir, &[]);
        self.wait().expect("it starts again");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Asks the server for one string.
    pub(crate) fn ask(&self, words: &[&str]) -> String {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("a connection");
        let mut stream = BufReader::new(stream);
        let mut command = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| command += &format!("${}\r\n{word}\r\n", word.len()));
        stream.get_mut().write_all(command.as_bytes()).expect("the server reads");
        let mut line = String::new();
        stream.read_line(&mut line).expect("the server answers");
        if line.starts_with('$') {
            line.clear();
            stream.read_line(&mut line).expect("a string follows");
        }
        line.trim_end().trim_start_matches(['+', ':']).to_owned()
    }

    fn wait(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while begun.elapsed() < START_MAX {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended with {status}"));
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(());
            }
            std::thread::yield_now();
        }
        Err("nobody answers".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &PathBuf, port: u16, dir: &TempDir, more: &[&str]) -> Child {
    Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "no", "--daemonize", "no", "--dir"])
        .arg(dir.path())
        .args(more)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{} cannot be started: {error}", program.display()))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// The server inside the Python package that `tools/install` installs.
fn valkey_path() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/python/lib");
    let found = find(&root, "valkey-server", 6);
    found.unwrap_or_else(|| panic!("no valkey-server below {}: run tools/install", root.display()))
}

fn find(folder: &PathBuf, name: &str, depth: usize) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let here = paths.iter().find(|path| path.is_file() && path.ends_with(name)).cloned();
    here.or_else(|| {
        let deeper = depth.checked_sub(1)?;
        paths.iter().filter(|path| path.is_dir()).find_map(|path| find(path, name, deeper))
    })
}
