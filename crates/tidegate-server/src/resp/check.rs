//! `TIDEGATE.CHECK` and `TIDEGATE.PEEK`: the limits that the rules have for a request.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate::rules::{Descriptor, Entry};
use tidegate::{DESCRIPTORS_MAX, Op, Query, Retry, Verdict};

use super::command::{Quoted, wrong_arity};
use super::parse::integer;
use super::reply::Reply;
use super::session::Turn;
use crate::front_end::FrontEnd;

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

fn ask(turn: &mut Turn<'_>, name: &str, op: Op<'_>, arguments: &[&[u8]]) {
    let mut entries: SmallVec<[Entry<'_>; 8]> = SmallVec::new();
    let mut ends: SmallVec<[usize; 8]> = SmallVec::new();
    let (domain, cost) = match read(arguments, &mut entries, &mut ends) {
        Ok(read) => read,
        Err(Wrong::Arity) => return wrong_arity(turn, name),
        Err(Wrong::Other(text)) => return turn.refuse(format_args!("ERR {text}")),
        Err(Wrong::Cost(text)) => {
            let text = Quoted(text);
            return turn
                .refuse(format_args!("ERR COST must be an integer from 0 on, not '{text}'"));
        }
    };
    let mut start = 0;
    let descriptors: SmallVec<[Descriptor<'_>; 4]> = ends
        .iter()
        .map(|end| Descriptor::new(&entries[std::mem::replace(&mut start, *end)..*end]))
        .collect();
    let query = Query::new(domain, &descriptors).cost(cost);
    let verdict = turn.resp.service.ask(FrontEnd::Resp, op, &query);
    if !verdict.knows_domain {
        return turn.refuse(format_args!("NODOMAIN no rules for domain '{domain}'"));
    }
    write(&mut turn.reply(), &verdict);
}

enum Wrong<'a> {
    Arity,
    Cost(&'a [u8]),
    Other(&'static str),
}

/// The domain and the cost; entries and where each descriptor ends among them go where told.
fn read<'a>(
    arguments: &[&'a [u8]],
    entries: &mut SmallVec<[Entry<'a>; 8]>,
    ends: &mut SmallVec<[usize; 8]>,
) -> Result<(&'a str, u64), Wrong<'a>> {
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
    Ok((text(domain)?, cost))
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
