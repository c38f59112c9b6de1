//! Doors for the fuzz targets, which see more than others do. Nothing of it is promised.

use std::sync::Arc;

use tidegate_proto::{RateLimitRequest, RateLimitResponse};

use crate::config::Config;
use crate::front_end::FrontEnd;
use crate::rls;
use crate::service::Service;
use crate::soon::at_once;

pub use crate::http::fuzzing::http_body;

/// Answers one of Envoy's questions.
///
/// # Errors
/// With what a client is told, if it is none.
pub fn rls(
    service: &Service,
    config: &Config,
    request: &RateLimitRequest,
) -> Result<RateLimitResponse, String> {
    let answer = at_once(rls::answer(service, config, FrontEnd::Grpc, request));
    answer.map(|answer| answer.response).map_err(|error| error.to_string())
}

/// What a RESP client is answered that sends these pieces, and whether it was hung up on.
pub fn resp(service: &Arc<Service>, password: Option<&str>, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    crate::resp::converse(service, password, pieces)
}
