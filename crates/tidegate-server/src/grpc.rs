//! Envoy's protocol: the rate limit service over gRPC, with health and reflection.
//!
//! HTTP/2 is hyper's. The one method that counts is answered by hand ([`unary`]), everything else
//! by tonic.

mod body;
mod executor;
mod health;
mod routes;
mod unary;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};

use self::executor::HereFirst;
use self::routes::Routes;
use crate::config::Config;
use crate::drain::Drain;
use crate::listen::{Listener, Stream};
use crate::service::Service;

/// How large a message may be. A request with as many descriptors as there may be fits in.
const MESSAGE_MAX: usize = 1 << 20;
/// How long a message may take to come in.
const MESSAGE_TIME_MAX: Duration = Duration::from_secs(10);
/// How many requests a connection may have under way.
const STREAMS_MAX: u32 = 1024;
/// How large the headers of a request may be.
const HEADERS_MAX: u32 = 16 * 1024;
/// How much of a connection may be on its way to us, and how much of one request.
const CONNECTION_WINDOW: u32 = 1 << 20;
const STREAM_WINDOW: u32 = 64 * 1024;
/// After how much time a client is asked whether it is still there, and how long it may take to
/// answer.
const PING_AFTER: Duration = Duration::from_secs(60);
const PING_MAX: Duration = Duration::from_secs(20);

/// How long a client may take for its first request.
const SILENCE_MAX: Duration = Duration::from_secs(75);
/// How long a client that has not asked anything may take to leave when it is told to.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);

/// Serves until the server drains.
pub(crate) async fn serve(
    listener: Listener,
    service: Arc<Service>,
    config: Arc<Config>,
    drain: Drain,
) {
    let metrics = Arc::clone(service.metrics());
    let connections_max = config.connections_max;
    let routes = Arc::new(Routes::new(service, config, drain.clone()));
    let drained = drain.clone();
    let connection = move |stream, _peer| converse(stream, Arc::clone(&routes), drained.clone());
    listener.serve(drain, metrics, connections_max, connection).await;
}

/// Serves one connection. When the server drains the client is told so, and what it has begun is
/// answered.
async fn converse(stream: Stream, routes: Arc<Routes>, drain: Drain) {
    let has_asked = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&has_asked);
    let service = service_fn(move |request| {
        asked.store(true, Ordering::Relaxed);
        Arc::clone(&routes).answer(request)
    });
    let connection = builder().serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = drain.begun() => None,
        () = silence(&has_asked) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                // Who has not even said that this is HTTP/2 cannot be told to leave.
                () = tokio::time::sleep(LEAVE_TIME_MAX), if !has_asked.load(Ordering::Relaxed) => {
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a gRPC connection broke");
    }
}

/// Ready when a client has had its time and has not asked anything yet.
async fn silence(has_asked: &AtomicBool) {
    tokio::time::sleep(SILENCE_MAX).await;
    if has_asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

fn builder() -> http2::Builder<HereFirst> {
    let mut builder = http2::Builder::new(HereFirst);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_AFTER)
        .keep_alive_timeout(PING_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADERS_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .auto_date_header(false);
    builder
}
