//! A server in this process, and a small client that says exactly what it is told to.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tidegate::rules::{File, Options, Rules};
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter, Timestamp, check_time_zone};
use tidegate_server::{Address, Config, Server, Service, ServiceClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

/// 34 seconds into a minute.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1234);

pub(crate) const RULES: &str = r#"
domain: api
http:
  - match: { path: "/v1/posts" }
    descriptors: [ { user: "${header.x-user-id:-anon}" } ]
  - match: { path: "/strict" }
    descriptors: [ { user: "${header.x-user-id}" } ]
    on_missing: deny
  - match: { path: "/by-ip/**" }
    descriptors: [ { ip: "${client_ip}" } ]
  - match: { path: "/by-host", host: "a.example" }
    descriptors: [ { host: a } ]
  - match: { path: "/by-method", method: DELETE }
    descriptors: [ { host: a } ]
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 2, unit: minute, algorithm: token_bucket } }
  - { key: ip, rate_limit: { requests_per_unit: 2, unit: hour } }
  - { key: host, rate_limit: { requests_per_unit: 1, unit: hour } }
  - { key: tokens, rate_limit: { requests_per_unit: 100, unit: day } }
  - { key: job, rate_limit: { requests_per_unit: 1, algorithm: concurrency } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: never, rate_limit: { requests_per_unit: 0, unit: day } }
"#;

pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) clock: ManualClock,
}

pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.http = Address::Tcp("127.0.0.1:0".into());
    (config.grpc, config.resp) = (Address::Off, Address::Off);
    config
}

pub(crate) fn service_on(store: MemoryStore, rules: &str, clock: &ManualClock) -> Arc<Service> {
    let mut options = Options::default();
    options.check_time_zone = check_time_zone;
    let loaded = Rules::load(&[File { name: "rules.yaml", text: rules }], &options);
    let rules = loaded.rules.unwrap_or_else(|| panic!("{}", loaded.report));
    let clock = ServiceClock::Manual(clock.clone());
    let limits = RuleLimiter::build(store.into(), clock, rules, Modes::default()).unwrap();
    Arc::new(Service::new(limits, 0.8))
}

impl Running {
    pub(crate) async fn new() -> Self {
        Self::with(RULES, config()).await
    }

    pub(crate) async fn with(rules: &str, config: Config) -> Self {
        let clock = ManualClock::at(NOW);
        let service = service_on(MemoryStore::new(), rules, &clock);
        let server = Server::start(service, config).await.unwrap();
        Self { server, clock }
    }

    pub(crate) fn address(&self) -> String {
        self.server.bound().http.to_string()
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).await.unwrap()
    }

    /// Sends a request with these header lines, and gives the answer.
    pub(crate) async fn send(
        &self,
        method: &str,
        target: &str,
        headers: &str,
        body: &str,
    ) -> Reply {
        let request = request(method, target, headers, body);
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        read_reply(&mut stream).await
    }

    pub(crate) async fn get(&self, target: &str) -> Reply {
        self.send("GET", target, "", "").await
    }

    pub(crate) async fn post(&self, target: &str, body: &str) -> Reply {
        self.send("POST", target, "Content-Type: application/json\r\n", body).await
    }

    pub(crate) async fn delete(&self, target: &str) -> Reply {
        self.send("DELETE", target, "", "").await
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

pub(crate) fn request(method: &str, target: &str, headers: &str, body: &str) -> String {
    let host =
        if headers.to_ascii_lowercase().contains("host:") { "" } else { "Host: localhost\r\n" };
    format!(
        "{method} {target} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) async fn read_reply(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Reply {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    Reply::parse(&String::from_utf8(bytes).unwrap())
}

pub(crate) async fn send_by_unix(path: &std::path::Path, request: &str) -> Reply {
    let mut stream = UnixStream::connect(path).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    read_reply(&mut stream).await
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        });
        Self { status, headers: headers.collect(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(it, _)| it.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there twice: {:?}", self.headers);
        value
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that it is a problem of this status, and gives its detail.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], status);
        assert!(json["type"].is_string() && json["title"].is_string(), "{json}");
        json["detail"].as_str().unwrap().to_owned()
    }
}
