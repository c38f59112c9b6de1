//! A request on its way to an upstream, until its answer begins.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use http::header::{self, HeaderMap};
use http::uri::{Authority, Uri};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use tidegate::Going;

use crate::body::{Broken, Fate, Sending};
use crate::handover::Handover;
use crate::pool::{Conn, Lent, NoWay, Pools, Way};
use crate::upstream::{Address, RoutePace, Upstream};
use crate::watch::{Wait, Watch};

/// Why there is no answer from an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    NoWay(NoWay),
    /// It took the request, and then failed.
    Broken,
    /// It did not answer in time.
    Late,
    /// The client's body could not be had.
    Body(Broken),
}

impl Failure {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::NoWay(NoWay::Refused) | Self::Broken => StatusCode::BAD_GATEWAY,
            Self::NoWay(NoWay::Full) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoWay(NoWay::Late) | Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Body(Broken::TooLarge) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Body(Broken::ClientLate) => StatusCode::REQUEST_TIMEOUT,
            Self::Body(_) => StatusCode::BAD_REQUEST,
        }
    }

    pub(crate) fn detail(self) -> &'static str {
        match self {
            Self::NoWay(NoWay::Refused) => "the upstream cannot be reached",
            Self::NoWay(NoWay::Late) => "the upstream cannot be reached in time",
            Self::NoWay(NoWay::Full) => "there are too many connections to the upstream",
            Self::Broken => "the upstream broke off, or its answer makes no sense",
            Self::Late => "the upstream did not answer in time",
            Self::Body(Broken::TooLarge) => "the body is too large",
            Self::Body(Broken::ClientLate) => "the body did not come in time",
            Self::Body(_) => "the body could not be read to its end",
        }
    }
}

/// An answer that has begun.
pub(crate) struct Begun {
    pub(crate) response: Response<Incoming>,
    /// The connection that the rest comes by, if it can be used again.
    pub(crate) lent: Option<Lent>,
    /// Who answers.
    pub(crate) address: usize,
}

/// Where a request goes, and how long that may take.
#[derive(Clone, Copy)]
pub(crate) struct Course<'a> {
    pub(crate) pools: &'a Rc<Pools>,
    pub(crate) upstream: usize,
    pub(crate) pace: &'a RoutePace,
    pub(crate) watch: &'a Arc<Watch>,
}

/// What came of sending a request once.
#[expect(clippy::large_enum_variant, reason = "nearly always it is the large one")]
enum Sent {
    Begun(Begun),
    /// Nothing was sent, or nobody has seen it: it may be tried again, and is back where it was.
    Again,
    Failed(Failure),
}

/// Sends a request and waits for its answer to begin. It is sent again only if nobody can have
/// acted on it: there was no connection, or one that had been used before broke off without a byte
/// of an answer, and the request is one that may be repeated.
///
/// What shares a key of a limit that holds requests back, and so is `going`, is sent in order: each
/// finds itself a connection, and then waits until those before it have been handed over to theirs.
///
/// The request is large, and is taken from where it is when it is sent.
pub(crate) async fn forward(
    course: Course<'_>,
    request: &mut Option<Request<Sending>>,
    fate: Option<&Fate>,
    mut going: Option<Going>,
) -> Result<Begun, Failure> {
    let Course { pools, upstream, pace, watch } = course;
    let shared = pools.upstream(upstream);
    let mut address = pools.next_address(upstream);
    let (mut tried, mut may_reuse, mut is_fresh) = (0, true, true);
    let begun = loop {
        let reused = if may_reuse { pools.reuse(upstream, address).await } else { None };
        let way = match reused {
            Some(way) => way,
            // Few requests need a new one, and all would carry the room for it about.
            None => match Box::pin(pools.connect(upstream, address, pace.connect)).await {
                Ok(way) => way,
                Err(no_way) => {
                    if no_way != NoWay::Full {
                        shared.failed(address);
                    }
                    tried += 1;
                    if tried >= shared.addresses.len() {
                        break Err(Failure::NoWay(no_way));
                    }
                    address = shared.choose(address + 1);
                    continue;
                }
            },
        };
        if let Some(going) = &mut going {
            going.first().await;
        }
        watch.wait(Wait::Upstream, pace.response);
        is_fresh = matches!(way, Way::Http1 { is_reused: false, .. });
        let sent = match way {
            Way::Http1 { conn, is_reused } => {
                send_http1(course, address, conn, is_reused, request, &mut going).await
            }
            Way::Http2(sender) => send_http2(course, address, sender, request, &mut going).await,
        };
        match sent {
            Sent::Begun(begun) => {
                shared.answered(address);
                break Ok(begun);
            }
            // A connection that is new and breaks off at once is one that failed.
            Sent::Again if is_fresh || !may_reuse => break Err(Failure::Broken),
            Sent::Again => may_reuse = false,
            Sent::Failed(failure) => break Err(failure),
        }
    };
    if let Some(fate) = fate {
        fate.is_answered.set(true);
    }
    watch.rest(Wait::Upstream);
    begun.map_err(|failure| match fate.and_then(|fate| whose(failure, fate)) {
        Some(broken) => Failure::Body(broken),
        None => {
            // That one which was kept is closed when it is used, happens where all are well.
            if failure == Failure::Broken && is_fresh {
                shared.failed(address);
            }
            failure
        }
    })
}

/// What the client did wrong, if it is at fault.
fn whose(failure: Failure, fate: &Fate) -> Option<Broken> {
    let is_late = failure == Failure::Late && fate.awaits_client.get();
    fate.broken.get().or(is_late.then_some(Broken::ClientLate))
}

async fn send_http1(
    course: Course<'_>,
    address: usize,
    mut conn: Conn,
    is_reused: bool,
    place: &mut Option<Request<Sending>>,
    going: &mut Option<Going>,
) -> Sent {
    let Course { pools, upstream, watch, .. } = course;
    let before = conn.came.load(Relaxed);
    let sending = match take_for_http1(place, pools.upstream(upstream), address, is_reused) {
        Some(request) => conn.sender.try_send_request(request),
        None => return Sent::Failed(Failure::Broken),
    };
    let handover = Handover::new(going.take());
    let sent = in_time(watch, pin!(sending)).await;
    *going = handover.take_back();
    match sent {
        None => Sent::Failed(Failure::Late),
        Some(Ok(response)) => {
            let lent = Some(pools.lend(upstream, address, conn));
            Sent::Begun(Begun { response, lent, address })
        }
        Some(Err(mut error)) => {
            if let Some(request) = error.take_message() {
                *place = Some(request);
                return Sent::Again;
            }
            tracing::debug!(error = %error.error(), "an upstream failed");
            match place.is_some() && conn.came.load(Relaxed) == before {
                true => Sent::Again,
                false => Sent::Failed(Failure::Broken),
            }
        }
    }
}

/// Takes a request in the form in which an upstream of HTTP/1 is sent it. What stays is a copy, if it may
/// have to be sent again.
fn take_for_http1(
    place: &mut Option<Request<Sending>>,
    shared: &Upstream,
    address: usize,
    is_reused: bool,
) -> Option<Request<Sending>> {
    let request = place.as_mut()?;
    if request.version() == Version::HTTP_2
        && request.headers().contains_key(header::TRAILER)
        && matches!(request.body(), Sending::Stream(_))
    {
        // Only what comes in chunks can have trailers.
        let headers = request.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    // Names are sent as the client wrote them, but for the case of letters.
    *request.version_mut() = Version::HTTP_11;
    set_host(request.headers_mut(), shared, &shared.addresses[address]);
    let copy = (is_reused && is_repeatable(request)).then(|| copy_of(request));
    std::mem::replace(place, copy)
}

async fn send_http2(
    course: Course<'_>,
    address: usize,
    mut sender: hyper::client::conn::http2::SendRequest<Sending>,
    place: &mut Option<Request<Sending>>,
    going: &mut Option<Going>,
) -> Sent {
    let Course { pools, upstream, watch, .. } = course;
    let shared = pools.upstream(upstream);
    let of = &shared.addresses[address];
    let sending = match take_for_http2(place, shared, of) {
        Some(request) => sender.try_send_request(request),
        // `OPTIONS *` has no form with a host.
        None => return Sent::Failed(Failure::Broken),
    };
    let handover = Handover::new(going.take());
    let sent = in_time(watch, pin!(sending)).await;
    *going = handover.take_back();
    match sent {
        None => Sent::Failed(Failure::Late),
        Some(Ok(response)) => Sent::Begun(Begun { response, lent: None, address }),
        Some(Err(mut error)) => match error.take_message() {
            Some(mut request) => {
                let parts = request.uri().clone().into_parts();
                let host = parts.authority.and_then(|host| host.as_str().parse().ok());
                request.headers_mut().insert(header::HOST, host.unwrap_or(of.host.clone()));
                *request.uri_mut() = parts.path_and_query.map_or_else(Uri::default, Uri::from);
                *place = Some(request);
                Sent::Again
            }
            None => {
                tracing::debug!(error = %error.error(), "an upstream failed");
                Sent::Failed(Failure::Broken)
            }
        },
    }
}

/// Takes a request in the form in which an upstream of HTTP/2 is sent it, if there is one.
fn take_for_http2(
    place: &mut Option<Request<Sending>>,
    shared: &Upstream,
    of: &Address,
) -> Option<Request<Sending>> {
    let mut request = place.take()?;
    set_host(request.headers_mut(), shared, of);
    let host = request.headers_mut().remove(header::HOST);
    let authority = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = request.uri().clone().into_parts();
    (parts.scheme, parts.authority) =
        (Some(of.scheme.clone()), Some(authority.unwrap_or_else(|| of.authority.clone())));
    *request.uri_mut() = Uri::from_parts(parts).ok()?;
    *request.version_mut() = Version::HTTP_2;
    Some(request)
}

/// The host that the upstream is told: its own if that is said, the client's otherwise.
fn set_host(headers: &mut HeaderMap, shared: &Upstream, of: &Address) {
    if let Some(host) = &shared.host {
        headers.insert(header::HOST, host.clone());
    } else if !headers.contains_key(header::HOST) {
        headers.insert(header::HOST, of.host.clone());
    }
}

/// Waits for something of an upstream; `None` if it takes too long.
async fn in_time<F: Future>(watch: &Watch, mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if watch.is_late(Wait::Upstream) => {
            watch.forgive(Wait::Upstream);
            Poll::Ready(None)
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Whether a request may be sent twice: it changes nothing, or the same again, and has no body.
fn is_repeatable(request: &Request<Sending>) -> bool {
    let is_idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    );
    is_idempotent && matches!(request.body(), Sending::Nothing)
}

fn copy_of(request: &Request<Sending>) -> Request<Sending> {
    let mut copy = Request::new(Sending::Nothing);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}
