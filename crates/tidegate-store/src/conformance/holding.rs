//! Permits and reservations: what is held for a while.

use std::time::Duration;

use tidegate_core::{Limit, Rate, Retry};

use super::referee::{Referee, START, ms, secs};
use crate::store::{Call, Item, Mode, Op, Store};

/// Permits belong to a holder, who renews them by asking again and releases them all at once.
pub async fn permits_belong_to_holders<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "permits_belong_to_holders");
    let limit = referee.limit("limit", Limit::concurrency(5).lease(secs(10)));
    let key = referee.key("k");
    let items = [Item::new(&key, &limit)];
    let call = |op, cost, now, holder| Call::new(op, &items, cost, now).held_by(holder);
    referee.apply(&call(Op::Check, 3, START, 1)).await.admitted().remaining(&[2]);
    let refused = referee.apply(&call(Op::Check, 3, START + secs(1), 2)).await.refused();
    refused.retry(&[Retry::After(secs(9))]);
    referee.apply(&call(Op::Check, 2, START + secs(1), 2)).await.admitted().remaining(&[0]);

    // The same holder again: not three more, but three for longer.
    referee.apply(&call(Op::Check, 3, START + secs(5), 1)).await.admitted().remaining(&[0]);
    let refused = referee.apply(&call(Op::Check, 1, START + secs(5), 3)).await.refused();
    refused.retry(&[Retry::After(secs(6))]);
    // As many as it may have, its own included.
    let call_up_to = call(Op::UpTo, 9, START + secs(5), 1);
    referee.apply(&call_up_to).await.admitted().granted(3).remaining(&[0]);

    referee.apply(&call(Op::Refund, 1, START + secs(6), 1)).await.remaining(&[3]);
    referee.apply(&call(Op::Refund, 1, START + secs(6), 1)).await.remaining(&[3]);
    referee.apply(&call(Op::Refund, 1, START + secs(6), 99)).await.remaining(&[3]);
    referee.apply(&call(Op::Check, 3, START + secs(6), 3)).await.admitted().remaining(&[0]);

    // Those of the second have ended by then, those of the third have not.
    referee.apply(&call(Op::Peek, 2, START + secs(11), 4)).await.admitted().remaining(&[2]);
    referee.apply(&call(Op::Peek, 3, START + secs(11), 4)).await.refused();
    referee.apply(&call(Op::Peek, 5, START + secs(16), 4)).await.admitted().remaining(&[5]);
}

/// Permits without a lease last until they are given back, and nobody can say when that will be.
pub async fn permits_without_lease_last<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "permits_without_lease_last");
    let limit = referee.limit("limit", Limit::concurrency(2).without_lease());
    let key = referee.key("k");
    let items = [Item::new(&key, &limit)];
    let call = |op, cost, now, holder| Call::new(op, &items, cost, now).held_by(holder);
    referee.apply(&call(Op::Check, 2, START, 1)).await.admitted();
    let year = secs(365 * 86_400);
    let refused = referee.apply(&call(Op::Check, 1, START + year, 2)).await.refused();
    let refused = refused.retry(&[Retry::Unknown]);
    referee.agree("reset_after", &refused.decisions[0].reset_after, &None);
    let refused = referee.apply(&call(Op::Check, 3, START + year, 2)).await.refused();
    refused.retry(&[Retry::Never]);
    referee.apply(&call(Op::Refund, 2, START + year, 1)).await.remaining(&[2]);
    referee.apply(&call(Op::Check, 1, START + year, 2)).await.admitted().remaining(&[1]);
}

/// A permit and a rate in one call: both or neither.
pub async fn permits_join_other_limits<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "permits_join_other_limits");
    let permits = referee.limit("permits", Limit::concurrency(3).lease(secs(60)));
    let rate = referee.limit("rate", Limit::token_bucket(Rate::per_minute(2)));
    let key = referee.key("k");
    let items = [Item::new(&key, &permits), Item::new(&key, &rate)];
    let call = |op, holder| Call::new(op, &items, 1, START).held_by(holder);
    referee.apply(&call(Op::Check, 1)).await.admitted().remaining(&[2, 1]);
    referee.apply(&call(Op::Check, 2)).await.admitted().remaining(&[1, 0]);
    let refused = referee.apply(&call(Op::Check, 3)).await.refused();
    refused.opinions(&[true, false]).remaining(&[1, 0]);
    // The permit goes back, the unit of the rate stays used.
    referee.apply(&Call { items: &items[..1], ..call(Op::Refund, 2) }).await.remaining(&[2]);
    referee.apply(&call(Op::Peek, 4)).await.refused().remaining(&[2, 0]);
}

const TTL: Duration = secs(30);

/// A reservation takes like a check, once for each id, and a refused one leaves nothing behind.
pub async fn reservations_take_once<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "reservations_take_once");
    let limit = referee.limit("limit", Limit::fixed_window(Rate::per_minute(10)));
    let key = referee.key("k");
    let items = [Item::new(&key, &limit)];
    let call = Call::new(Op::Check, &items, 4, START);
    let (first, second) = (referee.id(1), referee.id(2));
    referee.reserve(&call, first, TTL).await.admitted().granted(4).remaining(&[6]);
    for _ in 0..3 {
        let again = referee.reserve(&call, first, TTL).await;
        again.admitted().granted(4).remaining(&[6]);
    }
    let large = Call { cost: 7, ..call };
    referee.reserve(&large, second, TTL).await.refused().granted(0).remaining(&[6]);
    referee.settles(second, 0, START, false).await;
    // The same id may try again, and then it counts.
    let small = Call { cost: 6, ..call };
    referee.reserve(&small, second, TTL).await.admitted().granted(6).remaining(&[0]);
}

/// Settling brings what was reserved to the real cost, once: less goes back, more becomes a debt,
/// zero cancels.
pub async fn settling_brings_to_the_real_cost<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "settling_brings_to_the_real_cost");
    let window = referee.limit("window", Limit::fixed_window(Rate::per_minute(10)));
    let bucket = referee.limit("bucket", Limit::token_bucket(Rate::per_minute(60)));
    let key = referee.key("k");
    let items = [Item::new(&key, &window), Item { factor: 3, ..Item::new(&key, &bucket) }];
    for (number, (cost, left)) in
        [(2, [8, 54]), (5, [5, 45]), (0, [10, 60]), (7, [3, 39]), (12, [0, 24])].iter().enumerate()
    {
        let id = referee.id(number as u64);
        let call = Call::new(Op::Check, &items, 5, START);
        referee.reserve(&call, id, TTL).await.admitted().remaining(&[5, 45]);
        referee.settles(id, *cost, START, true).await;
        referee.peek(&items, 0, START).await.remaining(left);
        referee.settles(id, 0, START, false).await;
        referee.peek(&items, 0, START).await.remaining(left);
        referee.apply(&Call::new(Op::Reset, &items, 0, START)).await;
    }
    referee.settles(referee.id(77), 1, START, false).await;

    // The cost may be unknown until the end.
    let id = referee.id(99);
    let call = Call::new(Op::Check, &items, 0, START);
    referee.reserve(&call, id, TTL).await.admitted().granted(0).remaining(&[10, 60]);
    referee.settles(id, 4, START, true).await;
    referee.peek(&items, 0, START).await.remaining(&[6, 48]);
}

/// What goes back goes back as of the time it was taken: time pays once.
pub async fn settling_later_gives_back_what_is_left<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "settling_later_gives_back_what_is_left");
    let bucket = referee.limit("bucket", Limit::token_bucket(Rate::per_minute(60)));
    let window = referee.limit("window", Limit::fixed_window(Rate::new(50, secs(10))));
    let key = referee.key("k");
    let items = [Item::new(&key, &bucket), Item::new(&key, &window)];
    let (id, later) = (referee.id(1), START + secs(25));
    let call = Call::new(Op::Check, &items, 30, START);
    referee.reserve(&call, id, TTL).await.admitted().remaining(&[30, 20]);
    referee.check(&items, 20, later).await.admitted().remaining(&[35, 30]);
    // Of the bucket's 30, time has paid for 25; the window that they were in is over.
    referee.settles(id, 0, later, true).await;
    referee.peek(&items, 0, later).await.remaining(&[40, 30]);
}

/// Past its time a reservation is gone, and what it took stays taken.
pub async fn reservations_end<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "reservations_end");
    let limit = referee.limit("limit", Limit::fixed_window(Rate::per_hour(10)));
    let key = referee.key("k");
    let items = [Item::new(&key, &limit)];
    let (kept, lost) = (referee.id(1), referee.id(2));
    let call = Call::new(Op::Check, &items, 4, START);
    referee.reserve(&call, kept, TTL).await.admitted();
    referee.reserve(&call, lost, TTL).await.admitted().remaining(&[2]);
    let (in_time, late) = (START + (TTL - ms(1)), START + (TTL + ms(1)));
    referee.settles(kept, 1, in_time, true).await;
    referee.settles(lost, 1, late, false).await;
    referee.peek(&items, 0, late).await.remaining(&[5]);
    // Its id is free again.
    let call = Call { cost: 1, now: late, ..call };
    referee.reserve(&call, lost, TTL).await.admitted().remaining(&[4]);
    referee.settles(lost, 0, late, true).await;
    referee.peek(&items, 0, late).await.remaining(&[5]);
}

/// A reservation settles only what it took: of a limit in shadow that did not admit, nothing, and
/// of equal items the sum.
pub async fn reservations_settle_what_they_took<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "reservations_settle_what_they_took");
    let real = referee.limit("real", Limit::fixed_window(Rate::per_hour(20)));
    let trial = referee.limit("trial", Limit::fixed_window(Rate::per_hour(3)));
    let key = referee.key("k");
    let item = Item::new(&key, &real);
    let watcher = Item { mode: Mode::Shadow, ..Item::new(&key, &trial) };
    let items = [item, watcher, Item { factor: 2, ..item }];
    let id = referee.id(1);
    let call = Call::new(Op::Check, &items, 4, START);
    let reply = referee.reserve(&call, id, TTL).await.admitted();
    reply.opinions(&[true, false, true]).remaining(&[8, 3, 8]);
    referee.settles(id, 1, START, true).await;
    referee.peek(&items, 0, START).await.remaining(&[17, 3, 17]);
}

/// Reserved permits are held by the call's holder; settling sets how many.
pub async fn reserved_permits_are_set<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "reserved_permits_are_set");
    let limit = referee.limit("limit", Limit::concurrency(10).lease(secs(60)));
    let key = referee.key("k");
    let items = [Item::new(&key, &limit)];
    for (number, (cost, left)) in [(4, 6), (1, 9), (0, 10), (7, 3), (12, 0)].iter().enumerate() {
        let (id, holder) = (referee.id(number as u64), number as u128);
        let call = Call::new(Op::Check, &items, 4, START).held_by(holder);
        referee.reserve(&call, id, TTL).await.admitted().remaining(&[6]);
        referee.settles(id, *cost, START, true).await;
        referee.peek(&items, 0, START).await.remaining(&[*left]);
        referee.apply(&Call { op: Op::Refund, ..call }).await.remaining(&[10]);
    }
}
