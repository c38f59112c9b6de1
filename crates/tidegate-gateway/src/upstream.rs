//! Upstreams: where they are, and whether they are well. Shared by all threads.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{HeaderValue, Uri};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config;
use crate::gateway::GatewayError;
use crate::watch::{Ticks, now};

/// Servers that answer the same requests.
pub(crate) struct Upstream {
    pub(crate) addresses: Vec<Address>,
    pub(crate) idle_max: usize,
    pub(crate) idle_for: Ticks,
    pub(crate) age_max: Ticks,
    pub(crate) connections_max: usize,
    failures_max: u32,
    left_out_for: Ticks,
    pub(crate) check: Option<config::HealthCheck>,
    pub(crate) host: Option<HeaderValue>,
}

/// One of them.
pub(crate) struct Address {
    /// How people know it: host and port, or the path of a socket.
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// The same, for requests that bring no host.
    pub(crate) host: HeaderValue,
    pub(crate) protocol: Protocol,
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Failures in a row, and since when it has been left out; 0 if it is not.
    failures: AtomicU32,
    out_since: AtomicU32,
    pub(crate) failures_ever: AtomicU64,
    /// What the last look at it said.
    is_unwell: AtomicBool,
}

/// Where to connect.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Known(SocketAddr),
    /// A name, looked up for every connection.
    Named(String, u16),
    Unix(PathBuf),
}

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// What both sides agree on in the TLS handshake.
    Agreed,
}

impl Upstream {
    pub(crate) fn new(config: &config::Upstream) -> Result<Self, GatewayError> {
        let wrong = |url: &str, why: &str| GatewayError::Upstream {
            name: config.name.clone(),
            url: url.to_owned(),
            why: why.to_owned(),
        };
        if config.urls.is_empty() {
            return Err(wrong("", "there are no addresses"));
        }
        let addresses = config
            .urls
            .iter()
            .map(|url| Address::new(url, config).map_err(|why| wrong(url, &why)))
            .collect::<Result<_, _>>()?;
        let host = config.host.as_deref().map(|host| {
            HeaderValue::from_str(host).map_err(|_| wrong(host, "it cannot be a Host header"))
        });
        Ok(Self {
            addresses,
            idle_max: config.idle_max,
            idle_for: config.idle_for.into(),
            age_max: config.age_max.into(),
            connections_max: config.connections_max,
            failures_max: config.failures_max.max(1),
            left_out_for: config.left_out_for.into(),
            check: config.check.clone(),
            host: host.transpose()?,
        })
    }

    /// The address to begin with: the one whose turn it is, or the next one that is well. If none
    /// is, the turn decides, since somebody has to find out.
    pub(crate) fn choose(&self, turn: usize) -> usize {
        let count = self.addresses.len();
        let all = (0..count).map(|step| (turn + step) % count);
        all.into_iter().find(|at| self.is_well(*at)).unwrap_or(turn % count)
    }

    /// Whether an address is asked.
    pub(crate) fn is_well(&self, at: usize) -> bool {
        let address = &self.addresses[at];
        let since = address.out_since.load(Relaxed);
        (since == 0 || self.left_out_for.is_over(since)) && !address.is_unwell.load(Relaxed)
    }

    /// An address did not answer.
    pub(crate) fn failed(&self, at: usize) {
        let address = &self.addresses[at];
        address.failures_ever.fetch_add(1, Relaxed);
        let before = address.failures.fetch_add(1, Relaxed);
        if before == 0 {
            tracing::warn!(address = %address.authority, "an upstream does not answer");
        }
        if before.saturating_add(1) >= self.failures_max {
            address.out_since.store(now(), Relaxed);
        }
    }

    /// An address answered.
    pub(crate) fn answered(&self, at: usize) {
        let address = &self.addresses[at];
        if address.failures.load(Relaxed) != 0 {
            address.failures.store(0, Relaxed);
            address.out_since.store(0, Relaxed);
            tracing::info!(address = %address.authority, "an upstream answers again");
        }
    }

    /// What a look at it said.
    pub(crate) fn looked(&self, at: usize, is_well: bool) {
        let address = &self.addresses[at];
        if address.is_unwell.swap(!is_well, Relaxed) == is_well {
            tracing::info!(address = %address.name, is_well, "the health of an upstream changed");
        }
        if is_well {
            self.answered(at);
        }
    }
}

impl Address {
    fn new(url: &str, config: &config::Upstream) -> Result<Self, String> {
        if let Some((scheme, path)) = unix_of(url) {
            return Self::at_socket(scheme, path);
        }
        let uri: Uri = url.parse().map_err(|error| format!("it is not a URL: {error}"))?;
        let authority = uri.authority().ok_or("it has no host; give `http://host:port`")?.clone();
        if !matches!(uri.path(), "" | "/")
            || uri.query().is_some()
            || authority.as_str().contains('@')
        {
            return Err("it has more than a scheme, a host and a port".into());
        }
        let (scheme, protocol) = match uri.scheme_str() {
            Some("http") => (Scheme::HTTP, Protocol::Http1),
            Some("h2c") => (Scheme::HTTP, Protocol::Http2),
            Some("https") => (Scheme::HTTPS, Protocol::Agreed),
            Some("h2") => (Scheme::HTTPS, Protocol::Http2),
            _ => {
                let known = "`http`, `https`, `h2c`, `h2`, `unix`, `h2c+unix`";
                return Err(format!("the scheme is none of {known}"));
            }
        };
        let name = authority.host();
        let port = authority.port_u16().unwrap_or(if scheme == Scheme::HTTP { 80 } else { 443 });
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let target = match bare.parse() {
            Ok(address) => Target::Known(SocketAddr::new(address, port)),
            Err(_) => Target::Named(name.to_owned(), port),
        };
        let tls = match scheme == Scheme::HTTPS {
            false => None,
            true => {
                let server = ServerName::try_from(bare.to_owned())
                    .map_err(|_| "no certificate can be for such a host")?;
                Some((connector(config, protocol)?, server))
            }
        };
        let host = HeaderValue::from_str(authority.as_str()).map_err(|error| error.to_string())?;
        let name = authority.as_str().to_owned();
        Ok(Self { scheme, tls, ..Self::plain(name, target, authority, host, protocol) })
    }

    /// Behind a Unix socket, where there is no host; those that ask for one get the customary one.
    fn at_socket(scheme: &str, path: &str) -> Result<Self, String> {
        if !path.starts_with('/') {
            return Err("it is no path from the root; give `unix:/run/app.sock`".into());
        }
        let protocol = if scheme == "unix" { Protocol::Http1 } else { Protocol::Http2 };
        let (authority, host) =
            (Authority::from_static("localhost"), HeaderValue::from_static("localhost"));
        let target = Target::Unix(path.into());
        Ok(Self::plain(format!("unix:{path}"), target, authority, host, protocol))
    }

    /// Without TLS, and well until it is seen not to be.
    fn plain(
        name: String,
        target: Target,
        authority: Authority,
        host: HeaderValue,
        protocol: Protocol,
    ) -> Self {
        Self {
            name,
            target,
            scheme: Scheme::HTTP,
            authority,
            host,
            protocol,
            tls: None,
            failures: AtomicU32::new(0),
            out_since: AtomicU32::new(0),
            failures_ever: AtomicU64::new(0),
            is_unwell: AtomicBool::new(false),
        }
    }
}

/// The scheme and the path of an address that is a Unix socket. Some write the path behind two slashes, as
/// if there were a host.
fn unix_of(url: &str) -> Option<(&str, &str)> {
    let (scheme, path) = url.split_once(':')?;
    let is_unix = matches!(scheme, "unix" | "h2c+unix");
    is_unix.then(|| (scheme, path.strip_prefix("//").unwrap_or(path)))
}

/// TLS to upstreams, trusting the system's certificates or those that were given.
fn connector(config: &config::Upstream, protocol: Protocol) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    match &config.ca {
        Some(path) => {
            let all = CertificateDer::pem_file_iter(path)
                .and_then(|all| all.collect::<Result<Vec<_>, _>>())
                .map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
            for certificate in all {
                roots.add(certificate).map_err(|error| error.to_string())?;
            }
        }
        None => {
            // Those that cannot be read vouch for nobody.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
        Protocol::Agreed => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(TlsConnector::from(Arc::new(client)))
}

/// How long the requests of a route may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutePace {
    pub(crate) connect: Duration,
    pub(crate) response: Ticks,
    pub(crate) idle: Ticks,
}
