//! What a gateway is told.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_http::{Answers, Forwarding};
pub use tidegate_server::TlsFiles;

/// Everything that a gateway is told when it starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GatewayConfig {
    /// Where it listens: `127.0.0.1:8000`, where port 0 is any free one, or `unix:/run/gateway.sock`.
    /// Whoever may open the file of a Unix socket is trusted as a proxy is.
    pub listen: String,
    /// Certificate and key, if it speaks TLS.
    pub tls: Option<TlsFiles>,
    /// How many threads serve, each its own connections; one for every two cores if 0.
    pub threads: usize,
    /// How many client connections there are at the most; more are closed at once.
    pub connections_max: usize,
    /// How many requests one HTTP/2 connection has under way at the most.
    pub streams_max: u32,
    /// Whose word on the client's address is taken, as `address` or `address/prefix`. Nobody's by
    /// default: what clients say in `X-Forwarded-*` and `Forwarded` is then replaced.
    pub trusted_proxies: Vec<String>,
    /// The header in which trusted proxies name clients. What the other one says is not believed: they
    /// do not set it, so clients could.
    pub forwarding: Forwarding,
    /// Whether trusted proxies begin their connections by the PROXY protocol.
    pub proxy_protocol: bool,
    /// Where requests go, by name.
    pub upstreams: Vec<Upstream>,
    /// Which requests go where; the most specific route wins.
    pub routes: Vec<Route>,
    /// The largest head of a request; 431 beyond.
    pub head_bytes_max: usize,
    /// The longest target of a request; 414 beyond.
    pub target_bytes_max: usize,
    /// The largest body of a request, where the route does not say otherwise; 413 beyond.
    pub body_bytes_max: u64,
    /// How long clients may take.
    pub patience: Patience,
    /// The name in `Via`; none is sent if there is none.
    pub via: Option<String>,
    /// What is said of limits and how, which requests are let through without asking, and what
    /// upstreams' answers change of what was counted. The gateway's own answers, such as 502, count
    /// as upstreams'. Unlike elsewhere, preflights are let through and headers are exposed to scripts
    /// unless said otherwise, since browsers may be among the clients.
    pub answers: Answers,
    /// Which requests are written down.
    pub access_log: AccessLog,
    /// How long requests under way may take once the gateway drains.
    pub drain: Duration,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8000".into(),
            tls: None,
            threads: 0,
            connections_max: 20_000,
            streams_max: 200,
            trusted_proxies: Vec::new(),
            forwarding: Forwarding::default(),
            proxy_protocol: false,
            upstreams: Vec::new(),
            routes: Vec::new(),
            head_bytes_max: 16 * 1024,
            target_bytes_max: 8 * 1024,
            body_bytes_max: 64 << 20,
            patience: Patience::default(),
            via: Some("tidegate".into()),
            answers: answers(),
            access_log: AccessLog::default(),
            drain: Duration::from_secs(10),
        }
    }
}

fn answers() -> Answers {
    let mut answers = Answers::default();
    (answers.exempt_preflight, answers.expose) = (true, true);
    answers
}

impl GatewayConfig {
    /// A gateway on any free port of this machine, for everything to one upstream.
    pub fn to(url: impl Into<String>) -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            upstreams: vec![Upstream::new("default", [url.into()])],
            routes: vec![Route::new("/**", "default")],
            ..Self::default()
        }
    }
}

/// How long clients may take. All of it is looked after ten times a second, so a deadline may
/// come a fifth of a second late.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Patience {
    /// From the first byte of a head to its last one, and for a TLS handshake.
    pub head: Duration,
    /// Without any byte of a body that is waited for.
    pub body: Duration,
    /// Without a request.
    pub idle: Duration,
    /// Without taking any byte of an answer.
    pub write: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            write: Duration::from_secs(30),
        }
    }
}

/// Servers that answer the same requests.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Upstream {
    /// What routes call it.
    pub name: String,
    /// Where they are: `http://host:port`, `https://host` (HTTP/2 if they speak it), `h2c://host`
    /// (HTTP/2 without TLS), `h2://host` (HTTP/2 with TLS); at a Unix socket `unix:/run/app.sock`, or
    /// `h2c+unix:/run/app.sock` for HTTP/2.
    pub urls: Vec<String>,
    /// Certificates that vouch for them instead of the system's, in PEM.
    pub ca: Option<PathBuf>,
    /// How many connections without a request each thread keeps to each of them.
    pub idle_max: usize,
    /// How long one is kept without a request.
    pub idle_for: Duration,
    /// How long one is used at all.
    pub age_max: Duration,
    /// How many connections each thread has to each of them at the most; 503 beyond.
    pub connections_max: usize,
    /// After how many failures in a row an address is left out, and for how long.
    pub failures_max: u32,
    /// How long it is left out.
    pub left_out_for: Duration,
    /// A look at each address at intervals, if wanted.
    pub check: Option<HealthCheck>,
    /// The `Host` that is sent to them; the client's if `None`.
    pub host: Option<String>,
}

impl Upstream {
    /// Servers by name and addresses.
    pub fn new<U: Into<String>>(
        name: impl Into<String>,
        urls: impl IntoIterator<Item = U>,
    ) -> Self {
        Self {
            name: name.into(),
            urls: urls.into_iter().map(Into::into).collect(),
            ca: None,
            idle_max: 128,
            idle_for: Duration::from_secs(50),
            age_max: Duration::from_secs(3600),
            connections_max: 4096,
            failures_max: 1,
            left_out_for: Duration::from_secs(10),
            check: None,
            host: None,
        }
    }
}

/// A look at an address: a GET that has to be answered below 400.
#[derive(Clone, Debug)]
pub struct HealthCheck {
    /// Of what.
    pub path: String,
    /// How often.
    pub every: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Which requests go where.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Route {
    /// The host, with stars for anything; any if `None`.
    pub host: Option<String>,
    /// The path, as a pattern of rules: `/api/**`.
    pub path: String,
    /// Where to.
    pub upstream: String,
    /// How long a connection may take.
    pub connect: Duration,
    /// How long the head of an answer may take from the end of the request on; 504 beyond.
    pub response: Duration,
    /// How long an answer may stop on its way, or a tunnel be silent.
    pub idle: Duration,
    /// The largest body of a request, if not the gateway's.
    pub body_bytes_max: Option<u64>,
}

impl Route {
    /// A route for a pattern of paths.
    pub fn new(path: impl Into<String>, upstream: impl Into<String>) -> Self {
        Self {
            host: None,
            path: path.into(),
            upstream: upstream.into(),
            connect: Duration::from_secs(3),
            response: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            body_bytes_max: None,
        }
    }
}

/// Which requests are written down, a line of JSON each.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AccessLog {
    /// Where to; nothing is written if `None`.
    pub to: Option<LogTo>,
    /// Of how many refusals one is written: all by default, since they may be many.
    pub refusals_one_in: u32,
}

/// Where lines go.
#[derive(Clone, Debug)]
pub enum LogTo {
    /// The standard output.
    Stdout,
    /// A file, to its end.
    File(PathBuf),
}
