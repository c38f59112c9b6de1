//! The whole answer to a request that may not go on.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use tidegate::Verdict;
use tidegate::headers::{PROBLEM_TYPE, Sketch, grpc_code, write_grpc_message, write_problem_as};

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
    finish(answers, asked, &mut answer);
    answer
}

/// Refusals by the same [`Answers`] that were told lately: whoever is refused for the same reason within
/// the same second gets the same text, which is then not written again.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Those that were asked for last come first.
    kept: Vec<Kept>,
}

#[derive(Debug)]
struct Kept {
    sketch: Sketch,
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

/// How many are kept.
const KEPT_MAX: usize = 8;

impl Refusals {
    /// [`refusal`]; `answers` are the same each time.
    pub fn refusal(
        &mut self,
        answers: &Answers,
        verdict: &Verdict,
        asked: &Asked,
    ) -> Response<Bytes> {
        if asked.is_grpc() || !answers.tells_all_the_same() {
            return refusal(answers, verdict, asked);
        }
        if let Some(at) = self.kept.iter().position(|kept| kept.sketch.is_of(verdict)) {
            self.kept.swap(0, at);
            let Kept { status, headers, body, .. } = &self.kept[0];
            let mut answer = Response::new(body.clone());
            (*answer.status_mut(), *answer.headers_mut()) = (*status, headers.clone());
            finish(answers, asked, &mut answer);
            return answer;
        }
        let mut answer = of_http(answers, verdict);
        if let Some(sketch) = Sketch::of(verdict) {
            let (status, headers) = (answer.status(), answer.headers().clone());
            let kept = Kept { sketch, status, headers, body: answer.body().clone() };
            self.kept.truncate(KEPT_MAX - 1);
            self.kept.insert(0, kept);
        }
        finish(answers, asked, &mut answer);
        answer
    }
}

/// Makes an answer that of this request.
fn finish(answers: &Answers, asked: &Asked, answer: &mut Response<Bytes>) {
    if answers.exposes(asked) {
        expose(answer.headers_mut(), answers.exposed());
    }
    if asked.parts.method == Method::HEAD {
        // The length is that of what a GET would have brought.
        let length = std::mem::take(answer.body_mut()).len();
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidegate::rules::{File, Options, Rules};
    use tidegate::{Admission, ManualClock, MemoryStore, Modes, RuleLimiter};

    use super::*;
    use crate::{Asking, Gate as _, RuleGate};

    const RULES: &str = "
domain: api
http: [ { descriptors: [ { user: \"${header.user}\" }, { all: yes } ] } ]
descriptors:
  - { key: user, rate_limit: { requests_per_unit: 2, unit: minute, algorithm: token_bucket } }
  - { key: all, rate_limit: { requests_per_unit: 9, unit: hour, algorithm: token_bucket } }
";

    #[test]
    fn what_is_told_again_is_what_would_be_told_anew() {
        let loaded = Rules::load(&[File { name: "r", text: RULES }], &Options::default());
        let clock = ManualClock::new();
        let rules = loaded.rules.unwrap();
        let limiter =
            RuleLimiter::build(MemoryStore::new(), clock.clone(), rules, Modes::default()).unwrap();
        let gate = RuleGate::new(limiter, "api");
        let mut answers = Answers::default();
        answers.expose = true;
        let mut refusals = Refusals::default();
        let (mut refused, mut most) = (0, 0);
        for step in 0..400u64 {
            let method = ["GET", "HEAD"][usize::from(step % 7 == 0)];
            let request = http::Request::builder().method(method);
            let request = request.header("user", ["ada", "bob", "eve"][step as usize % 3]);
            let request = request.header("origin", "http://a").body(()).unwrap();
            let asked = Asked::new(request.into_parts().0, None);
            let verdict = |admission: &mut Admission| admission.verdict.clone();
            let verdict = gate.admit_at_once(&asked, Asking::default(), verdict).unwrap();
            if !verdict.allowed {
                let again = refusals.refusal(&answers, &verdict, &asked);
                let anew = refusal(&answers, &verdict, &asked);
                assert_eq!(again.status(), anew.status());
                assert_eq!(again.headers(), anew.headers(), "step {step}");
                assert_eq!(again.body(), anew.body(), "step {step}");
                refused += 1;
                most = most.max(refusals.kept.len());
            }
            clock.advance(Duration::from_millis(step * 37 % 900));
        }
        assert!(refused > 200 && most == KEPT_MAX, "{refused} refused, {most} kept");
    }
}
