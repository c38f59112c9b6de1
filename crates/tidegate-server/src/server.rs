//! The listeners of all front ends, from binding to having drained.

use std::fmt;
use std::io;
use std::sync::Arc;

use tidegate_http::{Forwarding, NoNetwork, Trusted};
use tokio::task::JoinHandle;

use crate::address::Address;
use crate::config::Config;
use crate::drain::Drain;
use crate::front_end::FrontEnd;
use crate::lanes::Lanes;
use crate::listen::{Listener, Tls};
use crate::service::Service;
use crate::stores::AnyStore;
use crate::tls::TlsError;
use crate::{exceptions, grpc, http, resp};

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened at.
    #[error("cannot listen at {address} for {}", front_end.as_str())]
    Bind {
        /// For whom.
        front_end: FrontEnd,
        /// Where.
        address: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// What is to be trusted is no address.
    #[error("`{0}` in trusted_proxies is neither an address nor a network such as 10.0.0.0/8")]
    Proxy(String),
    /// The system gives no threads.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
    /// TLS was asked for and cannot be had.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A running service: it accepts by the time it is made.
pub struct Server {
    bound: Bound,
    drain: Drain,
    config: Arc<Config>,
    tls: Vec<Arc<Tls>>,
    accepting: Vec<JoinHandle<()>>,
    /// Connections end with them, and so not before the server has drained.
    _lanes: [Option<Arc<Lanes>>; 2],
}

/// Where a server listens, with the real ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Envoy's protocol.
    pub grpc: Address,
    /// HTTP.
    pub http: Address,
    /// The protocol of Redis.
    pub resp: Address,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("bound", &self.bound).finish_non_exhaustive()
    }
}

impl Server {
    /// Binds all listeners and begins to serve.
    ///
    /// # Errors
    /// If one of them cannot be bound; none is then.
    pub async fn start(service: Arc<Service>, config: Config) -> Result<Self, StartError> {
        if let AnyStore::Redis(store) = service.limits().store() {
            tokio::spawn(exceptions::follow(Arc::downgrade(&service), store.clone()));
        }
        let trusted = Trusted::parse(&config.trusted_proxies, Forwarding::XForwardedFor);
        let trusted = trusted.map_err(|NoNetwork(text)| StartError::Proxy(text))?;
        let grpc = Listener::bind(FrontEnd::Grpc, &config.grpc, config.grpc_tls.as_ref(), &[b"h2"]);
        let grpc = grpc.await?;
        let protocols: &[&[u8]] = &[b"h2", b"http/1.1"];
        let http =
            Listener::bind(FrontEnd::Http, &config.http, config.http_tls.as_ref(), protocols);
        let http = http.await?;
        let resp = Listener::bind(FrontEnd::Resp, &config.resp, config.resp_tls.as_ref(), &[]);
        let resp = resp.await?;

        let address =
            |listener: &Option<Listener>| listener.as_ref().map_or(Address::Off, Listener::address);
        let bound = Bound { grpc: address(&grpc), http: address(&http), resp: address(&resp) };
        let tls = [&grpc, &http, &resp].into_iter().flatten().filter_map(Listener::tls).collect();
        let lanes = match config.threads {
            0 => None,
            threads => Some(Arc::new(Lanes::start(threads).map_err(StartError::Threads)?)),
        };
        let resp_lanes = resp.as_ref().map(|_| Lanes::start(config.threads_of_resp()));
        let resp_lanes = resp_lanes.transpose().map_err(StartError::Threads)?;
        let resp_lanes = resp_lanes.map(Arc::new);
        let (drain, config) = (Drain::default(), Arc::new(config));
        let mut accepting = Vec::new();
        let parts = || (Arc::clone(&service), Arc::clone(&config), drain.clone());
        if let Some(listener) = grpc {
            let (service, config, drain) = parts();
            accepting.push(tokio::spawn(grpc::serve(
                listener.on(lanes.as_ref()),
                service,
                config,
                drain,
            )));
        }
        if let Some(listener) = http {
            let (service, config, drain) = parts();
            accepting.push(tokio::spawn(http::serve(
                listener.on(lanes.as_ref()),
                service,
                config,
                trusted,
                drain,
            )));
        }
        if let Some(listener) = resp {
            let (service, config, drain) = parts();
            accepting.push(tokio::spawn(resp::serve(
                listener.on(resp_lanes.as_ref()),
                service,
                config,
                drain,
            )));
        }
        Ok(Self { bound, drain, config, tls, accepting, _lanes: [lanes, resp_lanes] })
    }

    /// Where it listens.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Reads certificates and keys again.
    ///
    /// # Errors
    /// If some cannot be used; those listeners keep what they have.
    pub fn reload_tls(&self) -> Result<(), TlsError> {
        self.tls.iter().map(|tls| tls.reload()).fold(Ok(()), Result::and)
    }

    /// Ends: health says no first, then nobody new is accepted, requests under way are answered,
    /// and connections are closed. Whether all of that was done in the time that there was.
    pub async fn drain(self) -> bool {
        self.drain.leave();
        tokio::time::sleep(self.config.drain_delay).await;
        self.drain.begin();
        // First those who accept, so that whomever they accepted last is waited for as well.
        for task in self.accepting {
            // A front end that panicked has been reported.
            let _ = task.await;
        }
        self.drain.wait(self.config.drain).await
    }
}
