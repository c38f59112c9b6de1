//! What the gateway says itself where no upstream answers. What is said of limits is `tidegate-http`'s.

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use tidegate::headers::{PROBLEM_TYPE, write_grpc_text};

use crate::body::Answer;

/// The status of gRPC for what may work later.
const GRPC_UNAVAILABLE: &str = "14";

/// A problem as of RFC 9457.
pub(crate) fn problem(status: StatusCode, detail: &str) -> Response<Answer> {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
    });
    let mut response = Response::new(Answer::text(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The same for those who speak gRPC: a status and no body.
pub(crate) fn grpc_problem(status: StatusCode, detail: &str) -> Response<Answer> {
    let may_work_later = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    if !may_work_later {
        return problem(status, detail);
    }
    let mut response = Response::new(Answer::text(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(GRPC_UNAVAILABLE));
    let mut message = String::with_capacity(detail.len());
    write_grpc_text(&mut message, detail);
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert("grpc-message", message);
    }
    response
}
