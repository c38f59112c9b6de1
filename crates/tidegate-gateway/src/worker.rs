//! One thread of a gateway: its listener, its connections, its pools.

use std::cell::RefCell;
use std::future::poll_fn;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use tidegate::rules::{HttpRequest as _, RouteScratch, RouteTable};
use tidegate_http::{Answers, Asked, Gate, Refusals, Trusted};
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::GatewayConfig;
use crate::connection;
use crate::health;
use crate::log::Log;
use crate::pool::Pools;
use crate::socket::{Listener, Plain};
use crate::upstream::{RoutePace, Upstream};
use crate::watch::Watches;
use crate::wire::Pace;

/// How long accepting pauses when the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(50);

/// What all threads of a gateway know.
pub(crate) struct Shared {
    pub(crate) config: GatewayConfig,
    pub(crate) routes: RouteTable,
    pub(crate) targets: Vec<Target>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    pub(crate) tls: Option<ArcSwap<ServerConfig>>,
    pub(crate) trusted: Trusted,
    pub(crate) via: Option<HeaderValue>,
    pub(crate) pace: Pace,
    pub(crate) open: AtomicUsize,
    /// Connections that found no room.
    pub(crate) turned_away: AtomicU64,
    /// Times that the system had no room for another one.
    pub(crate) accept_errors: AtomicU64,
    /// Requests that were not understood.
    pub(crate) bad_requests: AtomicU64,
    /// Nobody new is accepted from then on.
    pub(crate) drain: CancellationToken,
    /// Everything ends.
    pub(crate) end: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// Where the requests of a route go.
pub(crate) struct Target {
    pub(crate) upstream: usize,
    pub(crate) pace: RoutePace,
    pub(crate) body_max: u64,
}

/// What one thread knows.
pub(crate) struct Worker<G> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) gate: G,
    pub(crate) watches: Rc<Watches>,
    pub(crate) pools: Rc<Pools>,
    pub(crate) trusted: Trusted,
    pub(crate) via: Option<HeaderValue>,
    pub(crate) log: Option<Rc<Log>>,
    pub(crate) tasks: TaskTracker,
    scratch: RefCell<RouteScratch>,
    pub(crate) refusals: RefCell<Refusals>,
}

impl<G: Gate<Asked>> Worker<G> {
    pub(crate) fn new(shared: Arc<Shared>, gate: G, log: Option<Log>) -> Self {
        Self {
            gate,
            watches: Rc::default(),
            pools: Rc::new(Pools::new(&shared.upstreams)),
            trusted: shared.trusted.clone(),
            via: shared.via.clone(),
            log: log.map(Rc::new),
            tasks: shared.tasks.clone(),
            scratch: RefCell::default(),
            refusals: RefCell::default(),
            shared,
        }
    }

    /// The position of the target that a request goes to, if there is one.
    pub(crate) fn route(&self, asked: &Asked) -> Option<usize> {
        let routes = &self.shared.routes;
        let found = || routes.find(asked.host(), asked.path(), &mut self.scratch.borrow_mut());
        routes.only().or_else(found).filter(|found| *found < self.shared.targets.len())
    }

    pub(crate) fn answers(&self) -> &Answers {
        &self.shared.config.answers
    }

    /// Serves until it all ends. The first thread looks after the health of upstreams.
    pub(crate) async fn run(self: Rc<Self>, listener: Listener, is_first: bool) {
        let shared = Arc::clone(&self.shared);
        let this = Rc::clone(&self);
        tokio::task::spawn_local(async move {
            let mut ticks = 0u32;
            let tidy = || {
                ticks = ticks.wrapping_add(1);
                if ticks.is_multiple_of(10) {
                    this.pools.tidy();
                }
            };
            this.watches.sweep(tidy).await;
        });
        if is_first {
            health::watch(&shared.upstreams);
        }
        self.accept_all(listener).await;
        self.watches.drain();
        shared.end.cancelled().await;
    }

    /// Accepts connections until the gateway drains; those that wait then are still taken.
    async fn accept_all(self: &Rc<Self>, listener: Listener) {
        let shared = &self.shared;
        loop {
            let accepted = tokio::select! {
                biased;
                accepted = poll_fn(|context| listener.poll_accept(context)) => accepted,
                () = shared.drain.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    shared.accept_errors.fetch_add(1, Relaxed);
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(NO_ROOM_PAUSE).await;
                }
            }
        }
        poll_fn(|context| {
            while let Poll::Ready(Ok((stream, peer))) = listener.poll_accept(context) {
                self.take(stream, peer);
            }
            Poll::Ready(())
        })
        .await;
    }

    fn take(self: &Rc<Self>, stream: Plain, peer: Option<IpAddr>) {
        let shared = &self.shared;
        if shared.open.load(Relaxed) >= shared.config.connections_max {
            shared.turned_away.fetch_add(1, Relaxed);
            tracing::debug!(?peer, "a connection was turned away: there are too many");
            return;
        }
        shared.open.fetch_add(1, Relaxed);
        let counted = Counted(Arc::clone(shared));
        let worker = Rc::clone(self);
        let serving = self.tasks.track_future(async move {
            let _counted = counted;
            connection::serve(worker, stream, peer).await;
        });
        tokio::task::spawn_local(serving);
    }
}

/// A place among the connections of a gateway.
struct Counted(Arc<Shared>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// Whether an error of accepting is about a single connection, which is gone.
fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
