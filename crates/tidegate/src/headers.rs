//! What an HTTP answer says of a verdict: the headers, and the body of a refusal.
//!
//! Written once for every front end that speaks HTTP. The names are in lower case, as HTTP/2 wants
//! them; there are no types of any HTTP library here.

mod merge;
mod sketch;

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Retry, Source, Timestamp};

use crate::verdict::{Answered, Verdict, write_text};

pub use self::merge::{merge_policies, merge_states, stays};
pub use self::sketch::Sketch;

/// The media type of [`write_problem`]'s body.
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// How many bytes of policies are sent; items that do not fit are left out. Proxies have room for
/// 4 KiB of headers where nobody has told them otherwise.
pub const POLICIES_BYTES_MAX: usize = 1024;
/// How many bytes of a rule's id are sent in a header; longer ones are cut.
pub const NAME_BYTES_MAX: usize = 256;

/// The greatest number that a structured field can hold.
const FIELD_NUMBER_MAX: u64 = 999_999_999_999_999;

/// The headers that speak of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The limit that is reported.
    Limit,
    /// What is left of it.
    Remaining,
    /// When all of it is back.
    Reset,
    /// When to come back, of a refusal.
    RetryAfter,
    /// The same under another name.
    XRetryAfter,
    /// All limits that were met, as the IETF's draft has it.
    Policy,
    /// The one that is reported, as the IETF's draft has it.
    RateLimit,
    /// The key lives on the allowance of a soft limit.
    Soft,
    /// A refusal is for nobody else.
    CacheControl,
}

impl Field {
    /// All of them; each is at the position of its number.
    pub const ALL: [Self; 9] = [
        Self::Limit,
        Self::Remaining,
        Self::Reset,
        Self::RetryAfter,
        Self::XRetryAfter,
        Self::Policy,
        Self::RateLimit,
        Self::Soft,
        Self::CacheControl,
    ];

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "x-ratelimit-limit",
            Self::Remaining => "x-ratelimit-remaining",
            Self::Reset => "x-ratelimit-reset",
            Self::RetryAfter => "retry-after",
            Self::XRetryAfter => "x-ratelimit-retry-after",
            Self::Policy => "ratelimit-policy",
            Self::RateLimit => "ratelimit",
            Self::Soft => "x-ratelimit-soft",
            Self::CacheControl => "cache-control",
        }
    }
}

/// How `X-RateLimit-Reset` is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetForm {
    /// In seconds from now.
    #[default]
    Delta,
    /// In seconds since 1970; this is now.
    Epoch(Timestamp),
}

/// How an answer is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Form {
    /// How `X-RateLimit-Reset` is told.
    pub reset: ResetForm,
    /// Seconds by which a refused client is told to come back later than it could: another number for
    /// each keeps those from coming back together who were refused together.
    pub later: u64,
}

impl Form {
    /// With this form of `X-RateLimit-Reset`.
    #[must_use]
    pub fn reset(self, reset: ResetForm) -> Self {
        Self { reset, ..self }
    }

    /// With so many seconds more before a refused client is to come back.
    #[must_use]
    pub fn later(self, seconds: u64) -> Self {
        Self { later: seconds, ..self }
    }

    /// [`retry_after`], told in this form.
    fn retry_after(&self, verdict: &Verdict) -> Option<u64> {
        retry_after(verdict).map(|wait| wait.saturating_add(self.later))
    }
}

/// The headers that a script in a browser has to be allowed to see, as
/// `Access-Control-Expose-Headers` lists them.
pub const EXPOSED: &str = "retry-after, ratelimit, ratelimit-policy, x-ratelimit-limit, \
    x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-retry-after, x-ratelimit-soft";

/// The headers of an answer, all in one piece of text.
///
/// ```
/// use tidegate::headers::Headers;
/// use tidegate::rules::{Descriptor, Entry, File, Options, Rules};
/// use tidegate::{Query, RuleLimiter};
///
/// let text = "
/// domain: api
/// descriptors:
///   - { key: user, rate_limit: { requests_per_unit: 2, unit: hour, algorithm: token_bucket } }
/// ";
/// let loaded = Rules::load(&[File { name: "api.yaml", text }], &Options::default());
/// let limiter = RuleLimiter::new(loaded.rules.ok_or(loaded.report.to_string())?)?;
/// let entries = [Entry::new("user", "ada")];
/// let verdict = limiter.check(&Query::new("api", &[Descriptor::new(&entries)]));
///
/// let headers = Headers::of(&verdict);
/// let policy = headers.iter().find(|(field, _)| field.name() == "ratelimit-policy");
/// assert_eq!(policy.map(|(_, value)| value), Some("\"api.user\";q=2;w=3600"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Headers {
    text: String,
    parts: SmallVec<[(Field, Range<u32>); 9]>,
}

impl Headers {
    /// The headers of a verdict.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Self {
        let mut headers = Self::default();
        headers.write(verdict, ResetForm::Delta);
        headers
    }

    /// Headers that are written behind a text, which may be anything: see
    /// [`into_text`](Self::into_text).
    #[must_use]
    pub fn behind(text: String) -> Self {
        Self { text, parts: SmallVec::new() }
    }

    /// Adds the headers of a verdict. There are none if it met no limit, or only limits that
    /// watch, and refuses nobody.
    pub fn write(&mut self, verdict: &Verdict, reset: ResetForm) {
        self.write_as(verdict, &Form::default().reset(reset));
    }

    /// [`write`](Self::write), told in some form.
    pub fn write_as(&mut self, verdict: &Verdict, form: &Form) {
        if !verdict.allowed {
            self.add(Field::CacheControl, |out| out.push_str("no-store"));
        }
        let Some(reported) = verdict.reported() else { return };
        let decision = &reported.decision;
        self.add(Field::Limit, |out| write_number(out, decision.limit));
        self.add(Field::Remaining, |out| write_number(out, decision.remaining));
        if let Some(reset) = decision.reset_after {
            let seconds = match form.reset {
                ResetForm::Delta => seconds_up(reset),
                ResetForm::Epoch(now) => {
                    seconds_up(Duration::from_nanos(now.as_nanos()).saturating_add(reset))
                }
            };
            self.add(Field::Reset, |out| write_number(out, seconds));
        }
        if let Some(wait) = form.retry_after(verdict) {
            self.add(Field::RetryAfter, |out| write_number(out, wait));
            self.add(Field::XRetryAfter, |out| write_number(out, wait));
        }
        self.add(Field::Policy, |out| write_policies(out, verdict));
        self.add(Field::RateLimit, |out| write_state(out, verdict, reported, form));
        if verdict.decision.is_some_and(|decision| decision.soft) {
            self.add(Field::Soft, |out| out.push('1'));
        }
    }

    /// Each header and its value: visible ASCII and spaces.
    pub fn iter(&self) -> impl Iterator<Item = (Field, &str)> {
        self.ranges().map(|(field, range)| (field, &self.text[range]))
    }

    /// Each header and where its value is in the text.
    pub fn ranges(&self) -> impl Iterator<Item = (Field, Range<usize>)> + '_ {
        self.parts.iter().map(|(field, range)| (*field, range.start as usize..range.end as usize))
    }

    /// The text that all values are in.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    fn add(&mut self, field: Field, write: impl FnOnce(&mut String)) {
        let start = self.text.len();
        write(&mut self.text);
        let place = |at: usize| u32::try_from(at).ok();
        match (self.text.len() > start, place(start), place(self.text.len())) {
            (true, Some(start), Some(end)) => self.parts.push((field, start..end)),
            // Nothing to say, or behind a text that is longer than anybody sends.
            _ => self.text.truncate(start),
        }
    }
}

/// When a refused client may come back, in seconds rounded up; `None` if nobody can tell, if it
/// never may, or if it was not refused. Who was refused [because nobody could be
/// asked](Verdict::is_unanswered) may try again in a second.
pub fn retry_after(verdict: &Verdict) -> Option<u64> {
    if verdict.is_unanswered() {
        return Some(1);
    }
    match verdict.reported()?.decision.retry {
        Retry::After(wait) if !verdict.allowed => Some(seconds_up(wait).max(1)),
        _ => None,
    }
}

/// Appends the body of a refusal: a problem as of RFC 9457, of the types of the IETF's draft.
pub fn write_problem(out: &mut String, verdict: &Verdict, status: u16) {
    write_problem_as(out, verdict, status, &Form::default());
}

/// [`write_problem`], told in some form.
pub fn write_problem_as(out: &mut String, verdict: &Verdict, status: u16, form: &Form) {
    let refusing = || {
        let limits = verdict.limits.iter();
        limits.filter(|it| !it.decision.allowed && it.decision.source != Source::Shadow)
    };
    let is_blocked = verdict.limits.iter().any(Answered::is_block);
    let is_closed = verdict.is_unanswered();
    let (kind, title) = match () {
        () if verdict.denied_by.is_some() => ("about:blank", "Too Many Requests"),
        () if is_closed => (
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "Request cannot be counted at the moment",
        ),
        () if is_blocked => (
            "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
            "Request cannot be satisfied because of abnormal usage",
        ),
        () => (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Request cannot be satisfied as assigned quota has been exceeded",
        ),
    };
    // Writing to a string does not fail.
    let _ = write!(out, "{{\"type\":\"{kind}\",\"title\":\"{title}\",\"status\":{status}");
    out.push_str(",\"detail\":");
    write_text(out, &detail(verdict, form));
    out.push_str(",\"violated-policies\":[");
    for (index, answered) in refusing().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_text(out, &verdict.rule_id(answered));
    }
    out.push(']');
    if let Some(wait) = form.retry_after(verdict) {
        let _ = write!(out, ",\"retry_after_seconds\":{wait}");
    }
    out.push('}');
}

/// The code by which a gRPC client is told of a refusal: `RESOURCE_EXHAUSTED`, or `UNAVAILABLE`
/// where [nobody could be asked](Verdict::is_unanswered).
pub fn grpc_code(verdict: &Verdict) -> u8 {
    if verdict.is_unanswered() { 14 } else { 8 }
}

/// Appends the text of a refusal as gRPC's `grpc-message` has it.
pub fn write_grpc_message(out: &mut String, verdict: &Verdict, form: &Form) {
    write_grpc_text(out, &detail(verdict, form));
}

/// Appends a text as gRPC's `grpc-message` has it: what is not visible ASCII, and `%`, is written as
/// `%xx`.
pub fn write_grpc_text(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

fn detail(verdict: &Verdict, form: &Form) -> String {
    let is_blocked = verdict.limits.iter().any(Answered::is_block);
    let is_closed = verdict.is_unanswered();
    if verdict.denied_by.is_some() {
        return "the request lacks a value that it is counted by".to_owned();
    }
    if is_closed {
        return "the store of the limits has no answer".to_owned();
    }
    let Some(reported) = verdict.reported() else { return String::new() };
    let name = verdict.rule_id(reported);
    let limit = reported.decision.limit;
    match (reported.decision.retry, form.retry_after(verdict)) {
        (_, Some(wait)) if is_blocked => format!("the key is blocked; try again in {wait} s"),
        (_, Some(wait)) => {
            format!("the limit `{name}` of {limit} is reached; try again in {wait} s")
        }
        (Retry::Never, _) => format!("the limit `{name}` of {limit} never admits so much"),
        _ => format!("the limit `{name}` of {limit} is reached; try again when others have ended"),
    }
}

/// One item for each limit that was met and that may refuse.
fn write_policies(out: &mut String, verdict: &Verdict) {
    let begin = out.len();
    let enforced = verdict.limits.iter().filter(|it| it.decision.source != Source::Shadow);
    for answered in enforced {
        let before = out.len();
        if before > begin {
            out.push_str(", ");
        }
        write_name(out, &verdict.rule_id(answered));
        out.push_str(";q=");
        write_number(out, answered.decision.limit);
        if verdict.limit_of(answered).is_some_and(|limit| limit.is_concurrency()) {
            out.push_str(";qu=\"concurrent-requests\"");
        } else if let Some(window) = verdict.window(answered) {
            out.push_str(";w=");
            write_number(out, seconds_up(window).max(1));
        }
        if out.len() - begin > POLICIES_BYTES_MAX {
            out.truncate(before);
            return;
        }
    }
}

fn write_state(out: &mut String, verdict: &Verdict, reported: &Answered, form: &Form) {
    write_name(out, &verdict.rule_id(reported));
    out.push_str(";r=");
    write_number(out, reported.decision.remaining);
    let until = match verdict.allowed {
        true => reported.decision.reset_after.map(seconds_up),
        false => form.retry_after(verdict),
    };
    if let Some(until) = until {
        out.push_str(";t=");
        write_number(out, until);
    }
}

/// A string of a structured field. It holds visible ASCII only: of an id that has anything else,
/// that and every `%` is written as `%xx`, byte by byte.
fn write_name(out: &mut String, id: &str) {
    let is_bare = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if id.len() <= NAME_BYTES_MAX && id.bytes().all(is_bare) {
        out.push('"');
        out.push_str(id);
        out.push('"');
        return;
    }
    let is_plain = id.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    let begin = out.len() + 1;
    out.push('"');
    for byte in id.bytes() {
        if out.len() - begin >= NAME_BYTES_MAX {
            break;
        }
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' if is_plain || byte != b'%' => out.push(char::from(byte)),
            byte => {
                let _ = write!(out, "%{byte:02x}");
            }
        }
    }
    out.push('"');
}

fn write_number(out: &mut String, number: u64) {
    push_number(out, number.min(FIELD_NUMBER_MAX));
}

/// A number without the machinery of formatting, which costs as much as a decision.
pub(crate) fn push_number(out: &mut String, number: u64) {
    out.push_str(itoa::Buffer::new().format(number));
}

/// Rounded up, so that whoever waits so long does not come early.
fn seconds_up(duration: Duration) -> u64 {
    duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests;
