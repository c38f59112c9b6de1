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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;

use crate::config::Config;
use crate::drain::Drain;
use crate::listen::{Listener, Peer, Stream};
use crate::service::Service;

pub(crate) use self::client::Trusted;

/// How long a client may take to send the head of a request, from the moment that it could: so
/// also how long a connection is kept on which nothing happens. Proxies close theirs after 60 s,
/// which should be the first to come.
const HEAD_TIME_MAX: Duration = Duration::from_secs(75);
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
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIME_MAX);
    let begun = app.drain.begun();
    let has_asked = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&has_asked);
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        asked.store(true, Ordering::Relaxed);
        async move { Ok::<_, Infallible>(app.answer(request, peer).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut begun = std::pin::pin!(begun);
    // Until the first bytes tell which version of HTTP it is, nobody else looks at the time.
    let mut first = std::pin::pin!(tokio::time::sleep(HEAD_TIME_MAX));
    let (mut is_ending, mut is_timed) = (false, true);
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(error = %error, "an HTTP connection ended badly");
                }
                return;
            }
            () = &mut begun, if !is_ending => {
                is_ending = true;
                connection.as_mut().graceful_shutdown();
            }
            () = &mut first, if is_timed => {
                is_timed = false;
                if !has_asked.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }
}
