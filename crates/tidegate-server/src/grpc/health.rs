//! Health, as `grpc.health.v1` has it: well until the server is about to end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_stream::Stream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::drain::Drain;

/// What may be asked about: the server, its service by Lyft's name for it, and by its own.
const NAMES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// The health of a server.
pub(super) struct ServerHealth {
    drain: Drain,
}

impl ServerHealth {
    pub(super) fn new(drain: Drain) -> Self {
        Self { drain }
    }

    fn status(&self) -> ServingStatus {
        match self.drain.is_leaving() {
            true => ServingStatus::NotServing,
            false => ServingStatus::Serving,
        }
    }
}

#[tonic::async_trait]
impl Health for ServerHealth {
    type WatchStream = Watch;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        match NAMES.contains(&request.get_ref().service.as_str()) {
            true => Ok(Response::new(response(self.status()))),
            false => Err(Status::not_found("there is no service of this name")),
        }
    }

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Watch>, Status> {
        let first = match NAMES.contains(&request.get_ref().service.as_str()) {
            true => self.status(),
            false => ServingStatus::ServiceUnknown,
        };
        let (left, begun) = (Box::pin(self.drain.left()), Box::pin(self.drain.begun()));
        Ok(Response::new(Watch { next: Some(first), is_serving: false, left, begun }))
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

type Signal = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How things are, and again when they change. It ends with the server, which would otherwise wait
/// for it.
pub(super) struct Watch {
    next: Option<ServingStatus>,
    /// Whether that is what was said last.
    is_serving: bool,
    left: Signal,
    begun: Signal,
}

impl Stream for Watch {
    type Item = Result<HealthCheckResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(status) = self.next.take() {
            self.is_serving = status == ServingStatus::Serving;
            return Poll::Ready(Some(Ok(response(status))));
        }
        if self.is_serving && self.left.as_mut().poll(context).is_ready() {
            self.is_serving = false;
            return Poll::Ready(Some(Ok(response(ServingStatus::NotServing))));
        }
        self.begun.as_mut().poll(context).map(|()| None)
    }
}
