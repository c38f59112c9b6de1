//! `TIDEGATE.CHECK` and `TIDEGATE.PEEK`: the limits that the rules have for a request.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate::rules::{Descriptor, Entry};
use tidegate::{DESCRIPTORS_MAX, Op, Query, Retry, Verdict};

use super::Resp;
use super::command::{Quoted, wrong_arity};
use super::parse::integer;
use super::pending::Kept;
use super::reply::Reply;
use super::session::Turn;
use crate::front_end::FrontEnd;
use crate::soon::at_once;

/// What stands between two descriptors.
const AND: &[u8] = b"AND";
/// What stands before the cost.
const COST: &[u8] = b"COST";
/// There is no such number: no limit, or no time at which anything changes.
const NONE: i64 = -1;
/// Nobody can tell when.
const UNKNOWN: i64 = -2;

/// `TIDEGATE.CHECK domain k v [k v …] [AND k v …] [COST n]`
pub(crate) fn check(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    ask(turn, "tidegate.check", Op::Check, arguments);
}

/// `TIDEGATE.PEEK`, which has the same arguments.
pub(crate) fn peek(turn: &mut Turn<'_>, arguments: &[&[u8]]) {
    ask(turn, "tidegate.peek", Op::Peek, arguments);
}

fn ask(turn: &mut Turn<'_>, name: &str, op: Op<'static>, arguments: &[&[u8]]) {
    let asked = match Asked::read(arguments) {
        Ok(asked) => asked,
        Err(Wrong::Arity) => return wrong_arity(turn, name),
        Err(Wrong::Other(text)) => return turn.refuse(format_args!("ERR {text}")),
        Err(Wrong::Cost(text)) => {
            let text = Quoted(text);
            return turn
                .refuse(format_args!("ERR COST must be an integer from 0 on, not '{text}'"));
        }
    };
    if turn.resp.waits {
        let (resp, protocol, kept) =
            (Arc::clone(turn.resp), turn.session.protocol, Kept::new(arguments));
        return turn.later(async move {
            let mut out = Vec::new();
            // It has been read before, and could be.
            if let Ok(asked) = Asked::read(&kept.words()) {
                decide(&resp, op, &asked, &mut Reply { out: &mut out, protocol }).await;
            }
            out
        });
    }
    let resp = turn.resp;
    let mut reply = turn.reply();
    at_once(decide(resp, op, &asked, &mut reply));
}

/// Asks the limits, and says what they said.
async fn decide(resp: &Resp, op: Op<'_>, asked: &Asked<'_>, reply: &mut Reply<'_>) {
    let mut start = 0;
    let descriptors: SmallVec<[Descriptor<'_>; 4]> = asked
        .ends
        .iter()
        .map(|end| Descriptor::new(&asked.entries[std::mem::replace(&mut start, *end)..*end]))
        .collect();
    let query = Query::new(asked.domain, &descriptors).cost(asked.cost);
    match resp.service.ask(FrontEnd::Resp, op, &query).await {
        Ok(verdict) if verdict.knows_domain => write(reply, &verdict),
        Ok(_) => {
            let domain = asked.domain;
            resp.refuse(reply, format_args!("NODOMAIN no rules for domain '{domain}'"));
        }
        Err(error) => reply.error(format_args!("TRYAGAIN {error}")),
    }
}

/// What a command asks for.
struct Asked<'a> {
    domain: &'a str,
    entries: SmallVec<[Entry<'a>; 8]>,
    /// Where each descriptor ends among the entries.
    ends: SmallVec<[usize; 8]>,
    cost: u64,
}

enum Wrong<'a> {
    Arity,
    Cost(&'a [u8]),
    Other(&'static str),
}

impl<'a> Asked<'a> {
    fn read(arguments: &[&'a [u8]]) -> Result<Self, Wrong<'a>> {
        let (mut entries, mut ends) =
            (SmallVec::<[Entry<'a>; 8]>::new(), SmallVec::<[usize; 8]>::new());
        let (domain, mut rest) = arguments.split_first().ok_or(Wrong::Arity)?;
        let mut cost = 1;
        let mut start = 0;
        while !rest.is_empty() {
            rest = match rest {
                [word, more @ ..] if *word == AND => {
                    if entries.len() == start {
                        return Err(Wrong::Other("AND needs a key and a value before it"));
                    }
                    start = entries.len();
                    ends.push(start);
                    more
                }
                [word, given] if *word == COST => {
                    let given_cost = integer(given).and_then(|cost| u64::try_from(cost).ok());
                    cost = given_cost.ok_or(Wrong::Cost(given))?;
                    &[]
                }
                [word, ..] if *word == COST => {
                    return Err(Wrong::Other("COST and its number stand at the end"));
                }
                [key, value, more @ ..] => {
                    entries.push(Entry::new(text(key)?, text(value)?));
                    more
                }
                _ => return Err(Wrong::Other("a key has no value")),
            };
        }
        if entries.len() == start {
            return Err(Wrong::Other("a descriptor needs a key and a value"));
        }
        ends.push(entries.len());
        if ends.len() > DESCRIPTORS_MAX {
            return Err(Wrong::Other("too many descriptors in one request"));
        }
        Ok(Self { domain: text(domain)?, entries, ends, cost })
    }
}

fn text<'a>(bytes: &'a [u8]) -> Result<&'a str, Wrong<'a>> {
    std::str::from_utf8(bytes).map_err(|_| Wrong::Other("domain, keys and values have to be UTF-8"))
}

/// Allowed, limit, remaining, retry, reset, rule.
fn write(reply: &mut Reply<'_>, verdict: &Verdict) {
    reply.array(6);
    reply.integer(i64::from(verdict.allowed));
    let Some(decision) = &verdict.decision else {
        // No limit, or only such that watch.
        for number in [NONE, NONE, 0, 0] {
            reply.integer(number);
        }
        return reply.null();
    };
    reply.integer(whole(decision.limit.into()));
    reply.integer(whole(decision.remaining.into()));
    reply.integer(match decision.retry {
        // How long to hold it, where the limit is one that holds.
        Retry::Now => millis(decision.delay),
        Retry::After(wait) => millis(wait),
        Retry::Never => NONE,
        Retry::Unknown => UNKNOWN,
    });
    reply.integer(decision.reset_after.map_or(UNKNOWN, millis));
    match verdict.reported() {
        Some(reported) => reply.bulk(verdict.rule_id(reported).as_bytes()),
        None => reply.null(),
    }
}

fn whole(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Whole milliseconds, rounded up: who waits that long has waited long enough.
fn millis(time: Duration) -> i64 {
    whole(time.as_nanos().div_ceil(1_000_000))
}
