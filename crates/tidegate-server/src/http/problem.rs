//! What could not be done, as clients read it: RFC 9457.

use std::borrow::Cow;

use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use super::answer::{Response, respond};
use crate::exceptions::ExceptError;
use crate::stores::StoreError;

/// Why a request has no other answer.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    detail: Cow<'static, str>,
    more: More,
}

/// What else is said.
#[derive(Debug)]
enum More {
    Nothing,
    /// Where in the body, as line and column.
    Place(usize, usize),
    /// Which methods there are.
    Methods(&'static [&'static str]),
    /// How to say who one is.
    Authenticate,
    /// In how many seconds to try again.
    RetryAfter(u32),
}

/// A store that has no answer may have one in a moment.
impl From<ExceptError> for Problem {
    fn from(error: ExceptError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string());
        Self { more: More::RetryAfter(1), ..problem }
    }
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, detail: detail.into(), more: More::Nothing }
    }

    /// A request that makes no sense.
    pub(crate) fn bad(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// A domain that the rules do not have.
    pub(crate) fn no_domain(domain: &str) -> Self {
        Self::not_found(format!("the rules have no domain `{domain}`"))
    }

    /// A body that is no JSON, or not the JSON that was asked for.
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let detail = text.strip_suffix(&format!(" at line {line} column {column}"));
        let detail = detail.unwrap_or(&text).to_owned();
        // A place of nought is none: the error is about the whole.
        let more = if line > 0 { More::Place(line, column) } else { More::Nothing };
        Self { more, ..Self::bad(detail) }
    }

    /// The same, of one among several.
    pub(crate) fn within(mut self, whole: impl std::fmt::Display) -> Self {
        self.detail = format!("{whole}: {}", self.detail).into();
        self
    }

    /// A method that there is not.
    pub(crate) fn method(allowed: &'static [&'static str]) -> Self {
        let detail = format!("the method is none of {}", allowed.join(", "));
        let more = More::Methods(allowed);
        Self { more, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }

    /// Somebody who has to say who it is.
    pub(crate) fn unauthorized(detail: &'static str) -> Self {
        Self { more: More::Authenticate, ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// Whether the request was not understood, rather than not granted.
    pub(crate) fn is_bad_request(&self) -> bool {
        matches!(
            self.status,
            StatusCode::BAD_REQUEST
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::PAYLOAD_TOO_LARGE
                | StatusCode::UNSUPPORTED_MEDIA_TYPE
        )
    }

    pub(crate) fn into_response(self) -> Response {
        let Self { status, detail, more } = self;
        let title = status.canonical_reason().unwrap_or_default();
        let mut body = json!({
            "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
        });
        if let More::Place(line, column) = more {
            (body["line"], body["column"]) = (line.into(), column.into());
        }
        let mut response = respond(status, tidegate::headers::PROBLEM_TYPE, body.to_string());
        let no_store = HeaderValue::from_static("no-store");
        response.headers_mut().insert(header::CACHE_CONTROL, no_store);
        let header = match more {
            More::Methods(names) => {
                let names = HeaderValue::from_str(&names.join(", "));
                names.ok().map(|names| (header::ALLOW, names))
            }
            More::Authenticate => {
                Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
            }
            More::RetryAfter(seconds) => Some((header::RETRY_AFTER, seconds.into())),
            More::Nothing | More::Place(..) => None,
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        if status == StatusCode::REQUEST_TIMEOUT || status == StatusCode::PAYLOAD_TOO_LARGE {
            // What is left of the body is not worth reading.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }
}
