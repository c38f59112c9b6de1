//! The bodies of requests, up to a size and within a time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use hyper::body::{Body as _, Incoming};
use tokio::time::Sleep;

use super::problem::Problem;

/// How many bytes a body has at the most.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// How long a client may take to send it.
pub(crate) const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// Reads a body to its end.
pub(crate) async fn read(mut body: Incoming) -> Result<Bytes, Problem> {
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut late = None;
    let Some(first) = part(&mut body, &mut late).await? else { return Ok(Bytes::new()) };
    // Nearly every body comes in one piece, together with the head.
    if body.is_end_stream() {
        return within_bound(first);
    }
    let mut whole = BytesMut::from(&*first);
    while let Some(next) = part(&mut body, &mut late).await? {
        if whole.len() + next.len() > BODY_BYTES_MAX {
            return Err(too_large());
        }
        whole.extend_from_slice(&next);
    }
    within_bound(whole.freeze())
}

fn within_bound(body: Bytes) -> Result<Bytes, Problem> {
    if body.len() > BODY_BYTES_MAX { Err(too_large()) } else { Ok(body) }
}

/// The next piece; the clock runs from the moment that there was none.
async fn part(
    body: &mut Incoming,
    late: &mut Option<Pin<Box<Sleep>>>,
) -> Result<Option<Bytes>, Problem> {
    loop {
        let frame = poll_fn(|context| match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => {
                let late = late.get_or_insert_with(|| Box::pin(tokio::time::sleep(BODY_TIME_MAX)));
                late.as_mut().poll(context).map(|()| Err(too_slow()))
            }
        });
        match frame.await? {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => {
                return Err(Problem::bad(format!("the body did not come to its end: {error}")));
            }
        }
    }
}

fn too_large() -> Problem {
    let detail = format!("the body is larger than {BODY_BYTES_MAX} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

fn too_slow() -> Problem {
    let detail = format!("the body took longer than {} s", BODY_TIME_MAX.as_secs());
    Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
}

/// Refuses bodies that are said to be something else than JSON.
///
/// Some clients call everything a form where nobody tells them otherwise: that says nothing.
pub(crate) fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let whole = value.as_bytes();
    if whole == b"application/json" {
        return Ok(());
    }
    let kind = whole.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let is_json = kind.eq_ignore_ascii_case(b"application/json")
        || kind.len() > 5 && kind[kind.len() - 5..].eq_ignore_ascii_case(b"+json")
        || kind.eq_ignore_ascii_case(b"application/x-www-form-urlencoded");
    match is_json {
        true => Ok(()),
        false => {
            let detail = "the body has to be JSON: `Content-Type: application/json`";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
        }
    }
}
