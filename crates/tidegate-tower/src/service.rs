//! The service around another one: who is admitted reaches it, who is not never does.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tidegate::{Admission, InOrder, Turn};
use tidegate_http::{Asked, Gate, refusal};
use tower_service::Service;

use crate::body::LimitBody;
use crate::ending::Ending;
use crate::settings::Settings;

/// A service behind limits: what [`TidegateLayer`](crate::TidegateLayer) makes of one.
///
/// It is ready when the service is. A request that a store of another machine decides on, or that
/// waits for its turn, takes no readiness meanwhile: it asks for its own when it goes on.
#[derive(Clone)]
pub struct TidegateService<S, G> {
    inner: S,
    gate: G,
    settings: Arc<Settings>,
}

impl<S, G> TidegateService<S, G> {
    pub(crate) fn new(inner: S, gate: G, settings: Arc<Settings>) -> Self {
        Self { inner, gate, settings }
    }

    /// The service behind the limits.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: fmt::Debug, G: fmt::Debug> fmt::Debug for TidegateService<S, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, gate, .. } = self;
        f.debug_struct("TidegateService").field("inner", inner).field("gate", gate).finish()
    }
}

impl<S, G, B, RB> Service<Request<B>> for TidegateService<S, G>
where
    S: Service<Request<B>, Response = Response<RB>> + Clone,
    G: Gate<Asked>,
    RB: Body<Data: From<Bytes>>,
{
    type Response = Response<LimitBody<RB>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let (parts, body) = request.into_parts();
        let asked = self.settings.asked(parts);
        if !self.gate.asks() || self.settings.answers.exempts(&asked) {
            let future = self.inner.call(Request::from_parts(asked.parts, body));
            return State::Calling { future, ending: None }.into();
        }
        let asking = self.settings.answers.asking(&asked);
        let judge_here = |admission: &mut Admission| judge(&self.settings, admission, &asked);
        if let Some(judged) = self.gate.admit_at_once(&asked, asking, judge_here) {
            return match judged {
                Judged::Refused(refusal) => State::Refused { refusal: Some(refusal) }.into(),
                Judged::Admitted(ending, None) if ending.as_ref().is_none_or(Ending::is_first) => {
                    let future = self.inner.call(Request::from_parts(asked.parts, body));
                    State::Calling { future, ending }.into()
                }
                Judged::Admitted(ending, turn) => {
                    let request = Some((asked.parts, body));
                    let (inner, stage) = (self.inner.clone(), Stage::of(turn));
                    self.wait(Waiting { inner, request, ending, stage, settings: None })
                }
            };
        }
        let gate = self.gate.clone();
        let deciding = Box::pin(async move { (gate.admit(&asked, asking).await, asked) });
        let (inner, settings) = (self.inner.clone(), Some(Arc::clone(&self.settings)));
        let stage = Stage::Deciding(deciding, Some(body));
        self.wait(Waiting { inner, request: None, ending: None, stage, settings })
    }
}

impl<S, G> TidegateService<S, G> {
    fn wait<B>(&self, waiting: Waiting<S, B>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        State::Waiting { waiting: Box::new(waiting) }.into()
    }
}

/// What becomes of a request.
enum Judged {
    Refused(Box<Response<Bytes>>),
    /// It goes on, at once or when it is its turn.
    Admitted(Option<Ending>, Option<Turn>),
}

fn judge(settings: &Arc<Settings>, admission: &mut Admission, asked: &Asked) -> Judged {
    let (held, turn) = (admission.held.take(), admission.turn.take());
    let verdict = &admission.verdict;
    match verdict.allowed {
        true => {
            let ending = Ending::new(settings, verdict, asked, held, turn.as_ref());
            Judged::Admitted(ending, turn)
        }
        false => Judged::Refused(Box::new(refusal(&settings.answers, verdict, asked))),
    }
}

pin_project! {
    /// The answer to come of a [`TidegateService`]. Dropped, it gives back permits and the place among
    /// those who wait. Where a limit holds requests back, one that is kept and not polled keeps the others
    /// of its key waiting.
    pub struct ResponseFuture<S: Service<Request<B>>, B> {
        #[pin]
        state: State<S, B>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S: Service<Request<B>>, B> {
        Refused { refusal: Option<Box<Response<Bytes>>> },
        Calling { #[pin] future: S::Future, ending: Option<Ending> },
        Waiting { waiting: Box<Waiting<S, B>> },
    }
}

/// A request that does not go on yet.
struct Waiting<S, B> {
    inner: S,
    request: Option<(Parts, B)>,
    ending: Option<Ending>,
    stage: Stage<B>,
    /// For the answer, while that is not decided.
    settings: Option<Arc<Settings>>,
}

enum Stage<B> {
    /// The store is asked.
    Deciding(Pin<Box<dyn Future<Output = (Admission, Asked)> + Send>>, Option<B>),
    /// It waits for its turn.
    Held(InOrder),
    /// It waits for those who were let go before it and have not reached the service yet. Only then is
    /// the service asked whether it is ready: it might be so for one of them only.
    Behind,
    /// It waits for the service.
    Due,
}

impl<B> Stage<B> {
    /// What comes after the decision.
    fn of(turn: Option<Turn>) -> Self {
        turn.map_or(Self::Behind, |turn| Self::Held(turn.in_order()))
    }
}

impl<S: Service<Request<B>>, B> From<State<S, B>> for ResponseFuture<S, B> {
    fn from(state: State<S, B>) -> Self {
        Self { state }
    }
}

impl<S, B, RB> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<RB>>,
{
    type Output = Result<Response<LimitBody<RB>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjected::Calling { future, ending } => {
                    let polled = future.poll(context);
                    if let Some(ending) = ending {
                        // The service has begun with it: the next one may follow.
                        ending.going = None;
                    }
                    let answer = ready!(polled)?;
                    return Poll::Ready(Ok(match ending.take() {
                        Some(ending) => ending.finish(answer),
                        None => answer.map(|body| LimitBody::inner(body, None)),
                    }));
                }
                StateProjected::Refused { refusal } => {
                    let refusal = refusal.take().expect("a future is not polled once it is ready");
                    return Poll::Ready(Ok(refusal.map(LimitBody::text)));
                }
                StateProjected::Waiting { waiting } => {
                    let next = ready!(waiting.poll(context))?;
                    state.set(next);
                }
            }
        }
    }
}

impl<S: Service<Request<B>>, B> Waiting<S, B> {
    /// What comes after waiting.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<State<S, B>, S::Error>> {
        loop {
            match &mut self.stage {
                Stage::Deciding(deciding, body) => {
                    let (mut admission, asked) = ready!(deciding.as_mut().poll(context));
                    let settings = self.settings.take().expect("it is decided once");
                    let body = body.take().expect("it is decided once");
                    match judge(&settings, &mut admission, &asked) {
                        Judged::Refused(refusal) => {
                            return Poll::Ready(Ok(State::Refused { refusal: Some(refusal) }));
                        }
                        Judged::Admitted(ending, turn) => {
                            (self.ending, self.request) = (ending, Some((asked.parts, body)));
                            self.stage = Stage::of(turn);
                        }
                    }
                }
                Stage::Held(turn) => {
                    let (held, going) = ready!(Pin::new(turn).poll(context));
                    if let Some(ending) = &mut self.ending {
                        (ending.held, ending.going) = (Some(held), Some(going));
                    }
                    self.stage = Stage::Behind;
                }
                Stage::Behind => {
                    if let Some(going) = self.ending.as_mut().and_then(|it| it.going.as_mut()) {
                        ready!(going.poll_first(context));
                    }
                    self.stage = Stage::Due;
                }
                Stage::Due => {
                    if let Err(error) = ready!(self.inner.poll_ready(context)) {
                        self.ending = None;
                        return Poll::Ready(Err(error));
                    }
                    let (parts, body) = self.request.take().expect("it goes on once");
                    let future = self.inner.call(Request::from_parts(parts, body));
                    return Poll::Ready(Ok(State::Calling { future, ending: self.ending.take() }));
                }
            }
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Refused { .. } => "ResponseFuture(refused)",
            State::Calling { .. } => "ResponseFuture(called)",
            State::Waiting { .. } => "ResponseFuture(waiting)",
        })
    }
}
