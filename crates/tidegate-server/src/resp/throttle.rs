//! `CL.THROTTLE` and `GCRA`: limits that come with the request.

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Decision, Registered};

use super::Resp;
use super::command::{Quoted, wrong_arity};
use super::limits::{Numbers, Unusable};
use super::parse::integer;
use super::reply::Reply;
use super::session::Turn;
use crate::front_end::FrontEnd;
use crate::soon::at_once;

/// `CL.THROTTLE key max_burst count period [quantity]`
pub(crate) fn cl_throttle(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    let (key, burst, count, period, quantity) = match arguments {
        [key, burst, count, period] => (key, burst, count, period, None),
        [key, burst, count, period, quantity] => (key, burst, count, period, Some(quantity)),
        _ => return wrong_arity(turn, "cl.throttle"),
    };
    let Some(burst) = number(turn, "max_burst", burst, 0) else { return };
    let Some(units) = number(turn, "count", count, 1) else { return };
    let Some(period) = number(turn, "period", period, 1) else { return };
    let cost = match quantity {
        None => 1,
        Some(quantity) => match number(turn, "quantity", quantity, 0) {
            Some(cost) => cost,
            None => return,
        },
    };
    // The request itself takes one place, and the burst is of others.
    let numbers = Numbers { capacity: burst + 1, units, period: Duration::from_secs(period) };
    decide(turn, "CL.THROTTLE", key, numbers, cost, write_seconds);
}

fn write_seconds(reply: &mut Reply<'_>, decision: &Decision) {
    reply.array(5);
    reply.integer(i64::from(!decision.allowed));
    reply.integer(whole(decision.limit));
    reply.integer(whole(decision.remaining));
    reply.integer(waiting(decision).map_or(-1, seconds));
    reply.integer(decision.reset_after.map_or(-1, seconds));
}

/// `GCRA key max_burst requests_per_period period [TOKENS n | NUM_REQUESTS n]`
pub(crate) fn gcra(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    let (key, burst, count, period, option) = match arguments {
        [key, burst, count, period, option @ ..] => (key, burst, count, period, option),
        _ => return wrong_arity(turn, "gcra"),
    };
    let Some(burst) = number(turn, "max_burst", burst, 0) else { return };
    let Some(units) = number(turn, "requests_per_period", count, 1) else { return };
    let Some(period) = span(turn, period) else { return };
    let cost = match option {
        [] => 1,
        [name, tokens]
            if name.eq_ignore_ascii_case(b"TOKENS")
                || name.eq_ignore_ascii_case(b"NUM_REQUESTS") =>
        {
            match number(turn, "the number of tokens", tokens, 0) {
                Some(cost) => cost,
                None => return,
            }
        }
        _ => return turn.refuse(format_args!("ERR syntax error")),
    };
    let numbers = Numbers { capacity: burst + 1, units, period };
    decide(turn, "GCRA", key, numbers, cost, write_parts_of_seconds);
}

fn write_parts_of_seconds(reply: &mut Reply<'_>, decision: &Decision) {
    reply.array(5);
    reply.integer(i64::from(!decision.allowed));
    reply.integer(whole(decision.limit));
    reply.integer(whole(decision.remaining));
    reply.double(waiting(decision).map_or(-1.0, |wait| wait.as_secs_f64()));
    reply.double(decision.reset_after.map_or(-1.0, |reset| reset.as_secs_f64()));
}

fn decide(
    turn: &mut Turn<'_>,
    name: &'static str,
    key: &[u8],
    numbers: Numbers,
    cost: u64,
    write: fn(&mut Reply<'_>, &Decision),
) {
    let resp = turn.resp;
    let is_last = |last: &(Numbers, Arc<Registered>)| last.0 == numbers;
    if !turn.session.last.as_ref().is_some_and(is_last) {
        match resp.brought.handle(resp.service.limits(), numbers) {
            Ok(limit) => turn.session.last = Some((numbers, limit)),
            Err(unusable) => return cannot(turn, &unusable),
        }
    }
    let question = Question { name, cost, write };
    let Some((_, limit)) = &turn.session.last else { return };
    let protocol = turn.session.protocol;
    if resp.waits {
        let (resp, limit, key) = (Arc::clone(resp), Arc::clone(limit), Box::<[u8]>::from(key));
        return turn.later(async move {
            let mut out = Vec::new();
            question.ask(&resp, &limit, &key, &mut Reply { out: &mut out, protocol }).await;
            out
        });
    }
    let mut reply = Reply { out: turn.out, protocol };
    at_once(question.ask(resp, limit, key, &mut reply));
}

/// What is asked of a limit that came with a command, and how the answer reads.
#[derive(Clone, Copy)]
struct Question {
    name: &'static str,
    cost: u64,
    write: fn(&mut Reply<'_>, &Decision),
}

impl Question {
    async fn ask(self, resp: &Resp, limit: &Registered, key: &[u8], reply: &mut Reply<'_>) {
        let Self { name, cost, write } = self;
        match resp.service.check_with(FrontEnd::Resp, name, limit, key, cost).await {
            Ok(decision) => write(reply, &decision),
            Err(error) => reply.error(format_args!("TRYAGAIN {error}")),
        }
    }
}

#[cold]
fn cannot(turn: &mut Turn<'_>, unusable: &Unusable) {
    turn.refuse(format_args!("{unusable}"));
}

/// The wait of a request that was refused, if it is of any use.
fn waiting(decision: &Decision) -> Option<Duration> {
    decision.retry.after().filter(|_| !decision.allowed)
}

/// A number that is at least so large, and not the largest there is.
#[inline]
fn number(turn: &mut Turn<'_>, name: &str, text: &[u8], least: i64) -> Option<u64> {
    match integer(text) {
        Some(number) if number >= least && number < i64::MAX => Some(number.unsigned_abs()),
        _ => {
            no_number(turn, name, text, least);
            None
        }
    }
}

#[cold]
fn no_number(turn: &mut Turn<'_>, name: &str, text: &[u8], least: i64) {
    let (text, most) = (Quoted(text), i64::MAX - 1);
    turn.refuse(format_args!(
        "ERR {name} must be an integer between {least} and {most}, not '{text}'"
    ));
}

/// A time in seconds and parts of them, to the nearest nanosecond.
fn span(turn: &mut Turn<'_>, text: &[u8]) -> Option<Duration> {
    let seconds = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    if let Some(span) = span.filter(|span| !span.is_zero()) {
        return Some(span);
    }
    let text = Quoted(text);
    turn.refuse(format_args!("ERR period must be a number of seconds above 0, not '{text}'"));
    None
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Whole seconds, rounded up: who waits that long has waited long enough.
fn seconds(time: Duration) -> i64 {
    whole(time.as_secs()).saturating_add(i64::from(time.subsec_nanos() > 0))
}
