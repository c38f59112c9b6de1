//! The one place where a request on a connection is taken and answered.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
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
pub(crate) fn answer_http1<G: Gate<Asked>>(
    place: Rc<Place<G>>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Answer>, Infallible>> {
    place.watch.begin_request();
    let mut exchange = Exchange::new(&place, &place.watch, request);
    // Nothing is taken before it is polled: the library does not do that while an answer before it has
    // not been taken, and nobody else should have to wait for that.
    async move {
        let answered = match begin(&place, &place.watch, &mut exchange) {
            Step::Done(answered) => answered,
            Step::On(onward) => go_on(&place, &place.watch, &mut exchange, onward).await,
        };
        let mut response = finish(&place, &place.watch, exchange, answered);
        response.body_mut().end_with(Arc::clone(&place.watch));
        Ok(response)
    }
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
    let mut exchange = Exchange::new(&place, &watch, request);
    let answered = match begin(&place, &watch, &mut exchange) {
        Step::Done(answered) => answered,
        Step::On(onward) => go_on(&place, &watch, &mut exchange, onward).await,
    };
    let mut response = finish(&place, &watch, exchange, answered);
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

/// A request, and what is to be done about it in the end.
struct Exchange {
    asked: Asked,
    /// `None` once somebody else has it.
    body: Option<Incoming>,
    line: Option<Box<Line>>,
    after: After,
    is_head: bool,
    is_http1: bool,
    is_grpc: bool,
    /// Whether it asks for another protocol, and nothing is read until that is settled.
    is_parked: bool,
    /// Whether its body comes without being asked for.
    is_coming: bool,
}

impl Exchange {
    fn new<G>(place: &Place<G>, watch: &Watch, request: Request<Incoming>) -> Self {
        let (parts, body) = request.into_parts();
        let is_http1 = parts.version != Version::HTTP_2;
        let asked = Asked::new(parts, None);
        let has = |name: header::HeaderName| asked.parts.headers.contains_key(name);
        Self {
            line: place.worker.log.as_ref().map(|_| Line::begin(Instant::now())),
            after: After::default(),
            is_head: asked.parts.method == Method::HEAD,
            is_http1,
            is_grpc: asked.is_grpc(),
            is_parked: is_http1 && watch.mode() == Mode::Parked && has(header::UPGRADE),
            is_coming: body.is_end_stream() || !has(header::EXPECT),
            asked,
            body: Some(body),
        }
    }

    /// An answer that no upstream gives.
    fn refuse(&self, status: StatusCode, detail: &'static str) -> Refused {
        Refused { status, detail, is_grpc: self.is_grpc, must_close: false }
    }
}

/// How far a request has come.
enum Step {
    /// To its answer.
    Done(Result<Response<Answer>, Refused>),
    /// To where it goes on from.
    On(Onward),
}

/// A request that has a target.
struct Onward {
    /// Its position.
    target: usize,
    /// `None` if somebody has to be waited for to know whether it may go on.
    admitted: Option<Admitted>,
}

/// A request that may go on, now or when it is its turn, and what its client is told.
#[derive(Default)]
struct Admitted {
    told: Option<Told>,
    turn: Option<Turn>,
}

/// Finds out where a request goes, and asks whether it may if nobody has to be waited for.
fn begin<G: Gate<Asked>>(place: &Place<G>, watch: &Watch, exchange: &mut Exchange) -> Step {
    let target = match find_target(place, watch, exchange) {
        Ok(target) => target,
        Err(refused) => return Step::Done(Err(refused)),
    };
    let (gate, answers) = (&place.worker.gate, place.worker.answers());
    if !gate.asks() || answers.exempts(&exchange.asked) {
        return Step::On(Onward { target, admitted: Some(Admitted::default()) });
    }
    let asking = answers.asking(&exchange.asked);
    let Exchange { asked, line, after, .. } = exchange;
    let refusals = &place.worker.refusals;
    let judge = |admission: &mut Admission| judge(answers, refusals, admission, asked, line, after);
    match gate.admit_at_once(asked, asking, judge) {
        Some(Judged::Admitted(admitted)) => Step::On(Onward { target, admitted: Some(admitted) }),
        Some(Judged::Refused(refusal)) => Step::Done(Ok(refusal.map(Answer::text))),
        None => Step::On(Onward { target, admitted: None }),
    }
}

/// The position of the target that a request is for.
fn find_target<G: Gate<Asked>>(
    place: &Place<G>,
    watch: &Watch,
    exchange: &mut Exchange,
) -> Result<usize, Refused> {
    let worker = &place.worker;
    let Exchange { asked, line, .. } = exchange;
    if is_stand_in(&asked.parts.method, &asked.parts.uri)
        && let Some(fault) = watch.fault()
    {
        return Err(fault.into());
    }
    fields::normalise(&mut asked.parts, worker.shared.config.target_bytes_max)?;
    asked.client_ip = place.peer.client(&asked.parts.headers, &worker.trusted);
    if let Some(line) = line {
        line.set_request(&asked.parts, asked.client_ip);
    }
    let Some(target) = worker.route(asked) else {
        let detail = "there is no route for this host and path";
        return Err(exchange.refuse(StatusCode::NOT_FOUND, detail));
    };
    let length = exchange.body.as_ref().and_then(|body| body.size_hint().exact());
    if length.is_some_and(|length| length > worker.shared.targets[target].body_max) {
        let failure = Failure::Body(Broken::TooLarge);
        let refused = exchange.refuse(failure.status(), failure.detail());
        return Err(Refused { must_close: true, ..refused });
    }
    Ok(target)
}

/// Goes on from where a request has come: waits for the decision, for its turn, for the upstream.
async fn go_on<G: Gate<Asked>>(
    place: &Rc<Place<G>>,
    watch: &Arc<Watch>,
    exchange: &mut Exchange,
    mut onward: Onward,
) -> Result<Response<Answer>, Refused> {
    if onward.admitted.is_none() {
        match decide(place, exchange).await {
            Judged::Admitted(admitted) => onward.admitted = Some(admitted),
            Judged::Refused(refusal) => return Ok(refusal.map(Answer::text)),
        }
    }
    if let Some(turn) = onward.admitted.as_mut().and_then(|admitted| admitted.turn.take()) {
        let (held, going) = turn.in_order().await;
        (exchange.after.held, exchange.after.going) = (Some(held), Some(going));
        if let Some(line) = &mut exchange.line {
            line.outcome = Outcome::Delayed;
        }
    }
    let target = &place.worker.shared.targets[onward.target];
    let body = exchange.body.take().filter(|body| !body.is_end_stream());
    let has_body = body.is_some();
    // Whoever sends a body stays with HTTP.
    let upgrade = fields::upgrade_of(&exchange.asked.parts).filter(|_| !has_body);
    let passed = match upgrade {
        Some(protocol) => {
            let Exchange { asked, line, after, .. } = exchange;
            Box::pin(tunnel::upgrade(place, target, asked, protocol, line, after)).await
        }
        None => pass_on(place, watch, target, exchange, body).await,
    };
    let mut response = passed.map_err(|failure| {
        if let Some(line) = &mut exchange.line {
            line.outcome = Outcome::Failed;
        }
        // The scanner knows better what was wrong with it.
        if let (Failure::Body(_), Some(fault)) = (failure, watch.fault()) {
            return fault.into();
        }
        // Nobody has read the rest of a body, if there is one.
        Refused { must_close: has_body, ..exchange.refuse(failure.status(), failure.detail()) }
    })?;
    if let Some(told) = onward.admitted.and_then(|admitted| admitted.told) {
        told.put(place.worker.answers(), response.headers_mut());
    }
    Ok(response)
}

/// Makes of what came of a request the answer to it.
fn finish<G: Gate<Asked>>(
    place: &Place<G>,
    watch: &Watch,
    exchange: Exchange,
    answered: Result<Response<Answer>, Refused>,
) -> Response<Answer> {
    let Exchange { body, line, mut after, is_head, is_http1, is_parked, is_coming, .. } = exchange;
    let mut response = match answered {
        Ok(response) => response,
        Err(refused) => {
            after.settle(place.worker.answers(), &refused.head());
            if refused.status.is_client_error() && refused.status != StatusCode::NOT_FOUND {
                place.worker.shared.bad_requests.fetch_add(1, Relaxed);
            }
            let mut response = refused.respond();
            if refused.must_close && is_http1 {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response
        }
    };
    if let Some(body) = body.filter(|_| is_http1) {
        leave(body, is_coming, &mut response);
    }
    if is_parked && watch.mode() == Mode::Parked {
        watch.resume();
    }
    if let (Some(mut line), Some(log)) = (line, &place.worker.log) {
        line.status = response.status();
        line.is_head = is_head;
        after.log = Some((line, Rc::clone(log)));
    }
    after.held = after.held.take().filter(Held::has_permits);
    if after.held.is_some() || after.log.is_some() {
        response.body_mut().do_after(Box::new(after));
    }
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

/// What limits said of a request, as the client will read it.
enum Judged {
    Admitted(Admitted),
    Refused(Response<Bytes>),
}

/// Waits for the decision on a request.
async fn decide<G: Gate<Asked>>(place: &Place<G>, exchange: &mut Exchange) -> Judged {
    let (gate, answers) = (&place.worker.gate, place.worker.answers());
    let Exchange { asked, line, after, .. } = exchange;
    // Who waits does so in a box: most connections never need the room.
    let mut admission = Box::pin(gate.admit(asked, answers.asking(asked))).await;
    judge(answers, &place.worker.refusals, &mut admission, asked, line, after)
}

/// What is said of an admission, and what is waited for. It is large, and looked at where it is.
fn judge(
    answers: &Answers,
    refusals: &RefCell<Refusals>,
    admission: &mut Admission,
    asked: &Asked,
    line: &mut Option<Box<Line>>,
    after: &mut After,
) -> Judged {
    let verdict = &admission.verdict;
    if let Some(line) = line {
        line.set_verdict(verdict);
    }
    if !verdict.allowed {
        return Judged::Refused(refusals.borrow_mut().refusal(answers, verdict, asked));
    }
    after.held = admission.held.take();
    after.going = after.held.as_ref().and_then(Held::going);
    let told = Told::new(answers, verdict, asked);
    Judged::Admitted(Admitted { told, turn: admission.turn.take() })
}

/// Sends a request on, and its answer back.
async fn pass_on<G: Gate<Asked>>(
    place: &Rc<Place<G>>,
    watch: &Arc<Watch>,
    target: &Target,
    exchange: &mut Exchange,
    body: Option<Incoming>,
) -> Result<Response<Answer>, Failure> {
    let Exchange { asked, line, after, .. } = exchange;
    let worker = &place.worker;
    let fate = body.is_some().then(|| Rc::new(Fate::default()));
    let sending = body.zip(fate.clone()).map(|(body, fate)| Streaming {
        inner: body,
        left: target.body_max,
        watch: Arc::clone(watch),
        response: target.pace.response,
        patience: patience(place, target, asked),
        fate,
    });
    let mut request = Some(outgoing(place, asked, sending));
    let course =
        Course { pools: &worker.pools, upstream: target.upstream, pace: &target.pace, watch };
    let begun = forward(course, &mut request, fate.as_deref(), after.going.take()).await?;
    if begun.response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // Nobody has asked for that.
        return Err(Failure::Broken);
    }
    Ok(pass_back(place, watch, target, begun, line, after))
}

/// A request as an upstream is to see it.
fn outgoing<G: Gate<Asked>>(
    place: &Place<G>,
    asked: &mut Asked,
    body: Option<Streaming>,
) -> Request<Sending> {
    let mut parts = take_parts(asked);
    prepare(place, &mut parts);
    let body = body.map_or(Sending::Nothing, |body| Sending::Stream(Box::new(body)));
    Request::from_parts(parts, body)
}

/// Takes a request out of where it has been asked about.
pub(crate) fn take_parts(asked: &mut Asked) -> Parts {
    std::mem::replace(&mut asked.parts, Request::new(()).into_parts().0)
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
        // It is moved when a request comes.
        assert!(open <= 2304, "{open} bytes");
    }
}
