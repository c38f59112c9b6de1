//! Clocks, calendars and keys: what a store must not mix up.

use tidegate_core::{Align, Limit, Rate, Retry, Timestamp, Windows};

use super::operations::fours;
use super::referee::{MICROSECOND, Referee, START, secs, whole_us};
use crate::store::{Call, Item, Op, Store};

/// A refusal names the first moment of success: a microsecond earlier is still too early.
pub async fn retry_is_exact<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "retry_is_exact");
    let key = referee.key("k");
    for (name, spec) in fours() {
        let limit = referee.limit(name, spec);
        let items = [Item::new(&key, &limit)];
        let call = |cost, now| Call::new(Op::Peek, &items, cost, now).held_by(9);
        let now = START + secs(3);
        referee.check(&items, 4, now).await.admitted();
        for cost in 1..=4 {
            let refused = referee.apply(&call(cost, now)).await.refused();
            let wait = whole_us(refused.decisions[0].retry.after().unwrap_or_default());
            referee.apply(&call(cost, now + (wait - MICROSECOND))).await.refused();
            referee.apply(&call(cost, now + wait)).await.admitted();
        }
        // And so does the time until nothing is used any more.
        let used = referee.apply(&call(0, now)).await.remaining(&[0]);
        let reset = whole_us(used.decisions[0].reset_after.unwrap_or_default());
        referee.apply(&call(4, now + (reset - MICROSECOND))).await.refused();
        referee.apply(&call(4, now + reset)).await.admitted().remaining(&[4]);
    }
}

/// A clock that goes back gives nothing away, and waits are told from the caller's own now.
pub async fn a_clock_going_back_gives_nothing<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "a_clock_going_back_gives_nothing");
    let key = referee.key("k");
    for (name, spec) in fours() {
        let limit = referee.limit(name, spec);
        let items = [Item::new(&key, &limit)];
        let call = |now| Call::new(Op::Check, &items, 1, now).held_by(9);
        referee.check(&items, 4, START + secs(15)).await.admitted().remaining(&[0]);
        for back in [14, 11, 8, 2] {
            let now = START + secs(back);
            let early = referee.apply(&call(now)).await.refused().remaining(&[0]);
            let wait = early.decisions[0].retry.after().unwrap_or_default();
            let then = referee.apply(&call(START + secs(15))).await.refused();
            let expected = then.decisions[0].retry.after().unwrap_or_default();
            // Later by as much as the clock is behind, so that both mean the same moment.
            referee.agree("wait", &wait, &(expected + secs(15 - back)));
        }
        // What is taken in the past counts in the present, and is no more than what was left.
        referee.apply(&Call::new(Op::Refund, &items, 4, START + secs(15))).await.remaining(&[4]);
        referee.check(&items, 2, START + secs(15)).await.admitted().remaining(&[2]);
        let up_to = Call::new(Op::UpTo, &items, 4, START + secs(12)).held_by(8);
        let past = referee.apply(&up_to).await;
        referee.agree("more than was left", &(past.outcome.granted > 2), &false);
        referee.apply(&call(START + secs(12))).await.refused();
        referee.peek(&items, 0, START + secs(15)).await.remaining(&[2 - past.outcome.granted]);
    }
}

/// A limit by the calendar counts in the window that the caller names, however long.
pub async fn calendar_windows_are_the_callers<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "calendar_windows_are_the_callers");
    let day = secs(86_400);
    let month = Limit::fixed_window(Rate::new(5, 30 * day)).align(Align::Calendar);
    let limit = referee.limit("month", month);
    let key = referee.key("k");
    // A month of 31 days, one of 28, and one of 31.
    let edges = [START, START + 31 * day, START + 59 * day, START + 90 * day];
    let windows = Windows { edges };
    let items = [Item { windows: Some(windows), ..Item::new(&key, &limit) }];
    let at = |days: u32| START + days * day;
    referee.check(&items, 4, at(30)).await.admitted().remaining(&[1]);
    let refused = referee.check(&items, 2, at(30)).await.refused();
    refused.retry(&[Retry::After(day)]);
    referee.check(&items, 5, at(31)).await.admitted().remaining(&[0]);
    let refused = referee.check(&items, 1, at(32)).await.refused();
    refused.retry(&[Retry::After(27 * day)]);
    // A clock in the month before counts in this one.
    referee.check(&items, 1, at(30)).await.refused().retry(&[Retry::After(29 * day)]);
    // The next caller is in the third month, and brings the fourth.
    let edges = [edges[1], edges[2], edges[3], START + 120 * day];
    let items = [Item { windows: Some(Windows { edges }), ..items[0] }];
    referee.check(&items, 5, at(59)).await.admitted().remaining(&[0]);
    referee.check(&items, 1, at(89)).await.refused().retry(&[Retry::After(day)]);
}

/// Different keys are different byte strings and different limits different ids: no pair of them
/// shares a counter with another, however they are spelled.
pub async fn keys_do_not_alias<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "keys_do_not_alias");
    let names = ["", "a", "b", "ab", "a:b", "a/b", "a\0b", "2:a", "{a}", "a\n"];
    let limits: Vec<_> = names
        .iter()
        .map(|name| referee.limit(name, Limit::token_bucket(Rate::per_hour(1))))
        .collect();
    // Keys that are spelled like ids, and others that no text can spell.
    let mut keys: Vec<Vec<u8>> = limits.iter().map(|limit| limit.id().into()).collect();
    keys.extend([vec![], vec![0], vec![0, 0], vec![0xff], vec![0xff, 0xfe], vec![b':']]);
    keys.extend([vec![b'x'; 5000], vec![b'x'; 5001]]);
    for expected in [true, false] {
        for limit in &limits {
            for key in &keys {
                let reply = referee.check(&[Item::new(key, limit)], 1, START).await;
                referee.agree("admitted", &reply.outcome.allowed, &expected);
            }
        }
    }
}

/// Times from the epoch to the end of the century are told apart to the microsecond.
pub async fn any_time_will_do<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "any_time_will_do");
    let starts = [0, 1, 86_400, 1_000_000_000, 4_102_444_800].map(Timestamp::from_secs);
    for (number, start) in starts.into_iter().enumerate() {
        for (name, spec) in fours() {
            let limit = referee.limit(name, spec);
            let key = referee.key(number);
            let items = [Item::new(&key, &limit)];
            referee.check(&items, 4, start).await.admitted().remaining(&[0]);
            let call = Call::new(Op::Check, &items, 1, start).held_by(9);
            let refused = referee.apply(&call).await.refused();
            let wait = whole_us(refused.decisions[0].retry.after().unwrap_or_default());
            let early = Call { now: start + (wait - MICROSECOND), ..call };
            referee.apply(&early).await.refused();
            referee.apply(&Call { now: start + wait, ..call }).await.admitted();
        }
    }
}
