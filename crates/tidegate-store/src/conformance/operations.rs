//! What each operation does to one limit.

use tidegate_core::{Limit, LimitSpec, Rate, Refill, Retry};

use super::referee::{MICROSECOND, Referee, START, secs, whole_us};
use crate::store::{Call, Item, Op, Store};

/// Limits of four units that take very different states.
pub(super) fn fours() -> [(&'static str, LimitSpec); 7] {
    let rate = Rate::new(4, secs(10));
    [
        ("token bucket", Limit::token_bucket(rate)),
        ("interval bucket", Limit::token_bucket(rate).refill(Refill::Interval)),
        ("leaky queue", Limit::leaky_queue(rate, 3)),
        ("fixed window", Limit::fixed_window(rate)),
        ("sliding log", Limit::sliding_log(rate)),
        ("sliding counter", Limit::sliding_counter(rate)),
        ("concurrency", Limit::concurrency(4).lease(secs(10))),
    ]
}

/// A peek answers as a check would and changes nothing, and so does every call of cost 0.
pub async fn peek_changes_nothing<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "peek_changes_nothing");
    let key = referee.key("k");
    for (name, spec) in fours() {
        let limit = referee.limit(name, spec);
        let items = [Item::new(&key, &limit)];
        for _ in 0..3 {
            referee.peek(&items, 4, START).await.admitted().granted(4).remaining(&[4]);
            referee.peek(&items, 5, START).await.refused().granted(0).retry(&[Retry::Never]);
            for op in [Op::Check, Op::UpTo, Op::Force] {
                let call = Call::new(op, &items, 0, START);
                referee.apply(&call).await.admitted().granted(0).remaining(&[4]);
            }
        }
        referee.check(&items, 4, START).await.admitted().remaining(&[0]);
        let peeked = referee.apply(&Call::new(Op::Peek, &items, 1, START).held_by(1)).await;
        let refused = referee.apply(&Call::new(Op::Check, &items, 1, START).held_by(1)).await;
        referee.agree("peek and check", &peeked.decisions, &refused.decisions);
        referee.agree("peek and check", &peeked.outcome, &refused.outcome);
        // A key is not older for having been looked at.
        let last = [Item::new(&key, &limit)];
        let later = START + secs(5);
        referee.peek(&last, 0, later).await.admitted();
        referee.peek(&last, 0, START).await.admitted().remaining(&[0]);
    }
}

/// `UpTo` takes what there is, up to what was asked, and is refused when there is nothing.
pub async fn up_to_grants_what_fits<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "up_to_grants_what_fits");
    let key = referee.key("k");
    for (name, spec) in fours() {
        let limit = referee.limit(name, spec);
        let items = [Item::new(&key, &limit)];
        let up_to = |cost, holder| Call::new(Op::UpTo, &items, cost, START).held_by(holder);
        referee.apply(&up_to(3, 1)).await.admitted().granted(3).remaining(&[1]);
        referee.apply(&up_to(3, 2)).await.admitted().granted(1).remaining(&[0]);
        let nothing = referee.apply(&up_to(3, 3)).await.refused().granted(0).remaining(&[0]);
        // It says when there will be something.
        let wait = whole_us(nothing.decisions[0].retry.after().unwrap_or_default());
        let call = Call::new(Op::UpTo, &items, 1, START + wait).held_by(3);
        referee.apply(&call).await.admitted().granted(1);
    }
}

/// `Force` takes what there is not: a debt that has to be paid before anybody is admitted.
pub async fn force_makes_a_debt<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "force_makes_a_debt");
    let key = referee.key("k");
    for (name, spec) in fours() {
        let limit = referee.limit(name, spec);
        let items = [Item::new(&key, &limit)];
        let force = |cost, holder| Call::new(Op::Force, &items, cost, START).held_by(holder);
        referee.apply(&force(2, 1)).await.admitted().granted(2).remaining(&[2]);
        referee.apply(&force(5, 2)).await.admitted().granted(5).remaining(&[0]);
        let call = Call::new(Op::Check, &items, 1, START).held_by(3);
        let refused = referee.apply(&call).await.refused();
        let wait = whole_us(refused.decisions[0].retry.after().unwrap_or_default());
        let early = Call { now: START + (wait - MICROSECOND), ..call };
        referee.apply(&early).await.refused();
        referee.apply(&Call { now: START + wait, ..call }).await.admitted();
    }
    // A bucket owes three units of the seven beyond its four, at 2.5 seconds each.
    let limit = referee.limit("debt", Limit::token_bucket(Rate::new(4, secs(10))));
    let items = [Item::new(&key, &limit)];
    referee.apply(&Call::new(Op::Force, &items, 7, START)).await.remaining(&[0]);
    let refused = referee.check(&items, 1, START).await.refused();
    refused.retry(&[Retry::After(secs(10))]);
}

/// `Refund` gives back now, never beyond full, and nothing to a key that has used nothing.
pub async fn refund_gives_back_now<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "refund_gives_back_now");
    let (key, stranger) = (referee.key("k"), referee.key("stranger"));
    for (name, spec) in fours() {
        let limit = referee.limit(name, spec);
        let items = [Item::new(&key, &limit)];
        let refund = |cost| Call::new(Op::Refund, &items, cost, START);
        referee.check(&items, 4, START).await.admitted().remaining(&[0]);
        // Permits go by holder, not by number.
        let left = if limit.limit().is_concurrency() { 4 } else { 3 };
        referee.apply(&refund(3)).await.admitted().granted(3).remaining(&[left]);
        referee.apply(&refund(9)).await.remaining(&[4]);
        referee.apply(&refund(1)).await.remaining(&[4]);
        referee.check(&items, 5, START).await.refused();
        referee.check(&items, 4, START).await.admitted().remaining(&[0]);
        let unknown = [Item::new(&stranger, &limit)];
        referee.apply(&Call::new(Op::Refund, &unknown, 2, START)).await.remaining(&[4]);
        referee.check(&unknown, 4, START).await.admitted().remaining(&[0]);
    }
}

/// `Reset` forgets a key and no other.
pub async fn reset_forgets<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "reset_forgets");
    let (key, neighbour) = (referee.key("k"), referee.key("neighbour"));
    for (name, spec) in fours() {
        let limit = referee.limit(name, spec);
        let (items, others) = ([Item::new(&key, &limit)], [Item::new(&neighbour, &limit)]);
        referee.check(&items, 4, START).await.admitted();
        referee.check(&others, 3, START).await.admitted();
        referee.apply(&Call::new(Op::Force, &items, 9, START)).await.remaining(&[0]);
        referee.apply(&Call::new(Op::Reset, &items, 0, START)).await.admitted().remaining(&[4]);
        referee.check(&items, 4, START).await.admitted().remaining(&[0]);
        referee.peek(&others, 0, START).await.remaining(&[1]);
        referee.apply(&Call::new(Op::Reset, &others, 0, START)).await.remaining(&[4]);
        referee.apply(&Call::new(Op::Reset, &others, 0, START)).await.remaining(&[4]);
    }
}

/// `GiveBack` gives back what is left of a taking as of its own time: what time has paid for since
/// does not come back twice. Each item has its own taking, also when several count the same key.
pub async fn give_back_is_as_of_the_taking<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "give_back_is_as_of_the_taking");
    let (now, later) = (START + secs(1), START + secs(11));
    let left_later = |name: &str| match name {
        // Of 4 taken at 1 s, time has paid for everything by 11 s; then another 2 were taken.
        "token bucket" | "interval bucket" | "leaky queue" => 2,
        // The taking is out of the window, the other is not.
        "fixed window" | "sliding log" => 2,
        // The previous window's share would be 3.6 of 4, floored; given back, it is nothing.
        "sliding counter" => 4,
        // The lease has run out.
        _ => 2,
    };
    for (name, spec) in fours() {
        let key = referee.key(name);
        let limit = referee.limit(name, spec);
        let items = [Item::new(&key, &limit)];
        let check = |cost, now, holder| Call::new(Op::Check, &items, cost, now).held_by(holder);
        let first = referee.apply(&check(1, now, 1)).await.admitted().takings[0];
        let second = referee.apply(&check(2, now, 2)).await.admitted().takings[0];
        // A queue gives back its last slot and no other: the latest taking first.
        let both = [second, first];
        let reply = referee.give_back(&[items[0], items[0]], &both, now).await.admitted();
        reply.remaining(&[4, 4]);

        let old = referee.apply(&check(4, now, 3)).await.admitted().takings[0];
        let (op, cost) = match name {
            "sliding counter" => (Op::Peek, 0),
            _ => (Op::Check, 2),
        };
        let call = Call::new(op, &items, cost, later).held_by(4);
        referee.apply(&call).await.admitted();
        referee.give_back(&items, &[old], later).await.remaining(&[left_later(name)]);
    }
}
