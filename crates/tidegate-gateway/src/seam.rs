//! The one place where a request on a connection is taken and answered.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version, response};
use hyper::body::{Body as _, Incoming};
use tidegate::{Admission, Going, Held, Turn};
use tidegate_http::{Answers, Asked, Gate, Refusals, Told};

use crate::body::{Answer, AtEnd, Broken, Fate, Sending, Streaming};
use crate::fields::{self, Peer};
use crate::forward::{Begun, Course, Failure, forward};
use crate::log::{Line, Outcome};
use crate::respond;
use crate::scan::Fault;
use crate::streams;
use crate::tunnel;
use crate::watch::{Mode, Ticks, Watch};
use crate::wire::is_stand_in;
use crate::worker::{Target, Worker};

/// A connection, as its requests know it.
pub(crate) struct Place<G> {
    pub(crate) worker: Rc<Worker<G>>,
    pub(crate) peer: Peer,
    /// Of the connection; in HTTP/2 each request has its own deadlines besides.
    pub(crate) watch: Arc<Watch>,
}

/// Answers a request of HTTP/1: its deadlines are the connection's.
pub(crate) async fn answer_http1<G: Gate<Asked>>(
    place: Rc<Place<G>>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    place.watch.begin_request();
    let mut response = answer(&place, &place.watch, request).await;
    response.body_mut().end_with(Arc::clone(&place.watch));
    Ok(response)
}

/// Answers a request of HTTP/2, which is a task of its own.
pub(crate) async fn answer_http2<G: Gate<Asked>>(
    place: Rc<Place<G>>,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible> {
    place.watch.begin_request();
    let watched = place.worker.watches.watch();
    let watch = Arc::clone(watched.share());
    poll_fn(|context| {
        watch.arm(context);
        std::task::Poll::Ready(())
    })
    .await;
    streams::give_up_with(&watch);
    let mut response = answer(&place, &watch, request).await;
    let body = response.body_mut();
    body.end_with(Arc::clone(&place.watch));
    body.keep(Kept { _watched: watched, next: None });
    body.limit(&watch, place.worker.shared.pace.write);
    Ok(response)
}

/// Keeps the deadlines of a stream until its answer is over.
struct Kept {
    _watched: crate::watch::Watched,
    next: Option<Box<dyn AtEnd>>,
}

impl AtEnd for Kept {
    fn ended(self: Box<Self>, bytes: u64, is_whole: bool) {
        if let Some(next) = self.next {
            next.ended(bytes, is_whole);
        }
    }

    fn set_next(&mut self, next: Option<Box<dyn AtEnd>>) {
        self.next = next;
    }
}

async fn answer<G: Gate<Asked>>(
    place: &Rc<Place<G>>,
    watch: &Arc<Watch>,
    request: Request<Incoming>,
) -> Response<Answer> {
    let mut line = place.worker.log.as_ref().map(|_| Line::begin(Instant::now()));
    let is_head = *request.method() == Method::HEAD;
    let is_http1 = request.version() != Version::HTTP_2;
    let had_upgrade = is_http1 && request.headers().contains_key(header::UPGRADE);
    let is_coming = !request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let (mut body, mut after) = (Some(body), After::default());
    let answered = route(place, watch, parts, &mut body, &mut line, &mut after).await;
    let mut response = answered.unwrap_or_else(|refused| {
        after.settle(place.worker.answers(), &refused.head());
        if refused.status.is_client_error() && refused.status != StatusCode::NOT_FOUND {
            place.worker.shared.bad_requests.fetch_add(1, Relaxed);
        }
        let mut response = refused.respond();
        if refused.must_close && is_http1 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    });
    if let Some(body) = body.filter(|_| is_http1) {
        leave(body, is_coming, &mut response);
    }
    if had_upgrade && watch.mode() == Mode::Parked {
        watch.resume();
    }
    if let (Some(mut line), Some(log)) = (line, &place.worker.log) {
        line.status = response.status();
        line.is_head = is_head;
        after.log = Some((line, Rc::clone(log)));
    }
    after.held = after.held.take().filter(Held::has_permits);
    if after.held.is_none() && after.log.is_none() {
        return response;
    }
    response.body_mut().do_after(Box::new(after));
    response
}

/// The longest body that is read only to be thrown away.
const DISCARD_MAX: u64 = 64 * 1024;

/// Leaves a body that nobody wants. A short one is thrown away as it comes, so that the connection can go
/// on. Otherwise it ends here: a client that waits to be told to send it is not told, and a long one costs
/// more than a new connection.
fn leave(mut body: Incoming, is_coming: bool, response: &mut Response<Answer>) {
    if body.is_end_stream() || response.headers().contains_key(header::CONNECTION) {
        return;
    }
    let is_short = body.size_hint().exact().is_some_and(|length| length <= DISCARD_MAX);
    if !is_coming || !is_short {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return;
    }
    tokio::task::spawn_local(async move {
        while let Some(Ok(_)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {}
    });
}

/// What is done once an answer is over: places are given back, a line is written.
#[derive(Default)]
pub(crate) struct After {
    pub(crate) held: Option<Held>,
    /// Until it has been sent on.
    pub(crate) going: Option<Going>,
    log: Option<(Box<Line>, Rc<crate::log::Log>)>,
}

impl After {
    /// Brings what was counted to what an answer says.
    pub(crate) fn settle(&mut self, answers: &Answers, answer: &response::Parts) {
        if let Some(held) = &mut self.held {
            answers.settle(held, answer);
        }
    }
}

impl AtEnd for After {
    fn ended(self: Box<Self>, bytes: u64, is_whole: bool) {
        if let Some((line, log)) = self.log {
            log.write(&line, bytes, is_whole);
        }
    }
}

/// An answer that no upstream gave.
struct Refused {
    status: StatusCode,
    detail: &'static str,
    is_grpc: bool,
    must_close: bool,
}

impl Refused {
    /// As whoever counts by statuses sees it, also where gRPC is told otherwise.
    fn head(&self) -> response::Parts {
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        response.into_parts().0
    }

    fn respond(&self) -> Response<Answer> {
        match self.is_grpc {
            true => respond::grpc_problem(self.status, self.detail),
            false => respond::problem(self.status, self.detail),
        }
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        let (status, detail) = (fault.status(), fault.detail());
        Self { status, detail, is_grpc: false, must_close: true }
    }
}

/// Finds out where a request goes, asks whether it may, and lets it.
async fn route<G: Gate<Asked>>(
    place: &Rc<Place<G>>,
    watch: &Arc<Watch>,
    mut parts: Parts,
    body: &mut Option<Incoming>,
    line: &mut Option<Box<Line>>,
    after: &mut After,
) -> Result<Response<Answer>, Refused> {
    let worker = &place.worker;
    if is_stand_in(&parts.method, &parts.uri)
        && let Some(fault) = watch.fault()
    {
        return Err(fault.into());
    }
    fields::normalise(&mut parts, worker.shared.config.target_bytes_max)?;
    let client = place.peer.client(&parts.headers, &worker.trusted);
    if let Some(line) = line {
        line.set_request(&parts, client);
    }
    let asked = Asked::new(parts, client);
    let is_grpc = asked.is_grpc();
    let refused = |status: StatusCode, detail: &'static str| Refused {
        status,
        detail,
        is_grpc,
        must_close: false,
    };
    let Some(target) = worker.route(&asked) else {
        return Err(refused(StatusCode::NOT_FOUND, "there is no route for this host and path"));
    };
    let length = body.as_ref().and_then(|body| body.size_hint().exact());
    if length.is_some_and(|length| length > target.body_max) {
        let failure = Failure::Body(Broken::TooLarge);
        return Err(Refused { must_close: true, ..refused(failure.status(), failure.detail()) });
    }
    let told = match decide(place, &asked, line, after).await {
        Said::Go(told) => told,
        Said::Stop(response) => return Ok(response.map(Answer::text)),
    };
    let body = body.take().filter(|body| !body.is_end_stream());
    // Whoever sends a body stays with HTTP.
    let upgrade = fields::upgrade_of(&asked.parts).filter(|_| body.is_none());
    let has_body = body.is_some();
    let mut response = match upgrade {
        Some(protocol) => {
            Box::pin(tunnel::upgrade(place, target, asked.parts, protocol, line, after)).await
        }
        None => pass_on(place, watch, target, asked, body, line, after).await,
    }
    .map_err(|failure| {
        if let Some(line) = line {
            line.outcome = Outcome::Failed;
        }
        // The scanner knows better what was wrong with it.
        if let (Failure::Body(_), Some(fault)) = (failure, watch.fault()) {
            return fault.into();
        }
        // Nobody has read the rest of a body, if there is one.
        Refused { must_close: has_body, ..refused(failure.status(), failure.detail()) }
    })?;
    if let Some(told) = told {
        told.put(worker.answers(), response.headers_mut());
    }
    Ok(response)
}

/// What limits said of a request, as the client will read it.
enum Said {
    Go(Option<Told>),
    Stop(Response<Bytes>),
}

/// Asks whether a request may go on, and waits for its turn if it has to.
async fn decide<G: Gate<Asked>>(
    place: &Place<G>,
    asked: &Asked,
    line: &mut Option<Box<Line>>,
    after: &mut After,
) -> Said {
    let (gate, answers) = (&place.worker.gate, place.worker.answers());
    if !gate.asks() || answers.exempts(asked) {
        return Said::Go(None);
    }
    let asking = answers.asking(asked);
    // An admission is large: none is there while somebody is waited for.
    let refusals = &place.worker.refusals;
    let mut judge =
        |admission: &mut Admission| judge(answers, refusals, admission, asked, line, after);
    let (said, turn) = match gate.admit_at_once(asked, asking, &mut judge) {
        Some(judged) => judged,
        // Who waits does so in a box: most connections never need the room.
        None => judge(&mut Box::pin(gate.admit(asked, asking)).await),
    };
    if let Some(turn) = turn {
        let (held, going) = turn.in_order().await;
        (after.held, after.going) = (Some(held), Some(going));
        if let Some(line) = line {
            line.outcome = Outcome::Delayed;
        }
    }
    said
}

/// What is said of an admission, and what is waited for. It is large, and looked at where it is.
fn judge(
    answers: &Answers,
    refusals: &RefCell<Refusals>,
    admission: &mut Admission,
    asked: &Asked,
    line: &mut Option<Box<Line>>,
    after: &mut After,
) -> (Said, Option<Turn>) {
    let verdict = &admission.verdict;
    if let Some(line) = line {
        line.set_verdict(verdict);
    }
    if !verdict.allowed {
        let refusal = refusals.borrow_mut().refusal(answers, verdict, asked);
        return (Said::Stop(refusal), None);
    }
    after.held = admission.held.take();
    after.going = after.held.as_ref().and_then(Held::going);
    (Said::Go(Told::new(answers, verdict, asked)), admission.turn.take())
}

/// Sends a request on, and its answer back.
async fn pass_on<G: Gate<Asked>>(
    place: &Rc<Place<G>>,
    watch: &Arc<Watch>,
    target: &Target,
    asked: Asked,
    body: Option<Incoming>,
    line: &mut Option<Box<Line>>,
    after: &mut After,
) -> Result<Response<Answer>, Failure> {
    let worker = &place.worker;
    let (body, fate) = match body {
        None => (Sending::Nothing, None),
        Some(body) => {
            let fate = Rc::new(Fate::default());
            let body = Sending::Stream(Box::new(Streaming {
                inner: body,
                left: target.body_max,
                watch: Arc::clone(watch),
                response: target.pace.response,
                patience: patience(place, target, &asked),
                fate: Rc::clone(&fate),
            }));
            (body, Some(fate))
        }
    };
    let mut parts = asked.parts;
    prepare(place, &mut parts);
    let request = Request::from_parts(parts, body);
    let course =
        Course { pools: &worker.pools, upstream: target.upstream, pace: &target.pace, watch };
    let begun = forward(course, request, fate.as_deref(), after.going.take()).await?;
    if begun.response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // Nobody has asked for that.
        return Err(Failure::Broken);
    }
    Ok(pass_back(place, watch, target, begun, line, after))
}

/// How long the client may take for the next byte of a body. Over HTTP/1 its connection looks after that.
fn patience<G>(place: &Place<G>, target: &Target, asked: &Asked) -> Option<Ticks> {
    if asked.parts.version != Version::HTTP_2 {
        return None;
    }
    // Calls of gRPC may be silent on both sides.
    Some(if asked.is_grpc() { target.pace.idle } else { place.worker.shared.pace.body })
}

/// Sends back an answer that has begun.
pub(crate) fn pass_back<G: Gate<Asked>>(
    place: &Place<G>,
    watch: &Arc<Watch>,
    target: &Target,
    begun: Begun,
    line: &mut Option<Box<Line>>,
    after: &mut After,
) -> Response<Answer> {
    let Begun { response, lent, address } = begun;
    let worker = &place.worker;
    if let Some(line) = line {
        line.set_upstream(&worker.pools.upstream(target.upstream).addresses[address].name);
    }
    let (mut head, body) = response.into_parts();
    after.settle(worker.answers(), &head);
    fields::strip(&mut head.headers);
    if let Some(via) = &worker.via {
        add_via(&mut head.headers, via);
    }
    // How it came is not how it goes.
    head.version = Version::HTTP_11;
    head.extensions.clear();
    Response::from_parts(head, Answer::stream(body, lent, Arc::clone(watch), target.pace.idle))
}

/// Makes the head of a request what an upstream is to see.
pub(crate) fn prepare<G: Gate<Asked>>(place: &Place<G>, parts: &mut Parts) {
    fields::strip(&mut parts.headers);
    place.peer.tell(&mut parts.headers);
    if let Some(via) = &place.worker.via {
        add_via(&mut parts.headers, via);
    }
    parts.extensions.clear();
}

/// Says that the message came this way.
fn add_via(headers: &mut http::HeaderMap, via: &HeaderValue) {
    if headers.contains_key(header::VIA) {
        fields::join(headers, header::VIA, via);
    } else {
        headers.insert(header::VIA, via.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::{Open, RuleGate};
    use tidegate_store_redis::RedisStore;

    /// How many bytes an answer in the making takes.
    fn room<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn connections_have_no_room_for_what_few_wait_for() {
        let open = room(answer_http1::<Open>);
        assert_eq!(room(answer_http1::<RuleGate>), open);
        assert_eq!(room(answer_http1::<RuleGate<RedisStore>>), open);
    }
}
