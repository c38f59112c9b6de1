//! Servers as processes of their own.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A server that runs until this is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Child {
    /// One of ours: this program, told to serve.
    pub(crate) fn serve(server: &str) -> Self {
        Self::serve_with(&[server])
    }

    /// Ours with gRPC, and a store to choose.
    pub(crate) fn fleet(store: &str) -> Self {
        Self::serve_with(&["tidegate-grpc", store])
    }

    /// The same, told more.
    pub(crate) fn serve_with(arguments: &[&str]) -> Self {
        let program = std::env::current_exe().expect("the program that runs");
        let mut command = Command::new(program);
        command.arg("serve").args(arguments).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the server starts");
        let mut address = String::new();
        let stdout = process.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut address).expect("its address");
        Self { process, address: address.trim().to_owned() }
    }

    /// A Redis that keeps nothing.
    pub(crate) fn redis() -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("its address");
        drop(free);
        let port = address.port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let process = command.stdout(Stdio::null()).spawn().expect("redis-server is installed");
        let child = Self { process, address: address.to_string() };
        while std::net::TcpStream::connect(&child.address).is_err() {
            std::thread::yield_now();
        }
        child
    }

    /// An nginx of one process, with so much in its `http`, listening where it is told.
    pub(crate) fn nginx(http: impl FnOnce(&str) -> String) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("its address").to_string();
        drop(free);
        let dir =
            std::env::temp_dir().join(format!("tidegate-bench-{}", address.replace(':', "-")));
        std::fs::create_dir_all(&dir).expect("a place for its files");
        let (file, dir) = (dir.join("nginx.conf"), dir.display());
        let config = format!(
            "daemon off; master_process off; pid {dir}/pid; error_log /dev/null crit;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {dir}/b;\n\
             proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;\n\
             scgi_temp_path {dir}/s; {} }}\n",
            http(&address)
        );
        std::fs::write(&file, config).expect("its settings");
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir.to_string()).arg("-c").arg(&file).stderr(Stdio::null());
        let process = command.spawn().expect("nginx is installed");
        let child = Self { process, address };
        while std::net::TcpStream::connect(&child.address).is_err() {
            std::thread::yield_now();
        }
        child
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
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
