//! Answers: a body in one buffer with the values of all headers.

use crate::config::Config;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::Full;
use tidegate::Verdict;
use tidegate::headers::{Field, Headers, PROBLEM_TYPE, ResetForm, write_problem};

pub(crate) type Response = http::Response<Full<Bytes>>;

/// The media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// The headers of limits, each at the place of its number.
static NAMES: [HeaderName; Field::ALL.len()] = {
    const fn name(at: usize) -> HeaderName {
        HeaderName::from_static(Field::ALL[at].name())
    }
    [name(0), name(1), name(2), name(3), name(4), name(5), name(6), name(7), name(8)]
};

/// A plain answer.
pub(crate) fn respond(
    status: StatusCode,
    media_type: &'static str,
    body: impl Into<Bytes>,
) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// The answer of a check: the verdict as JSON, with all headers. A refusal is 429, or what it is
/// said to be; 503 if there was nobody to ask.
pub(crate) fn verdict(config: &Config, verdict: &Verdict, refused: StatusCode) -> Response {
    if verdict.is_unanswered() && refused != StatusCode::OK {
        return refusal(config, verdict, refused);
    }
    let mut json = String::with_capacity(384 + verdict.limits.len() * 256);
    verdict.write_json(&mut json);
    with_headers(config, verdict, status(verdict, refused), JSON, json)
}

/// The answer to a refused request, as its client may read it.
pub(crate) fn refusal(config: &Config, verdict: &Verdict, refused: StatusCode) -> Response {
    let status = status(verdict, refused);
    let mut body = String::with_capacity(768);
    write_problem(&mut body, verdict, status.as_u16());
    with_headers(config, verdict, status, PROBLEM_TYPE, body)
}

fn status(verdict: &Verdict, refused: StatusCode) -> StatusCode {
    match verdict.allowed {
        true => StatusCode::OK,
        false if verdict.is_unanswered() && refused != StatusCode::OK => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        false => refused,
    }
}

/// An answer with the headers of a verdict.
pub(crate) fn with_headers(
    config: &Config,
    verdict: &Verdict,
    status: StatusCode,
    media_type: &'static str,
    body: String,
) -> Response {
    let length = body.len();
    let mut headers = Headers::behind(body);
    let form = match config.reset_as_epoch {
        true => ResetForm::Epoch(verdict.now),
        false => ResetForm::Delta,
    };
    headers.write(verdict, form);
    let mut map = HeaderMap::with_capacity(12);
    let ranges: [Option<(Field, std::ops::Range<usize>)>; Field::ALL.len()] = {
        let mut ranges = headers.ranges();
        std::array::from_fn(|_| ranges.next())
    };
    let text = Bytes::from(headers.into_text());
    if !media_type.is_empty() {
        map.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    }
    for (field, range) in ranges.into_iter().flatten() {
        // It is visible ASCII, which every header may hold.
        if let Ok(value) = HeaderValue::from_maybe_shared(text.slice(range)) {
            map.insert(&NAMES[field as usize], value);
        }
    }
    let mut response = Response::new(Full::new(text.slice(..length)));
    *response.status_mut() = status;
    *response.headers_mut() = map;
    response
}
