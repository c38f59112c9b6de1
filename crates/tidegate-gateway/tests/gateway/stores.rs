//! Limits whose counters are in a store that is waited for: a real Redis.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate::{Modes, RuleLimiter, SystemClock};
use tidegate_gateway::{Gateway, GatewayConfig, RuleGate};
use tidegate_store_redis::{RedisOptions, RedisStore};

use crate::limiting::rules;
use crate::support::*;

/// A Redis at a socket of its own, which ends with the test.
struct Redis {
    process: Child,
    folder: TempDir,
}

impl Redis {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        until("redis-server accepts", || UnixStream::connect(&socket).is_ok());
        Self { process, folder }
    }

    async fn open(&self) -> RedisStore {
        let url = format!("redis+unix://{}", self.folder.path().join("socket").display());
        let mut options = RedisOptions::new(url.parse().unwrap());
        options.deadline = Duration::from_secs(10);
        let store = RedisStore::open(options).await.unwrap();
        assert!(store.wait_ready(GUARD).await, "{:?}", store.stats());
        store
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A gateway of two threads that counts in Redis.
async fn gateway(redis: &Redis, upstream: &Server, limit: &str) -> Gateway {
    let text = format!(
        "domain: api\n\
         http: [ {{ match: {{ path: \"/**\" }}, descriptors: [ {{ ip: \"${{client_ip}}\" }} ] }} ]\n\
         descriptors: [ {{ key: ip, rate_limit: {{ {limit} }} }} ]\n"
    );
    let store = redis.open().await;
    let limiter = RuleLimiter::build(store, SystemClock::new(), rules(&text), Modes::default());
    let mut config = GatewayConfig::to(upstream.url());
    config.threads = 2;
    Gateway::start(config, RuleGate::new(limiter.unwrap(), "api")).unwrap()
}

fn ask(gateway: &Gateway) -> String {
    status(&curl(&["-i", &url(gateway, "/")])).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn several_gateways_count_together() {
    let (redis, upstream) = (Redis::start(), echo());
    let limit = "requests_per_unit: 5, per: 30d, algorithm: token_bucket, on_store_error: deny";
    let first = gateway(&redis, &upstream, limit).await;
    let second = gateway(&redis, &upstream, limit).await;
    let statuses: Vec<String> =
        [&first, &second, &first, &second, &first, &second, &first].map(ask).to_vec();
    assert_eq!(statuses, ["200", "200", "200", "200", "200", "429", "429"]);
    let refused = curl(&["-i", &url(&second, "/")]);
    assert!(refused.contains("x-ratelimit-remaining: 0\r\n"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_of_the_store_clients_are_told_503() {
    let (mut redis, upstream) = (Redis::start(), echo());
    let limit = "requests_per_unit: 5, unit: hour, on_store_error: deny";
    let gateway = gateway(&redis, &upstream, limit).await;
    assert_eq!(ask(&gateway), "200");
    redis.kill();
    let answer = curl(&["-i", &url(&gateway, "/")]);
    assert_eq!(status(&answer), "503", "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("the store of the limits has no answer"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_go_back_to_the_store_when_clients_leave() {
    let redis = Redis::start();
    let (tell, told) = std::sync::mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        let head = read_head(&mut stream);
        if head.is_some_and(|head| head.starts_with("GET /held ")) {
            tell.send(()).unwrap();
            // Until the gateway gives up.
            let _ = stream.read(&mut [0]);
        } else {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let gateway = gateway(&redis, &upstream, "requests_per_unit: 1, algorithm: concurrency").await;
    let mut held = connect(&gateway);
    held.write_all(b"GET /held HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    told.recv_timeout(GUARD).unwrap();
    assert_eq!(ask(&gateway), "429");
    drop(held);
    // It is given back without being waited for.
    until("the permit is back", || ask(&gateway) == "200");
}
