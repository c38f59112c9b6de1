//! What a server is told.

use std::path::PathBuf;
use std::time::Duration;

use crate::address::Address;

/// Everything that a server is told when it starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Where Envoy's protocol is spoken.
    pub grpc: Address,
    /// Where HTTP is spoken.
    pub http: Address,
    /// Where the protocol of Redis is spoken.
    pub resp: Address,
    /// Certificate and key, if the gRPC listener speaks TLS.
    pub grpc_tls: Option<TlsFiles>,
    /// Certificate and key, if the HTTP listener speaks TLS.
    pub http_tls: Option<TlsFiles>,
    /// Certificate and key, if the RESP listener speaks TLS.
    pub resp_tls: Option<TlsFiles>,
    /// What administrators have to show who do not come from this machine.
    pub admin_token: Option<String>,
    /// What RESP clients have to say in AUTH before anything else.
    pub resp_password: Option<String>,
    /// Whose word on the client's address is taken, as `address` or `address/prefix`.
    pub trusted_proxies: Vec<String>,
    /// How many connections each front end has at the most.
    pub connections_max: usize,
    /// How many threads serve gRPC and HTTP, each its own connections; if 0, the runtime that the
    /// server is started on.
    pub threads: usize,
    /// How many threads serve RESP; half as many as the machine has cores if 0.
    pub resp_threads: usize,
    /// How long requests under way may take once the server drains.
    pub drain: Duration,
    /// How long the server goes on as if nothing was, after it has said that it is about to end.
    pub drain_delay: Duration,
    /// Whether answers to Envoy carry headers for the client, as Lyft's service does, and which.
    pub response_headers: Option<HeaderNames>,
    /// Whether `X-RateLimit-Reset` counts seconds since 1970 instead of from now.
    pub reset_as_epoch: bool,
    /// Whether answers to Envoy carry the request as dynamic metadata.
    pub dynamic_metadata: bool,
    /// The part of a limit from which on Lyft's counters call a request near it.
    pub near_limit_ratio: f32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            grpc: Address::Tcp("127.0.0.1:8081".into()),
            http: Address::Tcp("127.0.0.1:8080".into()),
            resp: Address::Tcp("127.0.0.1:6380".into()),
            grpc_tls: None,
            http_tls: None,
            resp_tls: None,
            admin_token: None,
            resp_password: None,
            trusted_proxies: Vec::new(),
            connections_max: 20_000,
            threads: 0,
            resp_threads: 0,
            drain: Duration::from_secs(10),
            drain_delay: Duration::ZERO,
            response_headers: None,
            reset_as_epoch: false,
            dynamic_metadata: false,
            near_limit_ratio: 0.8,
        }
    }
}

impl Config {
    /// How many threads serve RESP.
    pub(crate) fn threads_of_resp(&self) -> usize {
        match self.resp_threads {
            0 => threads_by_default(),
            threads => threads,
        }
    }
}

/// How many threads serve, where nobody says otherwise: one for every two cores.
///
/// The system takes as much for its part of the work as we do for ours; and threads with little to
/// do each go to sleep and wake up for every other request, which costs a third on top.
#[must_use]
pub fn threads_by_default() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).div_ceil(2)
}

/// The names of the headers that Lyft's service adds to answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    /// How many.
    pub limit: String,
    /// How many are left.
    pub remaining: String,
    /// In how many seconds all of them are.
    pub reset: String,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            limit: "RateLimit-Limit".into(),
            remaining: "RateLimit-Remaining".into(),
            reset: "RateLimit-Reset".into(),
        }
    }
}

/// The files of a listener that speaks TLS, all in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those that vouch for it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates that vouch for clients; with it clients without a certificate are turned
    /// away.
    pub client_ca: Option<PathBuf>,
}
