//! HTTP and JSON: checks and everything around them, health, and what proxies ask before they let
//! a request through.
//!
//! Requests are matched by a short table of our own (`route.rs`) on hyper: there are few routes,
//! all known, and the one for checks is to cost next to nothing.

mod admin;
mod answer;
mod asked;
mod auth;
mod body;
mod check;
mod client;
mod explain;
pub(crate) mod fuzzing;
mod info;
mod keys;
mod lyft;
mod problem;
mod query;
mod reserve;
mod route;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tidegate_http::Trusted;
use tokio::time::Instant;

use crate::config::Config;
use crate::drain::Drain;
use crate::listen::{Listener, Peer, Stream};
use crate::service::Service;

/// How long a connection is kept on which no request is under way: while nothing happens, while the
/// head of one does not come to its end, or while nobody reads its answer. Proxies close theirs
/// after 60 s, which should be the first to come.
const IDLE_TIME_MAX: Duration = Duration::from_secs(75);
/// How often that is looked at. A timer for each request would cost more than a request may.
const IDLE_TICKS: u32 = 5;
const IDLE_TICK: Duration = Duration::from_secs(IDLE_TIME_MAX.as_secs() / IDLE_TICKS as u64);
/// How long a client may take, once the server drains, to finish what it has begun to send.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);
/// How many bytes the head of a request has at the most.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How many requests of one connection are under way at once, over HTTP/2.
const STREAMS_MAX: u32 = 256;
/// How often it is asked whether the other side of an HTTP/2 connection is still there, and how
/// long it has to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIME_MAX: Duration = Duration::from_secs(20);

/// What all requests are answered by.
pub(crate) struct App {
    service: Arc<Service>,
    config: Arc<Config>,
    trusted: Trusted,
    drain: Drain,
    /// Whether it was said that somebody's word on the client's address is not taken.
    stranger_told: AtomicBool,
}

impl App {
    fn new(service: Arc<Service>, config: Arc<Config>, trusted: Trusted, drain: Drain) -> Self {
        Self { service, config, trusted, drain, stranger_told: AtomicBool::new(false) }
    }
}

/// Serves until the server drains.
pub(crate) async fn serve(
    listener: Listener,
    service: Arc<Service>,
    config: Arc<Config>,
    trusted: Trusted,
    drain: Drain,
) {
    let metrics = Arc::clone(service.metrics());
    let connections_max = config.connections_max;
    let app = Arc::new(App::new(service, config, trusted, drain.clone()));
    let handle = move |stream, peer| connection(stream, peer, Arc::clone(&app));
    listener.serve(drain, metrics, connections_max, handle).await;
}

/// Serves one connection until it ends or the server drains.
async fn connection(stream: Stream, peer: Peer, app: Arc<App>) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Answers are small: to copy the body behind the head costs less than to write two pieces.
    builder.http1().max_buf_size(HEAD_BYTES_MAX).header_read_timeout(None).writev(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIME_MAX);
    let mut begun = std::pin::pin!(app.drain.begun());
    let under_way = Arc::new(UnderWay::default());
    let counted = Arc::clone(&under_way);
    let service = service_fn(move |request| {
        let (app, place) = (Arc::clone(&app), UnderWay::begin(&counted));
        async move {
            let answer = app.answer(request, peer).await;
            drop(place);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut ticks = tokio::time::interval_at(Instant::now() + IDLE_TICK, IDLE_TICK);
    let (mut is_ending, mut idle_ticks, mut asked_before) = (false, 0, 0);
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(error = %error, "an HTTP connection ended badly");
                }
                return;
            }
            () = &mut begun, if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
                ticks = tokio::time::interval_at(Instant::now() + LEAVE_TIME_MAX, LEAVE_TIME_MAX);
            }
            // The head of a request that has not come whole by now is not waited for.
            _ = ticks.tick() => {
                if is_ending && under_way.is_none() {
                    return;
                }
                let asked = under_way.asked();
                let is_idle = under_way.is_none() && asked == asked_before;
                asked_before = asked;
                idle_ticks = if is_idle { idle_ticks + 1 } else { 0 };
                if idle_ticks >= IDLE_TICKS {
                    // Over HTTP/2 the other side is told; who has nothing to lose is cut off.
                    connection.as_mut().graceful_shutdown();
                }
                if idle_ticks > IDLE_TICKS || (idle_ticks == IDLE_TICKS && asked == 0) {
                    return;
                }
            }
        }
    }
}

/// The requests of a connection.
#[derive(Debug, Default)]
struct UnderWay {
    asked: AtomicU64,
    open: AtomicU64,
}

/// A request that is under way until this is dropped.
struct OneUnderWay(Arc<UnderWay>);

impl UnderWay {
    fn begin(this: &Arc<Self>) -> OneUnderWay {
        this.asked.fetch_add(1, Ordering::Relaxed);
        this.open.fetch_add(1, Ordering::Relaxed);
        OneUnderWay(Arc::clone(this))
    }

    /// How many there have been.
    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    fn is_none(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }
}

impl Drop for OneUnderWay {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
