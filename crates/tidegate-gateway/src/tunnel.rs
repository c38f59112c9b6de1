//! Connections that become something else: WebSocket and other upgrades.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate_http::{Asked, Gate};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::{Answer, Sending};
use crate::fields;
use crate::forward::{Begun, Course, Failure, forward};
use crate::seam::{After, Place, prepare};
use crate::watch::{Mode, Ticks, Wait, Watch};
use crate::worker::Target;

/// Room for each direction of a tunnel.
const BUFFER: usize = 8 * 1024;

/// Sends on a request that asks for another protocol. If the upstream agrees, the connections are
/// joined, and what goes through them is none of our business.
pub(crate) async fn upgrade<G: Gate<Asked>>(
    place: &Rc<Place<G>>,
    target: &Target,
    mut parts: Parts,
    body: Incoming,
    protocol: HeaderValue,
    after: &mut After,
) -> Result<Response<Answer>, Failure> {
    let watch = &place.watch;
    if !body.is_end_stream() {
        // Whoever sends a body and wants another protocol stays with this one.
        return Err(Failure::Body(crate::body::Broken::Client));
    }
    let client = parts.extensions.remove::<OnUpgrade>();
    prepare(place, &mut parts);
    parts.headers.insert(header::UPGRADE, protocol);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    let request = Request::from_parts(parts, Sending::Nothing);
    let course =
        Course { pools: &place.worker.pools, upstream: target.upstream, pace: &target.pace, watch };
    let Begun { mut response, lent, .. } = forward(course, request, None).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let (mut head, body) = response.into_parts();
        after.settle(place.worker.answers(), &head);
        fields::strip(&mut head.headers);
        head.extensions.clear();
        let body = Answer::stream(body, lent, Arc::clone(watch), target.pace.idle);
        return Ok(Response::from_parts(head, body));
    }
    let upstream = hyper::upgrade::on(&mut response);
    let Some(client) = client else { return Err(Failure::Broken) };
    let agreed = response.headers().get(header::UPGRADE).cloned();
    let (mut head, _) = response.into_parts();
    after.settle(place.worker.answers(), &head);
    fields::strip(&mut head.headers);
    head.extensions.clear();
    if let Some(agreed) = agreed {
        head.headers.insert(header::UPGRADE, agreed);
    }
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    watch.set_mode(Mode::Tunnel);
    let idle = target.pace.idle;
    let worker = Rc::clone(&place.worker);
    let tracked = worker.tasks.token();
    // A tunnel is under way for as long as it is open.
    let held = after.held.take();
    tokio::task::spawn_local(async move {
        let (_tracked, _held) = (tracked, held);
        let (Ok(client), Ok(upstream)) = (client.await, upstream.await) else { return };
        let watched = worker.watches.watch();
        join(TokioIo::new(client), TokioIo::new(upstream), watched.share(), idle).await;
    });
    Ok(Response::from_parts(head, Answer::text(bytes::Bytes::new())))
}

/// Carries bytes both ways until both ends are done, one fails, or nothing comes for too long.
async fn join(
    client: impl AsyncRead + AsyncWrite + Unpin,
    upstream: impl AsyncRead + AsyncWrite + Unpin,
    watch: &Arc<Watch>,
    idle: Ticks,
) {
    watch.wait(Wait::Upstream, idle);
    let lively = |stream| Lively { stream, watch: Arc::clone(watch), idle };
    let mut client = Lively { stream: client, watch: Arc::clone(watch), idle };
    let mut upstream = { lively }(upstream);
    let copying =
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER, BUFFER);
    let mut copying = pin!(copying);
    poll_fn(|context| {
        watch.arm(context);
        match copying.as_mut().poll(context) {
            // However it ended, it is over.
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending if watch.is_late(Wait::Upstream) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
}

/// A stream whose bytes put off the end.
struct Lively<T> {
    stream: T,
    watch: Arc<Watch>,
    idle: Ticks,
}

impl<T: AsyncRead + Unpin> AsyncRead for Lively<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_read(context, buffer);
        if done.is_ready() {
            this.watch.wait(Wait::Upstream, this.idle);
        }
        done
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Lively<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
