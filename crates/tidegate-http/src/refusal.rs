//! The whole answer to a request that may not go on.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use tidegate::Verdict;
use tidegate::headers::{PROBLEM_TYPE, grpc_code, write_grpc_message, write_problem_as};

use crate::answers::Answers;
use crate::asked::Asked;
use crate::told::{TEXT_BYTES, Told, expose};

/// The room for a problem.
const PROBLEM_BYTES: usize = 384;

/// The answer to a request that was refused: 429 and why, or what [`Answers`] says instead; 503 where
/// nobody could decide; and for gRPC, which reads no other, a status of its own.
///
/// All of its text is in one piece.
pub fn refusal(answers: &Answers, verdict: &Verdict, asked: &Asked) -> Response<Bytes> {
    let mut answer = match asked.is_grpc() {
        true => of_grpc(answers, verdict, asked),
        false => of_http(answers, verdict),
    };
    if answers.exposes(asked) {
        expose(answer.headers_mut(), answers.exposed());
    }
    if asked.parts.method == Method::HEAD {
        // The length is that of what a GET would have brought.
        let length = std::mem::take(answer.body_mut()).len();
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    answer
}

fn of_http(answers: &Answers, verdict: &Verdict) -> Response<Bytes> {
    let is_unanswered = verdict.is_unanswered();
    let status = match is_unanswered {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => answers.refused_status,
    };
    let form = answers.form(verdict.now);
    let mut problem = String::new();
    // That nobody could decide is no refusal in somebody's own words.
    let own = answers.refused_body.as_ref().filter(|_| !is_unanswered);
    if own.is_none() {
        problem.reserve(TEXT_BYTES + PROBLEM_BYTES);
        write_problem_as(&mut problem, verdict, status.as_u16(), &form);
    }
    let length = problem.len();
    let told = Told::write(verdict, &form, problem);
    let mut headers = HeaderMap::with_capacity(14);
    told.put_all(answers, &mut headers);
    let (content_type, body) = match own {
        Some(own) => (own.content_type.clone(), own.text.clone()),
        None => (HeaderValue::from_static(PROBLEM_TYPE), told.text().slice(..length)),
    };
    headers.insert(CONTENT_TYPE, content_type);
    let mut answer = Response::new(body);
    (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
    answers.change(verdict, &mut answer);
    answer
}

/// The end of a call that has not begun: all that gRPC says at the end stands at the beginning.
fn of_grpc(answers: &Answers, verdict: &Verdict, asked: &Asked) -> Response<Bytes> {
    let form = answers.form(verdict.now);
    let mut message = String::with_capacity(TEXT_BYTES + PROBLEM_BYTES);
    write_grpc_message(&mut message, verdict, &form);
    let length = message.len();
    let told = Told::write(verdict, &form, message);
    let mut answer = Response::new(Bytes::new());
    let headers = answer.headers_mut();
    told.put_all(answers, headers);
    let content_type = asked.parts.headers.get(CONTENT_TYPE).cloned();
    let content_type = content_type.unwrap_or(HeaderValue::from_static("application/grpc"));
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert("grpc-status", HeaderValue::from(u16::from(grpc_code(verdict))));
    if let Ok(message) = HeaderValue::from_maybe_shared(told.text().slice(..length)) {
        headers.insert("grpc-message", message);
    }
    answer
}
