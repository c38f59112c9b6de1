//! Who answers what.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tidegate_proto::RateLimitRequest;
use tonic::Status;
use tonic_health::pb::health_server::HealthServer;
use tower::util::{BoxCloneSyncService, ServiceExt as _};

use super::body::AnswerBody;
use super::health::ServerHealth;
use super::{MESSAGE_MAX, unary};
use crate::config::Config;
use crate::drain::Drain;
use crate::front_end::FrontEnd;
use crate::rls::{self, RlsError};
use crate::service::Service;
use crate::soon::soon;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A service that tonic makes.
type Other = BoxCloneSyncService<Request<Incoming>, Response<tonic::body::Body>, Infallible>;

/// All that can be asked here.
pub(super) struct Routes {
    service: Arc<Service>,
    config: Arc<Config>,
    /// By what the paths of their methods begin with.
    others: [(&'static str, Other); 3],
}

impl Routes {
    pub(super) fn new(service: Arc<Service>, config: Arc<Config>, drain: Drain) -> Self {
        let health = HealthServer::new(ServerHealth::new(drain));
        let v1 = reflection().build_v1().expect("our own descriptors are sound");
        let v1alpha = reflection().build_v1alpha().expect("our own descriptors are sound");
        let others = [
            ("/grpc.health.v1.Health/", Other::new(health.max_decoding_message_size(MESSAGE_MAX))),
            (
                "/grpc.reflection.v1.ServerReflection/",
                Other::new(v1.max_decoding_message_size(MESSAGE_MAX)),
            ),
            (
                "/grpc.reflection.v1alpha.ServerReflection/",
                Other::new(v1alpha.max_decoding_message_size(MESSAGE_MAX)),
            ),
        ];
        Self { service, config, others }
    }

    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<AnswerBody>, Infallible> {
        if let Some(status) = not_grpc(&request) {
            self.service.metrics().bad_request(FrontEnd::Grpc);
            let mut response = Response::new(AnswerBody::Empty);
            *response.status_mut() = status;
            return Ok(response);
        }
        if request.uri().path() == SHOULD_RATE_LIMIT {
            return Ok(self.should_rate_limit(request.into_body()).await);
        }
        let path = request.uri().path();
        let other = self.others.iter().find(|(prefix, _)| path.starts_with(prefix));
        let Some((_, other)) = other else {
            self.service.metrics().bad_request(FrontEnd::Grpc);
            return Ok(Status::unimplemented("there is no such method here").into_http());
        };
        let response = Box::pin(other.clone().oneshot(request)).await?;
        Ok(response.map(AnswerBody::Other))
    }

    async fn should_rate_limit(&self, body: Incoming) -> Response<AnswerBody> {
        let request: RateLimitRequest = match unary::read(body).await {
            Ok(request) => request,
            Err(status) => {
                self.service.metrics().bad_request(FrontEnd::Grpc);
                return status.into_http();
            }
        };
        let answer = rls::answer(&self.service, &self.config, FrontEnd::Grpc, &request);
        match soon(self.service.waits(), answer).await {
            Ok(answer) => unary::write(&answer.response),
            Err(error @ RlsError::Store(_)) => Status::unavailable(error.to_string()).into_http(),
            Err(error) => Status::invalid_argument(error.to_string()).into_http(),
        }
    }
}

/// What HTTP says to requests that are not of gRPC.
fn not_grpc(request: &Request<Incoming>) -> Option<StatusCode> {
    if request.method() != Method::POST {
        return Some(StatusCode::METHOD_NOT_ALLOWED);
    }
    let kind = request.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    match rest {
        Some(b"" | b"+proto") => None,
        Some(rest) if rest.starts_with(b";") || rest.starts_with(b"+proto;") => None,
        _ => Some(StatusCode::UNSUPPORTED_MEDIA_TYPE),
    }
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(tidegate_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}
