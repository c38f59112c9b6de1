//! What the gateway says itself: refusals, failures, and the headers of limits.

use std::ops::Range;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use smallvec::SmallVec;
use tidegate::Verdict;
use tidegate::headers::{
    Field, Headers, PROBLEM_TYPE, ResetForm, is_stricter, merge_policies, merge_states,
    retry_after, write_problem,
};

use crate::body::Answer;
use crate::config;

/// The headers of limits, each at the place of its number.
static NAMES: [HeaderName; Field::ALL.len()] = {
    const fn name(at: usize) -> HeaderName {
        HeaderName::from_static(Field::ALL[at].name())
    }
    [name(0), name(1), name(2), name(3), name(4), name(5), name(6), name(7), name(8)]
};

/// What browsers may show to scripts.
const EXPOSED: &str = "ratelimit, ratelimit-policy, retry-after, x-ratelimit-limit, \
                       x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-retry-after";
/// The status of gRPC for whoever has used up something.
const GRPC_EXHAUSTED: &str = "8";
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
    let code = match status {
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            GRPC_UNAVAILABLE
        }
        _ => return problem(status, detail),
    };
    grpc(code, detail)
}

fn grpc(code: &'static str, message: &str) -> Response<Answer> {
    let mut response = Response::new(Answer::text(Bytes::new()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(code));
    if let Ok(message) = HeaderValue::from_str(&grpc_text(message)) {
        headers.insert("grpc-message", message);
    }
    response
}

/// A text as `grpc-message` has it: visible ASCII, everything else escaped.
fn grpc_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => {
                use std::fmt::Write as _;
                // Writing to a string does not fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Whether a request speaks gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The headers of a verdict, in one piece of text, ready to be put on an answer.
pub(crate) struct Told {
    text: Bytes,
    parts: SmallVec<[(Field, Range<u32>); 9]>,
}

impl Told {
    /// What a verdict says, behind a text; and that text's length.
    fn of(verdict: &Verdict, answers: &config::Answers, behind: String) -> Self {
        let mut headers = Headers::behind(behind);
        let form = match answers.reset_as_epoch {
            true => ResetForm::Epoch(verdict.now),
            false => ResetForm::Delta,
        };
        headers.write(verdict, form);
        // They are behind each other in a text of a few hundred bytes.
        let small = |at: usize| u32::try_from(at).unwrap_or(0);
        let ranges = headers.ranges();
        let parts =
            ranges.map(|(field, range)| (field, small(range.start)..small(range.end))).collect();
        Self { text: Bytes::from(headers.into_text()), parts }
    }

    /// The headers of an admitted request; `None` if there is nothing to say.
    pub(crate) fn allowed(verdict: &Verdict, answers: &config::Answers) -> Option<Self> {
        if !answers.on_allowed || verdict.decision.is_none() {
            return None;
        }
        Some(Self::of(verdict, answers, String::with_capacity(128)))
    }

    fn value(&self, range: &Range<u32>) -> Option<HeaderValue> {
        // It is visible ASCII, which every header may hold.
        let range = range.start as usize..range.end as usize;
        HeaderValue::from_maybe_shared(self.text.slice(range)).ok()
    }

    fn text(&self, range: &Range<u32>) -> &str {
        let bytes = &self.text[range.start as usize..range.end as usize];
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    fn get(&self, wanted: Field) -> Option<&str> {
        let (_, range) = self.parts.iter().find(|(field, _)| *field == wanted)?;
        Some(self.text(range))
    }

    fn put(&self, headers: &mut HeaderMap) {
        for (field, range) in &self.parts {
            if let Some(value) = self.value(range) {
                headers.insert(&NAMES[*field as usize], value);
            }
        }
    }

    /// Puts them on an upstream's answer. What it says itself of limits stays where it is stricter.
    pub(crate) fn put_beside(&self, headers: &mut HeaderMap) {
        // Most upstreams say nothing of limits; whether this one does is one look.
        let says = headers.keys().any(|name| {
            let name = name.as_str();
            name.starts_with("ratelimit") || name.starts_with("x-ratelimit")
        });
        match says {
            false => self.put(headers),
            true => self.merge(headers),
        }
    }

    #[cold]
    fn merge(&self, headers: &mut HeaderMap) {
        let name = |field: Field| &NAMES[field as usize];
        let theirs = |headers: &HeaderMap, field: Field| -> Option<String> {
            let values = headers.get_all(name(field)).iter().map(|value| value.to_str());
            let values = values.collect::<Result<Vec<_>, _>>().ok()?;
            (!values.is_empty()).then(|| values.join(", "))
        };
        let remaining = theirs(headers, Field::Remaining);
        let ours = self.get(Field::Remaining).unwrap_or_default();
        let they_lead = remaining.is_some_and(|theirs| is_stricter(&theirs, ours));
        for (field, range) in &self.parts {
            let is_plain = matches!(field, Field::Limit | Field::Remaining | Field::Reset);
            let ours = self.text(range);
            let merged = match (field, theirs(headers, *field)) {
                _ if is_plain && they_lead => continue,
                (Field::RateLimit, Some(theirs)) => {
                    HeaderValue::try_from(merge_states(&theirs, ours))
                }
                (Field::Policy, Some(theirs)) => {
                    HeaderValue::try_from(merge_policies(&theirs, ours))
                }
                _ => HeaderValue::try_from(ours),
            };
            if let Ok(merged) = merged {
                headers.insert(name(*field), merged);
            }
        }
        if !they_lead && self.get(Field::Reset).is_none() {
            // Theirs would be of another limit than the rest.
            headers.remove(name(Field::Reset));
        }
    }
}

/// Lets scripts in browsers read the headers of limits.
pub(crate) fn expose(headers: &mut HeaderMap) {
    let known: Vec<String> = headers
        .get_all(header::ACCESS_CONTROL_EXPOSE_HEADERS)
        .iter()
        .map(|value| value.to_str().unwrap_or_default().to_owned())
        .collect();
    if known.iter().any(|value| value.trim() == "*") {
        return;
    }
    let all = match known.is_empty() {
        true => HeaderValue::from_static(EXPOSED),
        false => match HeaderValue::try_from(format!("{}, {EXPOSED}", known.join(", "))) {
            Ok(all) => all,
            Err(_) => return,
        },
    };
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, all);
}

/// The answer to a request that limits refuse.
pub(crate) fn refusal(
    verdict: &Verdict,
    answers: &config::Answers,
    is_grpc: bool,
) -> Response<Answer> {
    let status = match verdict.is_unanswered() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => {
            let status = StatusCode::from_u16(answers.refused_status);
            status.unwrap_or(StatusCode::TOO_MANY_REQUESTS)
        }
    };
    let mut body = String::with_capacity(640);
    if is_grpc {
        let told = Told::of(verdict, answers, body);
        let message = match retry_after(verdict) {
            Some(wait) => format!("a limit is reached; try again in {wait} s"),
            None => "a limit is reached".to_owned(),
        };
        let mut response = grpc(GRPC_EXHAUSTED, &message);
        told.put(response.headers_mut());
        jitter(response.headers_mut(), verdict, answers);
        return response;
    }
    write_problem(&mut body, verdict, status.as_u16());
    let length = body.len();
    let told = Told::of(verdict, answers, body);
    let mut headers = HeaderMap::with_capacity(14);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
    told.put(&mut headers);
    jitter(&mut headers, verdict, answers);
    let mut response = Response::new(Answer::text(told.text.slice(..length)));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Makes `Retry-After` later by a drawn number of seconds.
fn jitter(headers: &mut HeaderMap, verdict: &Verdict, answers: &config::Answers) {
    if answers.jitter_seconds == 0 {
        return;
    }
    let Some(wait) = retry_after(verdict) else { return };
    // Without random numbers there is no jitter, which is only less good.
    let drawn = getrandom::u64().unwrap_or(0) % (u64::from(answers.jitter_seconds) + 1);
    headers.insert(&NAMES[Field::RetryAfter as usize], HeaderValue::from(wait + drawn));
}
