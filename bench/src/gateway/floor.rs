//! The least that the gateway could cost with hyper under it: a thread for all, a pool of connections of
//! `client::conn::http1`, the same headers both ways, and nothing else. It checks nothing, limits nothing
//! and waits for nobody in particular.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::bare::on_threads;
use super::servers::Case;

/// What a gateway says to upstreams of whom a request is from.
const FORWARDED: [(&str, &str); 5] = [
    ("x-forwarded-for", "127.0.0.1"),
    ("x-forwarded-proto", "http"),
    ("x-forwarded-host", "127.0.0.1:12345"),
    ("forwarded", "for=127.0.0.1;host=\"127.0.0.1:12345\";proto=http"),
    ("via", "1.1 hyper"),
];

/// What those who are admitted are told of a limit.
pub(super) const ADMITTED: [(&str, &str); 5] = [
    ("x-ratelimit-limit", "1000000000"),
    ("x-ratelimit-remaining", "999999999"),
    ("x-ratelimit-reset", "1"),
    ("ratelimit-policy", "\"bench.ip\";q=1000000000;w=1"),
    ("ratelimit", "\"bench.ip\";r=999999999;t=1"),
];

/// What those who are refused are told.
pub(super) const REFUSED: [(&str, &str); 9] = [
    ("x-ratelimit-limit", "10"),
    ("x-ratelimit-remaining", "0"),
    ("x-ratelimit-reset", "1"),
    ("retry-after", "1"),
    ("x-ratelimit-retry-after", "1"),
    ("ratelimit-policy", "\"bench.ip\";q=10;w=1"),
    ("ratelimit", "\"bench.ip\";r=0;t=1"),
    ("cache-control", "no-store"),
    ("content-type", "application/problem+json"),
];

pub(super) const PROBLEM: &str = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
\"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\"status\":429,\
\"detail\":\"the limit `bench.ip` of 10 is reached; try again in 1 s\",\
\"violated-policies\":[\"bench.ip\"],\"retry_after_seconds\":1}";

/// One thread of it.
struct Floor {
    upstream: String,
    case: Case,
    idle: RefCell<Vec<SendRequest<Nothing>>>,
    refusal: HeaderMap,
    count: Cell<u64>,
}

/// Serves until the process is killed.
pub(super) fn serve(case: Case, threads: usize, upstream: &str) {
    let upstream = upstream.to_owned();
    on_threads(threads, move |listener| run(listener, case, &upstream));
}

fn run(listener: std::net::TcpListener, case: Case, upstream: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime.expect("a runtime"), async {
        let listener = TcpListener::from_std(listener).expect("a listener");
        let mut refusal = HeaderMap::new();
        put(&mut refusal, &REFUSED);
        let floor = Rc::new(Floor {
            upstream: upstream.to_owned(),
            case,
            idle: RefCell::default(),
            refusal,
            count: Cell::default(),
        });
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            let floor = Rc::clone(&floor);
            let service = service_fn(move |request| answer(Rc::clone(&floor), request));
            let conn = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::task::spawn_local(conn);
        }
    });
}

async fn answer(
    floor: Rc<Floor>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    floor.count.set(floor.count.get() + 1);
    let is_refused = match floor.case {
        Case::Refused => !floor.count.get().is_multiple_of(100),
        Case::AllRefused => true,
        Case::NoLimit | Case::Allowed | Case::Untold => false,
    };
    if is_refused {
        let mut response = Response::new(Answer::Text(Bytes::from_static(PROBLEM.as_bytes())));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        *response.headers_mut() = floor.refusal.clone();
        return Ok(response);
    }
    let mut request = request.map(|_| Nothing);
    put(request.headers_mut(), &FORWARDED);
    let idle = floor.idle.borrow_mut().pop();
    let mut sender = match idle {
        Some(sender) => sender,
        None => connect(&floor.upstream).await,
    };
    if sender.ready().await.is_err() {
        sender = connect(&floor.upstream).await;
    }
    let mut response = sender.send_request(request).await.expect("an answer");
    let headers = response.headers_mut();
    headers.remove("connection");
    put(headers, &[("via", "1.1 hyper")]);
    if !matches!(floor.case, Case::NoLimit | Case::Untold) {
        put(headers, &ADMITTED);
    }
    Ok(response.map(|body| Answer::Stream { body, sender: Some(sender), floor }))
}

async fn connect(upstream: &str) -> SendRequest<Nothing> {
    let stream = TcpStream::connect(upstream).await.expect("an upstream");
    stream.set_nodelay(true).expect("no delay");
    let (sender, conn) = handshake(TokioIo::new(stream)).await.expect("an upstream");
    tokio::task::spawn_local(conn);
    sender
}

fn put(headers: &mut HeaderMap, all: &[(&'static str, &'static str)]) {
    for (name, value) in all {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// No body.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}

/// What is sent back; when it is over, its connection is kept for others.
enum Answer {
    Text(Bytes),
    Stream { body: Incoming, sender: Option<SendRequest<Nothing>>, floor: Rc<Floor> },
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Text(text) if text.is_empty() => Poll::Ready(None),
            Self::Text(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Self::Stream { body, .. } => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_empty(),
            Self::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.len() as u64),
            Self::Stream { body, .. } => body.size_hint(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Self::Stream { body, sender, floor } = self
            && body.is_end_stream()
            && let Some(sender) = sender.take()
        {
            floor.idle.borrow_mut().push(sender);
        }
    }
}
