//! Connections that become something else: WebSocket and other upgrades.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::header::{self, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate_http::{Asked, Gate};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::body::{Answer, Sending};
use crate::forward::{Course, Failure, forward};
use crate::log::Line;
use crate::passing::pass_writes;
use crate::seam::{After, Place, pass_back, prepare, take_parts};
use crate::watch::{Mode, Ticks, Wait, Watch};
use crate::worker::Target;

/// Room for each direction of a tunnel.
const BUFFER: usize = 8 * 1024;

/// Sends on a request that asks for another protocol. If the upstream agrees, the connections are
/// joined, and what goes through them is none of our business.
pub(crate) async fn upgrade<G: Gate<Asked>>(
    place: &Rc<Place<G>>,
    target: &Target,
    asked: &mut Asked,
    protocol: HeaderValue,
    line: &mut Option<Box<Line>>,
    after: &mut After,
) -> Result<Response<Answer>, Failure> {
    let watch = &place.watch;
    let mut parts = take_parts(asked);
    let client = parts.extensions.remove::<OnUpgrade>();
    prepare(place, &mut parts);
    parts.headers.insert(header::UPGRADE, protocol);
    parts.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    let mut request = Some(Request::from_parts(parts, Sending::Nothing));
    let course =
        Course { pools: &place.worker.pools, upstream: target.upstream, pace: &target.pace, watch };
    let mut begun = forward(course, &mut request, None, after.going.take()).await?;
    if begun.response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(pass_back(place, watch, target, begun, line, after));
    }
    let upstream = hyper::upgrade::on(&mut begun.response);
    let Some(client) = client else { return Err(Failure::Broken) };
    // What comes by that connection now is no answer to anybody else.
    begun.lent = None;
    let agreed = begun.response.headers().get(header::UPGRADE).cloned();
    let mut response = pass_back(place, watch, target, begun, line, after);
    if let Some(agreed) = agreed {
        response.headers_mut().insert(header::UPGRADE, agreed);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
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
    Ok(response)
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

pass_writes!([T] Lively<T>, stream);
