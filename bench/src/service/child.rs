//! Servers as processes of their own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A server that runs until this is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    /// Where it listens.
    pub(crate) address: String,
    /// Where its files are; they go when it goes.
    files: Option<TempDir>,
    /// Whether it has processes of its own that it ends itself when it is asked to end.
    has_workers: bool,
}

impl Child {
    /// One of ours: this program, told to serve.
    pub(crate) fn serve(server: &str) -> Self {
        Self::telling(own_program().args(["serve", server]), |line| Some(line.to_owned()))
    }

    /// Ours with gRPC, and a store to choose.
    pub(crate) fn fleet(store: &str) -> Self {
        let mut command = own_program();
        Self::telling(command.args(["serve", "tidegate-grpc", store]), |line| Some(line.to_owned()))
    }

    /// A server that says where it listens, in the first line of its output.
    pub(crate) fn telling(
        command: &mut Command,
        address: impl FnOnce(&str) -> Option<String>,
    ) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("its first line");
        let mut child = Self { process, address: String::new(), files: None, has_workers: false };
        child.address = address(line.trim()).unwrap_or_else(|| {
            panic!("{command:?} did not say where it listens; its first line is `{line}`")
        });
        child
    }

    /// A server that listens where it was told to.
    pub(crate) fn told(command: &mut Command, address: String) -> Self {
        let process = command.stdout(Stdio::null()).spawn().expect("the server is installed");
        let mut child = Self { process, address, files: None, has_workers: false };
        while std::net::TcpStream::connect(&child.address).is_err() {
            let ended = child.process.try_wait().expect("its state");
            assert!(ended.is_none(), "{command:?} ended at once");
            std::thread::yield_now();
        }
        child
    }

    /// Keeps files for as long as it runs.
    pub(crate) fn with_files(mut self, files: TempDir) -> Self {
        self.files = Some(files);
        self
    }

    /// It has processes of its own.
    pub(crate) fn with_workers(mut self) -> Self {
        self.has_workers = true;
        self
    }

    /// A Redis that keeps nothing.
    pub(crate) fn redis() -> Self {
        let address = free_address();
        let port = address.rsplit_once(':').map_or("", |(_, port)| port);
        let mut command = Command::new("redis-server");
        command.args(["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        Self::told(&mut command, address)
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The seconds of CPU that it has used, in user space and in the kernel.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.process.id());
        let stat = std::fs::read_to_string(path).expect("the process is there");
        let (_, rest) = stat.rsplit_once(") ").expect("its name");
        let mut fields = rest.split(' ').skip(11);
        let mut ticks = || fields.next().and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks() + ticks()) / 100.0
    }

    /// The port that it listens at.
    pub(crate) fn port(&self) -> &str {
        self.address.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself, so that nothing here has to succeed.
        match self.has_workers {
            true => {
                let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
            }
            false => {
                let _ = self.process.kill();
            }
        }
        let _ = self.process.wait();
    }
}

/// This program.
pub(crate) fn own_program() -> Command {
    Command::new(std::env::current_exe().expect("the program that runs"))
}

/// An address that nobody listens at.
pub(crate) fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("its address").to_string()
}
