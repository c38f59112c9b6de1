//! What several limits mean together.

use tidegate_core::{Limit, Rate, Retry, Source};

use super::referee::{Referee, START, secs};
use crate::store::{Call, Item, Mode, Op, Store};

/// A request consumes from all of its limits or from none, in whatever order they are named, and
/// each limit still gives its own opinion.
pub async fn all_or_nothing<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "all_or_nothing");
    let wide = referee.limit("wide", Limit::fixed_window(Rate::per_minute(5)));
    let bucket = referee.limit("bucket", Limit::token_bucket(Rate::per_minute(3)));
    let log = referee.limit("log", Limit::sliding_log(Rate::per_minute(4)));
    let (user, address) = (referee.key("user"), referee.key("address"));
    let items = [Item::new(&user, &wide), Item::new(&address, &bucket), Item::new(&user, &log)];
    referee.check(&items, 2, START).await.admitted().granted(2).remaining(&[3, 1, 2]);

    let turned = [items[2], items[1], items[0]];
    for _ in 0..3 {
        let refused = referee.check(&items, 2, START).await.refused().granted(0);
        refused.opinions(&[true, false, true]).remaining(&[3, 1, 2]);
        let refused = referee.check(&turned, 2, START).await.refused().granted(0);
        refused.opinions(&[true, false, true]).remaining(&[2, 1, 3]);
    }
    let retry = [Retry::Now, Retry::After(secs(20)), Retry::Now];
    referee.check(&items, 2, START).await.refused().retry(&retry);
    referee.check(&items, 1, START).await.admitted().remaining(&[2, 0, 1]);
    // Two refuse: one for a while, one for longer.
    let refused = referee.check(&items, 2, START).await.refused();
    refused.retry(&[Retry::Now, Retry::After(secs(40)), Retry::After(secs(60))]);
}

/// A call that names no limit is admitted in full.
pub async fn no_limit_admits<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "no_limit_admits");
    referee.check(&[], 7, START).await.admitted().granted(7);
    referee.apply(&Call::new(Op::UpTo, &[], 7, START)).await.admitted().granted(7);
}

/// A limit with `count_rejected` counts what is refused, by itself or by another limit; all others
/// consume nothing.
pub async fn refusals_count_where_the_limit_says_so<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "refusals_count_where_the_limit_says_so");
    let plain = referee.limit("plain", Limit::sliding_log(Rate::new(2, secs(10))));
    let strict = Limit::sliding_log(Rate::new(2, secs(10))).count_rejected();
    let strict = referee.limit("strict", strict);
    let key = referee.key("hasty");
    for (limit, admitted) in [(&plain, true), (&strict, false)] {
        let items = [Item::new(&key, limit)];
        referee.check(&items, 2, START).await.admitted();
        referee.check(&items, 1, START + secs(9)).await.refused();
        // The first two have left the window; the refused one is in it, or never was.
        let reply = referee.check(&items, 2, START + secs(10)).await;
        referee.agree("admitted", &reply.outcome.allowed, &admitted);
    }

    let window = Limit::fixed_window(Rate::per_minute(9)).count_rejected();
    let (window, small) = (
        referee.limit("window", window),
        referee.limit("small", Limit::fixed_window(Rate::per_minute(1))),
    );
    let both = [Item::new(&key, &window), Item::new(&key, &small)];
    // Refused by the other limit only: counted all the same, and its own opinion is yes.
    let refused = referee.check(&both, 2, START).await.refused().opinions(&[true, false]);
    refused.remaining(&[7, 1]).retry(&[Retry::Now, Retry::Never]);
    // Counted beyond the limit: the window is lost, and no more than that.
    referee.check(&both[..1], 9, START).await.refused().remaining(&[0]);
    referee.check(&both[..1], 9, START + secs(60)).await.admitted().remaining(&[0]);
}

/// A limit in shadow refuses nobody; it consumes what it would have admitted and nothing else, and
/// says that it is in shadow.
pub async fn shadow_only_watches<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "shadow_only_watches");
    let real = referee.limit("real", Limit::fixed_window(Rate::per_minute(10)));
    let trial = referee.limit("trial", Limit::fixed_window(Rate::per_minute(3)));
    let key = referee.key("k");
    let items = [Item { mode: Mode::Shadow, ..Item::new(&key, &trial) }, Item::new(&key, &real)];
    referee.check(&items, 2, START).await.admitted().opinions(&[true, true]).remaining(&[1, 8]);
    let reply = referee.check(&items, 2, START).await.admitted();
    let reply = reply.opinions(&[false, true]).remaining(&[1, 6]);
    let sources: Vec<Source> = reply.decisions.iter().map(|decision| decision.source).collect();
    referee.agree("sources", &*sources, &[Source::Shadow, Source::Store]);
    // It does not hold back what is granted either.
    let call = Call::new(Op::UpTo, &items, 9, START);
    referee.apply(&call).await.admitted().granted(6).remaining(&[1, 0]);
    // A request that is refused consumes from it as little as from any other.
    referee.check(&items, 1, START).await.refused().opinions(&[true, false]).remaining(&[1, 0]);
    let alone = [items[0]];
    referee.check(&alone, 1, START).await.admitted().granted(1).remaining(&[0]);
    referee.check(&alone, 1, START).await.admitted().granted(1).opinions(&[false]);
    for op in [Op::Force, Op::Refund, Op::Reset] {
        let reply = referee.apply(&Call::new(op, &alone, 1, START)).await;
        referee.agree("source", &reply.decisions[0].source, &Source::Shadow);
    }
}

/// Quota limits refuse only all together; those that admit consume. An enforced limit beside them
/// still has the last word.
pub async fn quotas_refuse_together<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "quotas_refuse_together");
    let bought = referee.limit("bought", Limit::fixed_window(Rate::per_minute(2)));
    let given = referee.limit("given", Limit::fixed_window(Rate::per_minute(4)));
    let total = referee.limit("total", Limit::fixed_window(Rate::per_minute(5)));
    let key = referee.key("k");
    let quota = |number, limit| Item { mode: Mode::Quota(number), ..Item::new(&key, limit) };
    let items = [quota(0, &bought), quota(1, &given), Item::new(&key, &total)];
    referee.check(&items, 2, START).await.admitted().remaining(&[0, 2, 3]);
    let reply = referee.check(&items, 2, START).await.admitted();
    reply.opinions(&[false, true, true]).remaining(&[0, 0, 1]);
    let refused = referee.check(&items, 1, START).await.refused();
    refused.opinions(&[false, false, true]).remaining(&[0, 0, 1]);

    // As much as the best of them admits, the enforced limit permitting.
    referee.apply(&Call::new(Op::Reset, &items, 0, START)).await;
    referee.check(&items[..1], 2, START).await.admitted().remaining(&[0]);
    let call = Call::new(Op::UpTo, &items, 9, START);
    referee.apply(&call).await.admitted().granted(4).remaining(&[0, 0, 1]);
    referee.apply(&call).await.refused().granted(0).remaining(&[0, 0, 1]);

    // Limits of one quota are one: if one of them refuses, the quota does.
    let items = [quota(0, &bought), quota(0, &given)];
    referee.apply(&Call::new(Op::Reset, &items, 0, START)).await;
    referee.check(&items, 2, START).await.admitted().remaining(&[0, 2]);
    referee.check(&items, 1, START).await.refused().opinions(&[false, true]).remaining(&[0, 2]);
    let call = Call::new(Op::UpTo, &items, 9, START);
    referee.apply(&call).await.refused().granted(0);
}

/// Items that count the same key under the same limit add up before anything is decided, whatever
/// their modes; the key under another limit is another counter.
pub async fn equal_items_add_up<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "equal_items_add_up");
    let limit = referee.limit("limit", Limit::token_bucket(Rate::per_minute(5)));
    let other = referee.limit("other", Limit::token_bucket(Rate::per_minute(5)));
    let (key, same_key) = (referee.key("k"), referee.key("k"));
    let item = Item::new(&key, &limit);
    let twice = [item, Item::new(&key, &other), Item::new(&same_key, &limit)];
    referee.check(&twice, 3, START).await.refused().opinions(&[false, true, false]);
    let reply = referee.check(&twice, 2, START).await.admitted().remaining(&[1, 3, 1]);
    let taken: Vec<u64> = reply.takings.iter().map(|taking| taking.store.cost).collect();
    referee.agree("taken", &*taken, &[4, 2, 0]);
    // What was taken together goes back together.
    referee.give_back(&twice, &reply.takings, START).await.remaining(&[5, 5, 5]);

    let watcher = Item { mode: Mode::Shadow, ..item };
    for items in [[watcher, item], [item, watcher]] {
        let call = Call::new(Op::UpTo, &items, 10, START);
        referee.apply(&call).await.admitted().granted(2).remaining(&[1, 1]);
        referee.apply(&Call::new(Op::Refund, &items, 2, START)).await.remaining(&[5, 5]);
    }
}

/// A factor multiplies the cost for one limit; a factor of zero asks nothing of it.
pub async fn factors_multiply<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "factors_multiply");
    let requests = referee.limit("requests", Limit::fixed_window(Rate::per_minute(10)));
    let bytes = referee.limit("bytes", Limit::token_bucket(Rate::per_minute(2000)));
    let key = referee.key("k");
    let items = [Item::new(&key, &requests), Item { factor: 512, ..Item::new(&key, &bytes) }];
    referee.check(&items, 3, START).await.admitted().remaining(&[7, 464]);
    referee.check(&items, 1, START).await.refused().remaining(&[7, 464]);
    let free = [items[0], Item { factor: 0, ..items[1] }];
    referee.check(&free, 1, START).await.admitted().remaining(&[6, 464]);
    referee.apply(&Call::new(Op::Refund, &items, 1, START)).await.remaining(&[7, 976]);
    let call = Call::new(Op::UpTo, &items, 100, START);
    referee.apply(&call).await.admitted().granted(1).remaining(&[6, 464]);
}

/// No product of cost and factor is too large to be refused, and none comes out as an admission.
pub async fn huge_costs_are_refused<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "huge_costs_are_refused");
    let specs = [
        ("bucket", Limit::token_bucket(Rate::per_second(10))),
        ("window", Limit::fixed_window(Rate::per_second(10))),
        ("log", Limit::sliding_log(Rate::per_second(10))),
        ("counter", Limit::sliding_counter(Rate::per_second(10))),
        ("permits", Limit::concurrency(10)),
    ];
    let key = referee.key("k");
    for (name, spec) in specs {
        let limit = referee.limit(name, spec);
        let plain = Item::new(&key, &limit);
        for (factor, cost) in [(1, u64::MAX), (u64::MAX, 2), (u64::MAX, u64::MAX), (1 << 63, 2)] {
            let items = [Item { factor, ..plain }];
            referee.check(&items, cost, START).await.refused().retry(&[Retry::Never]);
        }
        let twice = [plain, plain];
        referee.check(&twice, u64::MAX, START).await.refused().remaining(&[10, 10]);
        // All that there is.
        let call = Call::new(Op::UpTo, &twice, u64::MAX, START);
        referee.apply(&call).await.admitted().granted(5).remaining(&[0, 0]);
    }
}
