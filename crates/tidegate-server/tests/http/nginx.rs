//! `examples/nginx.conf` with a real nginx.

use std::path::Path;
use std::process::{Child, Command};

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::support::{Reply, Running, config, read_reply, request};

/// A port that is free now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// nginx by the example, at free ports; ended when it is dropped.
struct Nginx {
    process: Child,
    _folder: tempfile::TempDir,
    port: u16,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Nginx {
    async fn start(limits: &str) -> Self {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nginx.conf");
        let example = std::fs::read_to_string(example).unwrap();
        // Somebody else may take a port in between; another one is tried then.
        for _ in 0..5 {
            let (port, upstream) = (free_port(), free_port());
            let folder = tempfile::tempdir().unwrap();
            let text = example
                .replace("127.0.0.1:8080", limits)
                .replace("127.0.0.1:8000", &format!("127.0.0.1:{port}"))
                .replace("127.0.0.1:8001", &format!("127.0.0.1:{upstream}"))
                // One process, so that it ends as a whole.
                .replace("daemon off;", "daemon off; master_process off;")
                .replace("http {", &format!("http {{\n{}", temporary(folder.path())));
            let path = folder.path().join("nginx.conf");
            std::fs::write(&path, text).unwrap();
            let nginx = ["/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"]
                .into_iter()
                .find(|path| Path::new(path).exists())
                .expect("nginx is missing: run tools/install");
            let mut process = Command::new(nginx)
                .arg("-p")
                .arg(folder.path())
                .arg("-c")
                .arg(&path)
                .arg("-e")
                .arg("stderr")
                .spawn()
                .unwrap();
            loop {
                if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                    return Self { process, _folder: folder, port };
                }
                if process.try_wait().unwrap().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        panic!("nginx did not start");
    }

    async fn get(&self, path: &str, headers: &str) -> Reply {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(request("GET", path, headers, "").as_bytes()).await.unwrap();
        read_reply(&mut stream).await
    }
}

/// Folders that nginx may write to.
fn temporary(folder: &Path) -> String {
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    kinds.map(|kind| format!("{kind}_temp_path {}/{kind};\n", folder.display())).concat()
}

#[tokio::test]
async fn nginx_lets_through_what_the_limits_admit_and_answers_429_to_the_rest() {
    let mut config = config();
    config.trusted_proxies = vec!["127.0.0.1".into()];
    let running = Running::with(super::support::RULES, config).await;
    let nginx = Nginx::start(&running.address()).await;
    for left in ["1", "0"] {
        let reply = nginx.get("/v1/posts?page=1", "X-User-Id: ada\r\n").await;
        assert_eq!((reply.status, &*reply.body), (200, "hello\n"), "{reply:?}");
        assert_eq!(reply.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(reply.header("ratelimit-policy"), Some("\"api.user\";q=2;w=60"));
        assert_eq!(reply.header("retry-after"), None);
    }
    let refused = nginx.get("/v1/posts", "X-User-Id: ada\r\n").await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_eq!(refused.header("retry-after"), Some("30"));
    assert_eq!(refused.header("ratelimit"), Some("\"api.user\";r=0;t=30"));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.json()["status"], 429);
    // Somebody else, and a path without a limit.
    assert_eq!(nginx.get("/v1/posts", "X-User-Id: bob\r\n").await.status, 200);
    assert_eq!(nginx.get("/free", "").await.status, 200);
    // What a client says of its request, or of its address, is not what counts.
    let lies = "X-User-Id: ada\r\nX-Forwarded-Uri: /free\r\nX-Original-URI: /free\r\n";
    assert_eq!(nginx.get("/v1/posts", lies).await.status, 429);
    for (claimed, status) in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.3", 429)] {
        let headers = format!("X-Forwarded-For: {claimed}\r\n");
        assert_eq!(nginx.get("/by-ip/x", &headers).await.status, status, "{claimed}");
    }
}
