//! What clients are told: headers on the service's answers, and refusals.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN,
};
use http::{Method, Response, StatusCode, response};
use tidegate::headers::{
    EXPOSED, Field, Headers, PROBLEM_TYPE, grpc_code, stays, write_grpc_message, write_problem_as,
};
use tidegate::{Held, Verdict};

use crate::asked::Asked;
use crate::body::LimitBody;
use crate::settings::Settings;

/// What there is to say and to do once the service has answered.
pub(crate) struct Told {
    settings: Arc<Settings>,
    text: Bytes,
    /// Where in the text the value of each header is; nowhere if it is empty.
    values: [Range<u16>; Field::ALL.len()],
    is_exposed: bool,
    pub(crate) held: Option<Held>,
}

/// A refusal, ready to be sent.
pub(crate) struct Refusal(Box<Response<Bytes>>);

impl Told {
    /// What is said of an admission; `None` if there is nothing to say or to do.
    pub(crate) fn new(
        settings: &Arc<Settings>,
        verdict: &Verdict,
        asked: &Asked,
        held: Option<Held>,
    ) -> Option<Self> {
        if held.is_none() && verdict.reported().is_none() {
            return None;
        }
        let mut headers = Headers::behind(String::with_capacity(TEXT_BYTES));
        headers.write_as(verdict, &settings.form(verdict.now));
        let values = values(&headers);
        let is_exposed = is_exposed(settings, asked);
        let text = Bytes::from(headers.into_text());
        Some(Self { settings: Arc::clone(settings), text, values, is_exposed, held })
    }

    /// The service's answer with what is to be said.
    pub(crate) fn finish<B>(mut self, answer: Response<B>) -> Response<LimitBody<B>> {
        let (mut parts, body) = answer.into_parts();
        self.settle(&parts);
        self.merge(&mut parts.headers);
        let held = self.held.filter(Held::has_permits);
        Response::from_parts(parts, LimitBody::inner(body, held))
    }

    /// Brings what was counted to what the answer says.
    fn settle(&mut self, answer: &response::Parts) {
        let Some(held) = &mut self.held else { return };
        if self.settings.refunds.as_ref().is_some_and(|refunds| refunds(answer)) {
            return held.refund();
        }
        let cost = self.settings.cost_header.as_ref().and_then(|name| answer.headers.get(name));
        if let Some(cost) = cost.and_then(|cost| cost.to_str().ok()?.trim().parse().ok()) {
            held.settle(cost);
        }
    }

    /// Adds the headers to those that the service has set. Nothing of what it says is made laxer.
    fn merge(&self, headers: &mut HeaderMap) {
        let keeps_theirs = self.keeps_theirs(headers);
        for (field, name, value) in self.fields() {
            match field {
                Field::Limit | Field::Remaining | Field::Reset if keeps_theirs => {}
                // Lists: whoever reads them reads all lines.
                Field::Policy | Field::RateLimit => {
                    headers.append(name, value);
                }
                _ => {
                    headers.insert(name, value);
                }
            }
        }
        if self.is_exposed {
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
    }

    /// Whether the service speaks of a limit that is at least as strict.
    fn keeps_theirs(&self, headers: &HeaderMap) -> bool {
        let named = |field: Field| {
            self.settings.names[field as usize].as_ref().and_then(|name| headers.get(name))
        };
        let Range { start, end } = self.values[Field::Remaining as usize].clone();
        let ours = self.text.get(usize::from(start)..usize::from(end)).unwrap_or_default();
        match named(Field::Remaining) {
            Some(theirs) => stays(theirs.as_bytes(), std::str::from_utf8(ours).unwrap_or_default()),
            None => named(Field::Limit).is_some() || named(Field::Reset).is_some(),
        }
    }

    fn fields(&self) -> impl Iterator<Item = (Field, &http::HeaderName, HeaderValue)> {
        fields(&self.settings, &self.text, &self.values)
    }
}

impl Refusal {
    pub(crate) fn new(settings: &Settings, verdict: &Verdict, asked: &Asked) -> Self {
        let form = settings.form(verdict.now);
        let is_grpc = asked.is_grpc();
        let status = match () {
            () if is_grpc => StatusCode::OK,
            () if verdict.is_unanswered() => StatusCode::SERVICE_UNAVAILABLE,
            () => settings.refused,
        };
        let mut body = String::with_capacity(TEXT_BYTES + PROBLEM_BYTES);
        match is_grpc {
            true => write_grpc_message(&mut body, verdict, &form),
            false => write_problem_as(&mut body, verdict, status.as_u16(), &form),
        }
        let length = body.len();
        let mut headers = Headers::behind(body);
        headers.write_as(verdict, &form);
        let values = values(&headers);
        let text = Bytes::from(headers.into_text());
        let mut map = HeaderMap::with_capacity(14);
        for (_, name, value) in fields(settings, &text, &values) {
            map.insert(name, value);
        }
        if is_exposed(settings, asked) {
            map.append(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        }
        let mut answer = match is_grpc {
            true => {
                trailers_only(&mut map, verdict, asked, text.slice(..length));
                Response::new(Bytes::new())
            }
            false => {
                map.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_TYPE));
                Response::new(text.slice(..length))
            }
        };
        (*answer.status_mut(), *answer.headers_mut()) = (status, map);
        if let Some(change) = settings.on_refusal.as_ref().filter(|_| !is_grpc) {
            change(verdict, &mut answer);
        }
        if asked.parts.method == Method::HEAD {
            // The length is that of what a GET would have brought.
            let length = std::mem::take(answer.body_mut()).len();
            answer.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        Self(Box::new(answer))
    }

    pub(crate) fn into_response<B>(self) -> Response<LimitBody<B>> {
        self.0.map(LimitBody::text)
    }
}

/// The room for the values of headers, and for a problem.
const TEXT_BYTES: usize = 160;
const PROBLEM_BYTES: usize = 384;

/// The end of a call that has not begun: all that gRPC says at the end stands at the beginning.
fn trailers_only(map: &mut HeaderMap, verdict: &Verdict, asked: &Asked, message: Bytes) {
    let content_type = asked.parts.headers.get(CONTENT_TYPE).cloned();
    let content_type = content_type.unwrap_or(HeaderValue::from_static("application/grpc"));
    map.insert(CONTENT_TYPE, content_type);
    map.insert("grpc-status", HeaderValue::from(u16::from(grpc_code(verdict))));
    if let Ok(message) = HeaderValue::from_maybe_shared(message) {
        map.insert("grpc-message", message);
    }
}

/// Whether scripts of another origin ask, and are to see the headers.
fn is_exposed(settings: &Settings, asked: &Asked) -> bool {
    settings.is_exposed && asked.parts.headers.contains_key(ORIGIN)
}

fn values(headers: &Headers) -> [Range<u16>; Field::ALL.len()] {
    let mut values = [const { 0..0 }; Field::ALL.len()];
    for (field, range) in headers.ranges() {
        // Names and lists have bounds of their own, far below this one.
        let place = |at: usize| u16::try_from(at).ok();
        if let (Some(start), Some(end)) = (place(range.start), place(range.end)) {
            values[field as usize] = start..end;
        }
    }
    values
}

fn fields<'a>(
    settings: &'a Settings,
    text: &'a Bytes,
    values: &'a [Range<u16>; Field::ALL.len()],
) -> impl Iterator<Item = (Field, &'a http::HeaderName, HeaderValue)> {
    let told = Field::ALL.iter().zip(&settings.names).zip(values);
    told.filter_map(|((field, name), range)| {
        let (name, range) = (name.as_ref()?, usize::from(range.start)..usize::from(range.end));
        if range.is_empty() {
            return None;
        }
        // It is visible ASCII, which every header may hold.
        let value = HeaderValue::from_maybe_shared(text.slice(range)).ok()?;
        Some((*field, name, value))
    })
}
