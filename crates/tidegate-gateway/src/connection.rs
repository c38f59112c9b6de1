//! A client's connection, from its first byte to its last.

use std::future::{Future as _, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_http::{Asked, Gate};
use tokio::io::AsyncReadExt as _;
use tokio_rustls::TlsAcceptor;

use crate::early::Early;
use crate::fields::Peer;
use crate::proxy_protocol::{self, Header};
use crate::scan::Sizes;
use crate::seam::{Place, answer_http1, answer_http2};
use crate::socket::Plain;
use crate::streams::Streams;
use crate::watch::{Wait, Watch};
use crate::wire::{Stream, Wire};
use crate::worker::Worker;

/// How a connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How often a silent HTTP/2 client is asked whether it is still there, and for how long.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of an answer waits for an HTTP/2 client to take it.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Serves a connection until it ends.
pub(crate) async fn serve<G: Gate<Asked>>(
    worker: Rc<Worker<G>>,
    plain: Plain,
    peer: Option<IpAddr>,
) {
    let opening = open(&worker, plain, peer);
    let opened = tokio::select! {
        opened = opening => opened,
        // Whoever has not begun yet is not waited for.
        () = worker.shared.drain.cancelled() => return,
    };
    let Some(Opened { stream, early, is_http2, client, scheme }) = opened else { return };
    let watched = worker.watches.watch();
    let watch = Arc::clone(watched.share());
    watch.set_idle(worker.shared.pace.idle);
    let place = Rc::new(Place {
        peer: Peer::new(client, scheme, &worker.trusted),
        watch: Arc::clone(&watch),
        worker,
    });
    match is_http2 {
        true => serve_http2(place, stream, early).await,
        false => serve_http1(place, stream, early).await,
    }
    drop(watched);
}

/// A connection of which is known what it speaks.
struct Opened {
    stream: Stream,
    early: Vec<u8>,
    is_http2: bool,
    client: Option<IpAddr>,
    scheme: &'static str,
}

/// Finds out who connects and what is spoken; `None` if nothing sensible is.
async fn open<G: Gate<Asked>>(
    worker: &Rc<Worker<G>>,
    mut plain: Plain,
    peer: Option<IpAddr>,
) -> Option<Opened> {
    let shared = &worker.shared;
    let patience = &shared.config.patience;
    let (mut client, mut early) = (peer, Vec::new());
    let is_trusted = || peer.is_none_or(|peer| worker.trusted.covers(peer));
    if shared.config.proxy_protocol && is_trusted() {
        let told = read_proxy_header(&mut plain, &mut early);
        client = tokio::time::timeout(patience.head, told).await.ok()??.or(peer);
    }
    if let Some(tls) = &shared.tls {
        let acceptor = TlsAcceptor::from(tls.load_full());
        let accepting = acceptor.accept(Early { early, inner: plain });
        let stream = tokio::time::timeout(patience.head, accepting).await.ok()?;
        let stream = stream.inspect_err(|error| {
            tracing::debug!(%error, "a client did not get through the TLS handshake");
        });
        let stream = stream.ok()?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = Stream::Right(Box::new(stream));
        return Some(Opened { stream, early: Vec::new(), is_http2, client, scheme: "https" });
    }
    let sniffed = read_preface(&mut plain, &mut early);
    let is_http2 = tokio::time::timeout(patience.idle, sniffed).await.ok()??;
    Some(Opened { stream: Stream::Left(plain), early, is_http2, client, scheme: "http" })
}

/// Reads a header of the PROXY protocol. What follows it stays in `early`.
async fn read_proxy_header(plain: &mut Plain, early: &mut Vec<u8>) -> Option<Option<IpAddr>> {
    loop {
        match proxy_protocol::parse(early) {
            Header::Wrong => return None,
            Header::Whole(length, client) => {
                early.drain(..length);
                return Some(client);
            }
            Header::Partial => {}
        }
        if plain.read_buf(early).await.ok()? == 0 {
            return None;
        }
    }
}

/// Whether the client begins with HTTP/2. What it has sent is in `early`.
async fn read_preface(plain: &mut Plain, early: &mut Vec<u8>) -> Option<bool> {
    loop {
        let length = early.len().min(PREFACE.len());
        if !early.is_empty() && early[..length] != PREFACE[..length] {
            return Some(false);
        }
        if length == PREFACE.len() {
            return Some(true);
        }
        if plain.read_buf(early).await.ok()? == 0 {
            return None;
        }
    }
}

async fn serve_http1<G: Gate<Asked>>(place: Rc<Place<G>>, stream: Stream, early: Vec<u8>) {
    let watch = Arc::clone(&place.watch);
    let config = &place.worker.shared.config;
    let sizes = Sizes { head_max: config.head_bytes_max, target_max: config.target_bytes_max };
    let wire = Wire::new(stream, early, sizes, place.worker.shared.pace, Arc::clone(&watch));
    let mut builder = http1::Builder::new();
    builder
        .header_read_timeout(None)
        // A head always fits, and an answer has no need of more. It is a bound only as long as answers
        // in a row are not gathered into one write: with that, a client that does not read would have
        // all of an answer kept for it.
        .max_buf_size((config.head_bytes_max * 2).max(64 * 1024));
    let service = service_fn(move |request| answer_http1(Rc::clone(&place), request));
    let conn = builder.serve_connection(TokioIo::new(wire), service).with_upgrades();
    let mut conn = pin!(conn);
    let (mut is_armed, mut is_told) = (false, false);
    poll_fn(|context| {
        if !is_armed {
            is_armed = true;
            watch.arm(context);
        }
        if !is_told && watch.is_draining() {
            is_told = true;
            conn.as_mut().graceful_shutdown();
        }
        // Clients break off all the time.
        conn.as_mut().poll(context).map(|_| ())
    })
    .await;
}

async fn serve_http2<G: Gate<Asked>>(place: Rc<Place<G>>, stream: Stream, early: Vec<u8>) {
    let watch = Arc::clone(&place.watch);
    let shared = Arc::clone(&place.worker.shared);
    let mut builder = http2::Builder::new(Streams);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(shared.config.streams_max)
        // What the library holds of an answer that its client does not take.
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(u32::try_from(shared.config.head_bytes_max).unwrap_or(u32::MAX));
    let service = service_fn(move |request| answer_http2(Rc::clone(&place), request));
    let io = Early { early, inner: stream };
    let conn = builder.serve_connection(TokioIo::new(io), service);
    let mut conn = pin!(conn);
    let mut is_told = false;
    poll_fn(|context| {
        watch.arm(context);
        let is_late = is_idle_too_long(&watch, shared.pace.idle);
        if !is_told && (watch.is_draining() || is_late) {
            is_told = true;
            conn.as_mut().graceful_shutdown();
            // A client that does not say goodbye is not waited for.
            watch.forgive(Wait::Read);
            watch.set_idle(shared.pace.linger);
            watch.wait(Wait::Read, shared.pace.linger);
        } else if is_late {
            return Poll::Ready(());
        }
        conn.as_mut().poll(context).map(|_| ())
    })
    .await;
}

/// Whether a connection of HTTP/2 has had no request for too long.
fn is_idle_too_long(watch: &Watch, idle: crate::watch::Ticks) -> bool {
    if watch.is_in_flight() {
        watch.forgive(Wait::Read);
        return false;
    }
    watch.wait_on(Wait::Read, idle);
    watch.is_late(Wait::Read)
}
