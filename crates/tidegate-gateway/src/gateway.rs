//! A gateway, from binding its listeners to having drained.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use tidegate::rules::RouteTable;
use tidegate_http::{Asked, Gate, NoNetwork, Trusted};
use tidegate_server::{
    Address, AddressError, GatewayStats, SocketFile, TlsError, server_config, threads_by_default,
};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use crate::config::GatewayConfig;
use crate::log::Logs;
use crate::socket::{Bound, bind};
use crate::stats::GatewayWatch;
use crate::upstream::{RoutePace, Upstream};
use crate::wire::Pace;
use crate::worker::{Shared, Target, Worker};

/// What is spoken over TLS, what is preferred first.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];
/// How long a client may still send that has its last answer.
const LINGER: Duration = Duration::from_secs(2);

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// Where it is to listen is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address cannot be listened at.
    #[error("cannot listen at {address} for the gateway")]
    Bind {
        /// Where.
        address: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What is to be trusted is no address.
    #[error("`{0}` in trusted_proxies is neither an address nor a network such as 10.0.0.0/8")]
    Proxy(String),
    /// An upstream makes no sense.
    #[error("`{url}` of the upstream `{name}` cannot be used: {why}")]
    Upstream {
        /// Which upstream.
        name: String,
        /// Which of its addresses.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// A route makes no sense.
    #[error("a route cannot be used: {0}")]
    Route(String),
    /// TLS was asked for and cannot be had.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The access log cannot be written.
    #[error("cannot write the access log")]
    Log(#[source] io::Error),
    /// The system gives no threads.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
}

/// A running gateway: it accepts by the time it is made. Dropped, it ends at once.
pub struct Gateway {
    address: Address,
    tcp: Option<SocketAddr>,
    file: Option<SocketFile>,
    shared: Arc<Shared>,
    logs: Option<Logs>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Binds the address and serves, asking the gate about each request.
    ///
    /// # Errors
    /// If an address cannot be bound, or something that it was told makes no sense.
    pub fn start<G: Gate<Asked>>(config: GatewayConfig, gate: G) -> Result<Self, GatewayError> {
        let threads = match config.threads {
            0 => threads_by_default(),
            threads => threads,
        };
        let logs = Logs::start(&config.access_log).map_err(GatewayError::Log)?;
        let shared = Arc::new(share(config)?);
        let address = shared.config.listen.parse()?;
        let failed = |source| GatewayError::Bind { address: shared.config.listen.clone(), source };
        let Bound { address, tcp, file, listeners } = bind(&address, threads).map_err(failed)?;
        let mut gateway = Self { address, tcp, file, shared, logs, threads: Vec::new() };
        for (index, listener) in listeners.into_iter().enumerate() {
            let (shared, gate) = (Arc::clone(&gateway.shared), gate.clone());
            let logs = gateway.logs.clone();
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(GatewayError::Threads)?;
            let run = move || {
                let local = LocalSet::new();
                local.block_on(&runtime, async move {
                    let Ok(listener) = listener.settle() else { return };
                    let log = logs.map(|logs| logs.of_thread());
                    let worker = Rc::new(Worker::new(shared, gate, log));
                    worker.run(listener, index == 0).await;
                });
            };
            let thread = thread::Builder::new().name("gateway".into()).spawn(run);
            gateway.threads.push(thread.map_err(GatewayError::Threads)?);
        }
        Ok(gateway)
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The same, if it is a TCP port.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// How many client connections are open.
    pub fn connections(&self) -> usize {
        self.shared.open.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Somebody who can look at it from anywhere.
    pub fn watch(&self) -> GatewayWatch {
        GatewayWatch::new(Arc::clone(&self.shared), self.logs.clone())
    }

    /// What there is to see of it now.
    pub fn stats(&self) -> GatewayStats {
        self.watch().stats()
    }

    /// Reads certificate and key again, for connections to come.
    ///
    /// # Errors
    /// If they cannot be used; the old ones stay.
    pub fn reload_tls(&self) -> Result<(), TlsError> {
        if let (Some(tls), Some(files)) = (&self.shared.tls, &self.shared.config.tls) {
            tls.store(server_config(files, PROTOCOLS)?);
        }
        Ok(())
    }

    /// Ends: nobody new is accepted, requests under way are answered, connections are closed.
    /// Whether all of that was done in the time that there was.
    pub async fn drain(mut self) -> bool {
        // Who comes too late is told so by the system, and does not wait.
        self.file = None;
        self.shared.drain.cancel();
        self.shared.tasks.close();
        let waiting = tokio::time::timeout(self.shared.config.drain, self.shared.tasks.wait());
        let is_done = waiting.await.is_ok();
        self.shared.end.cancel();
        for thread in self.threads.drain(..) {
            // One that panicked has been reported.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
        is_done
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.drain.cancel();
        self.shared.end.cancel();
    }
}

/// Turns what a gateway is told into what its threads need.
fn share(config: GatewayConfig) -> Result<Shared, GatewayError> {
    let upstreams = config
        .upstreams
        .iter()
        .map(|upstream| Upstream::new(upstream).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    let patterns = config.routes.iter().map(|route| (route.host.as_deref(), &*route.path));
    let routes = RouteTable::new(patterns).map_err(GatewayError::Route)?;
    let mut targets = Vec::with_capacity(config.routes.len());
    for route in &config.routes {
        let named = config.upstreams.iter().position(|upstream| upstream.name == route.upstream);
        let upstream = named.ok_or_else(|| {
            GatewayError::Route(format!("there is no upstream `{}`", route.upstream))
        })?;
        let pace = RoutePace {
            connect: route.connect,
            response: route.response.into(),
            idle: route.idle.into(),
        };
        let body_max = route.body_bytes_max.unwrap_or(config.body_bytes_max);
        targets.push(Target { upstream, pace, body_max });
    }
    let tls = match &config.tls {
        Some(files) => Some(ArcSwap::from(server_config(files, PROTOCOLS)?)),
        None => None,
    };
    let trusted = Trusted::parse(&config.trusted_proxies, config.forwarding);
    let trusted = trusted.map_err(|NoNetwork(text)| GatewayError::Proxy(text))?;
    let via = config.via.as_ref().map(|name| HeaderValue::from_str(&format!("1.1 {name}")));
    let via = via.transpose().map_err(|_| {
        GatewayError::Route("the name in `via` holds what no header can".to_owned())
    })?;
    let patience = config.patience;
    let pace = Pace {
        head: patience.head.into(),
        body: patience.body.into(),
        idle: patience.idle.into(),
        write: patience.write.into(),
        linger: LINGER.into(),
    };
    Ok(Shared {
        routes,
        targets,
        upstreams,
        tls,
        trusted,
        via,
        pace,
        open: AtomicUsize::new(0),
        turned_away: AtomicU64::new(0),
        accept_errors: AtomicU64::new(0),
        bad_requests: AtomicU64::new(0),
        drain: Default::default(),
        end: Default::default(),
        tasks: Default::default(),
        config,
    })
}
