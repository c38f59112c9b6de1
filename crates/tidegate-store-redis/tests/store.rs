//! The store as a whole on a real Redis: shared by several, refusals remembered, Redis gone and back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use support::Server;
use tidegate_core::{Decision, Inherit, Limit, LimitSpec, Rate, Source, Timestamp};
use tidegate_store::{Answer, Call, Item, OnError, Op, Outcome, Registered, Store as _};
use tidegate_store_redis::{RedisOptions, RedisStore};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
/// For whatever has to come about sooner or later.
const PATIENCE: Duration = Duration::from_secs(20);

/// A store that waits for a busy machine, and believes refusals for long.
async fn open_with(server: &Server, change: impl FnOnce(&mut RedisOptions)) -> RedisStore {
    let mut options = RedisOptions::new(server.url().parse().unwrap());
    options.deadline = Duration::from_secs(10);
    options.denial_max_age = Duration::from_secs(600);
    change(&mut options);
    let store = RedisStore::open(options).await.unwrap();
    assert!(store.wait_ready(PATIENCE).await, "{:?}", store.stats());
    store
}

async fn open(server: &Server) -> RedisStore {
    open_with(server, |_| {}).await
}

fn register(store: &RedisStore, id: &str, spec: LimitSpec) -> Arc<Registered> {
    store.register(id, spec.build().unwrap(), Inherit::Used).unwrap()
}

async fn ask(
    store: &RedisStore,
    op: Op<'_>,
    items: &[Item<'_>],
    cost: u64,
) -> (Outcome, Vec<Decision>) {
    let mut answers = vec![Answer::default(); items.len()];
    let outcome = store.apply(&Call::new(op, items, cost, NOW), &mut answers).await.unwrap();
    (outcome, answers.iter().map(|answer| answer.decision).collect())
}

async fn check(store: &RedisStore, item: Item<'_>, cost: u64) -> Decision {
    ask(store, Op::Check, &[item], cost).await.1[0]
}

/// How many checks Redis was asked. (It is asked other things too, such as who is there.)
fn asked(store: &RedisStore) -> u64 {
    let stats = store.stats();
    let check = stats.seconds.iter().find(|timing| timing.op == "check");
    check.map_or(0, |check| check.classes.iter().map(|(_, count)| count).sum())
}

/// Asks until it is so.
async fn until(mut is_so: impl AsyncFnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "{what} does not come about");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn several_stores_admit_together_what_one_would() {
    let server = Server::redis();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let store = open(&server).await;
        let limits = [
            register(&store, "bucket", Limit::per_day(100)),
            register(&store, "window", Limit::fixed_window(Rate::per_day(130))),
            register(&store, "log", Limit::sliding_log(Rate::per_day(150))),
        ];
        for _ in 0..60 {
            let (store, limits) = (store.clone(), limits.clone());
            tasks.push(tokio::spawn(async move {
                let items = limits.each_ref().map(|limit| Item::new(b"key", limit));
                ask(&store, Op::Check, &items, 1).await.0.allowed
            }));
        }
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += u64::from(task.await.unwrap());
    }
    assert_eq!(admitted, 100);
    let store = open(&server).await;
    let window = register(&store, "window", Limit::fixed_window(Rate::per_day(130)));
    let (_, decisions) = ask(&store, Op::Peek, &[Item::new(b"key", &window)], 1).await;
    assert_eq!(decisions[0].remaining, 30, "what was refused took nothing elsewhere");
}

#[tokio::test]
async fn a_refusal_that_holds_costs_redis_nothing() {
    let server = Server::redis();
    let store = open(&server).await;
    let limit = register(&store, "limit", Limit::per_day(10));
    let item = Item::new(b"key", &limit);
    assert!(check(&store, item, 8).await.allowed);
    let refused = check(&store, item, 5).await;
    assert_eq!((refused.allowed, refused.source, refused.remaining), (false, Source::Store, 2));
    let before = asked(&store);
    for cost in [5, 3, 10, 11] {
        let refused = check(&store, item, cost).await;
        assert_eq!((refused.allowed, refused.source), (false, Source::DenialCache), "{cost}");
        assert_eq!(refused.remaining, 2);
    }
    let stats = store.stats();
    assert_eq!((asked(&store), stats.denial_hits, stats.denial_entries), (before, 4, 1));
    // What there is room for is never refused by it.
    let admitted = check(&store, item, 2).await;
    assert_eq!((admitted.allowed, admitted.source), (true, Source::Store));
    // Other keys have nothing to do with it.
    assert!(check(&store, Item { key: b"other", ..item }, 10).await.allowed);
}

#[tokio::test]
async fn limits_that_were_not_asked_say_so() {
    let server = Server::redis();
    let store = open(&server).await;
    let (tight, wide) =
        (register(&store, "tight", Limit::per_day(1)), register(&store, "wide", Limit::per_day(9)));
    let items = [Item::new(b"key", &wide), Item::new(b"key", &tight)];
    assert!(ask(&store, Op::Check, &items, 1).await.0.allowed);
    assert!(!ask(&store, Op::Check, &items, 1).await.0.allowed);
    let (outcome, decisions) = ask(&store, Op::Check, &items, 1).await;
    assert!(!outcome.allowed);
    assert!(decisions[0].is_unasked());
    assert_eq!((decisions[1].allowed, decisions[1].source), (false, Source::DenialCache));
    // By itself the wide one is asked, and has lost nothing.
    assert_eq!(check(&store, items[0], 1).await.remaining, 7);
}

#[tokio::test]
async fn what_is_given_back_or_changed_ends_a_refusal() {
    let server = Server::redis();
    let store = open(&server).await;
    let limit = register(&store, "limit", Limit::per_day(2));
    let item = Item::new(b"key", &limit);
    let fill = async || {
        ask(&store, Op::Force, &[item], 2).await;
        assert_eq!(check(&store, item, 1).await.source, Source::Store);
        assert_eq!(check(&store, item, 1).await.source, Source::DenialCache);
    };
    fill().await;
    ask(&store, Op::Reset, &[item], 1).await;
    assert!(check(&store, item, 2).await.allowed);
    ask(&store, Op::Reset, &[item], 1).await;
    fill().await;
    ask(&store, Op::Refund, &[item], 1).await;
    assert!(check(&store, item, 1).await.allowed);
    ask(&store, Op::Reset, &[item], 1).await;
    fill().await;
    // The same limit with another number keeps what was used, and is asked.
    let raised = register(&store, "limit", Limit::per_day(5));
    let decision = check(&store, Item::new(b"key", &raised), 1).await;
    assert_eq!((decision.allowed, decision.source, decision.remaining), (true, Source::Store, 2));
    assert_eq!(store.stats().carried_over, 1);
}

#[tokio::test]
async fn what_another_gives_back_is_seen_when_refusals_are_old() {
    let server = Server::redis();
    let store =
        open_with(&server, |options| options.denial_max_age = Duration::from_millis(20)).await;
    let other = open(&server).await;
    let (here, there) = (
        register(&store, "limit", Limit::per_day(1)),
        register(&other, "limit", Limit::per_day(1)),
    );
    assert!(check(&store, Item::new(b"key", &here), 1).await.allowed);
    assert!(!check(&store, Item::new(b"key", &here), 1).await.allowed);
    ask(&other, Op::Refund, &[Item::new(b"key", &there)], 1).await;
    until(async || check(&store, Item::new(b"key", &here), 1).await.allowed, "the refund").await;
}

#[tokio::test]
async fn permits_shadows_and_counted_refusals_are_always_asked() {
    let server = Server::redis();
    let store = open(&server).await;
    let counting =
        register(&store, "counting", Limit::fixed_window(Rate::per_day(1)).count_rejected());
    let permits = register(&store, "permits", Limit::concurrency(1));
    let queue = register(&store, "queue", Limit::leaky_queue(Rate::per_day(1), 0));
    for limit in [&counting, &permits, &queue] {
        let mut answers = [Answer::default()];
        for holder in 1..5 {
            let items = [Item::new(b"key", limit)];
            let call = Call::new(Op::Check, &items, 1, NOW).held_by(holder);
            let outcome = store.apply(&call, &mut answers).await.unwrap();
            assert_eq!(outcome.allowed, holder == 1, "{limit:?}");
            assert_eq!(answers[0].decision.source, Source::Store, "{limit:?}");
        }
    }
    assert_eq!(store.stats().denial_hits, 0);
}

#[tokio::test]
async fn without_redis_each_limit_does_what_it_was_told() {
    let mut server = Server::redis();
    let store = open_with(&server, |options| options.deadline = Duration::from_secs(1)).await;
    let limit = register(&store, "limit", Limit::per_day(10));
    let with = |on_error| Item { on_error, ..Item::new(b"key", &limit) };
    // What was seen of the key goes on counting.
    assert!(check(&store, with(OnError::Local), 4).await.allowed);
    server.kill();
    until(async || store.stats().breakers_open == 1, "an open breaker").await;
    let begun = Instant::now();
    let allowed = check(&store, with(OnError::Allow), 1000).await;
    assert_eq!((allowed.allowed, allowed.source), (true, Source::Fallback));
    let denied = check(&store, with(OnError::Deny), 1).await;
    assert_eq!((denied.allowed, denied.source), (false, Source::Fallback));
    assert!(check(&store, with(OnError::Local), 6).await.allowed);
    let refused = check(&store, with(OnError::Local), 1).await;
    assert_eq!((refused.allowed, refused.source), (false, Source::Fallback));
    // What cannot be given back is no success.
    for op in [Op::Refund, Op::Reset] {
        let items = [with(OnError::Allow)];
        let call = Call::new(op, &items, 1, NOW);
        assert!(store.apply(&call, &mut [Answer::default()]).await.is_err());
    }
    assert_eq!(store.stats().given_up, 2);
    assert!(begun.elapsed() < Duration::from_secs(1), "nobody waits for what is known to be gone");
    let stats = store.stats();
    assert_eq!(stats.fallbacks, [("allow", 3), ("deny", 1), ("local", 2)]);
    assert!(stats.down_because.is_some());

    server.start_again();
    let is_back = async || check(&store, with(OnError::Deny), 1).await.source == Source::Store;
    until(is_back, "the return of Redis").await;
    // It has no persistence, so it begins anew; what was counted locally is not told to it.
    assert!(check(&store, with(OnError::Local), 9).await.allowed);
    assert_eq!(store.stats().breakers_open, 0);
}

#[tokio::test]
async fn it_opens_without_redis_and_finds_it_later() {
    let mut server = Server::redis();
    server.kill();
    let mut options = RedisOptions::new(server.url().parse().unwrap());
    options.deadline = Duration::from_secs(1);
    let store = RedisStore::open(options).await.unwrap();
    let limit = register(&store, "limit", Limit::per_day(10));
    let item = Item { on_error: OnError::Deny, ..Item::new(b"key", &limit) };
    assert_eq!(check(&store, item, 1).await.source, Source::Fallback);
    server.start_again();
    until(async || check(&store, item, 1).await.source == Source::Store, "Redis").await;
}

#[tokio::test]
async fn nodes_are_counted_and_divide_what_is_left() {
    let mut server = Server::redis();
    let (one, two) = (open(&server).await, open(&server).await);
    let both = async || one.stats().live_nodes == 2 && two.stats().live_nodes == 2;
    until(both, "two nodes").await;
    let limits = [&one, &two].map(|store| register(store, "limit", Limit::per_day(11)));
    server.kill();
    let mut admitted = [0; 2];
    for (place, store) in [&one, &two].into_iter().enumerate() {
        until(async || store.stats().breakers_open == 1, "an open breaker").await;
        let item = Item { on_error: OnError::Local, ..Item::new(b"key", &limits[place]) };
        for _ in 0..20 {
            admitted[place] += u64::from(check(store, item, 1).await.allowed);
        }
    }
    admitted.sort_unstable();
    assert_eq!(admitted, [5, 6], "together the limit, and no more");
}

#[tokio::test]
async fn limits_that_cannot_be_counted_exactly_are_refused_by_name() {
    let server = Server::redis();
    let store = open(&server).await;
    let limit = Limit::per_second(1 << 32).build().unwrap();
    let error = store.register("huge", limit, Inherit::Used).unwrap_err();
    assert!(error.to_string().contains("`huge`"), "{error}");
}

#[tokio::test]
async fn notes_reach_everybody_and_end() {
    let server = Server::redis();
    let (one, two) = (open(&server).await, open(&server).await);
    let mut changes = two.notes_changed();
    assert_eq!(two.notes().await.unwrap(), []);
    assert!(one.put_note(b"a", b"first", Duration::from_secs(600)).await.unwrap());
    assert!(one.put_note(b"b", b"second", Duration::from_millis(1)).await.unwrap());
    assert!(one.put_note(b"a", b"third", Duration::from_secs(600)).await.unwrap());
    tokio::time::timeout(PATIENCE, changes.changed()).await.unwrap().unwrap();
    let is_over = async || two.notes().await.unwrap().len() == 1;
    until(is_over, "the end of a note").await;
    let notes = two.notes().await.unwrap();
    assert_eq!((&*notes[0].name, &*notes[0].text), (&b"a"[..], &b"third"[..]));
    assert!(notes[0].rest > Duration::from_secs(500), "{notes:?}");
    assert!(two.remove_note(b"a").await.unwrap());
    assert!(!one.remove_note(b"a").await.unwrap());
    assert_eq!(one.notes().await.unwrap(), []);
}

#[tokio::test]
async fn a_request_may_have_many_keys_but_not_any_number() {
    let server = Server::redis();
    let store = open(&server).await;
    let limit = register(&store, "limit", Limit::per_day(1));
    let keys: Vec<String> = (0..2_001).map(|number| format!("key {number}")).collect();
    let items: Vec<_> = keys.iter().map(|key| Item::new(key.as_bytes(), &limit)).collect();
    assert!(ask(&store, Op::Check, &items[1..], 1).await.0.allowed);
    let (outcome, decisions) = ask(&store, Op::Check, &items[1..], 1).await;
    assert!(!outcome.allowed && decisions.iter().all(|decision| !decision.allowed));
    ask(&store, Op::Reset, &items[1..], 1).await;
    assert!(ask(&store, Op::Check, &items[1..], 1).await.0.allowed);
    let mut answers = vec![Answer::default(); items.len()];
    let error = store.apply(&Call::new(Op::Check, &items, 1, NOW), &mut answers).await.unwrap_err();
    assert_eq!(error.to_string(), "the request is counted by 2001 keys; the most is 2000");
}

/// While a change of the rules is rolled out, both versions count one hot key: whatever comes of it,
/// nobody passes uncounted while Redis works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_versions_of_a_limit_race_and_nobody_passes_uncounted() {
    let server = Server::redis();
    let mut tasks = Vec::new();
    for units in [200, 210] {
        let store = open(&server).await;
        let limit = register(&store, "limit", Limit::per_day(units));
        for _ in 0..20 {
            let (store, limit) = (store.clone(), Arc::clone(&limit));
            tasks.push(tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..25 {
                    let decision = check(&store, Item::new(b"hot", &limit), 1).await;
                    assert!(!decision.allowed || decision.source == Source::Store, "{decision:?}");
                    admitted += u64::from(decision.allowed);
                }
                admitted
            }));
        }
    }
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    assert!((1..=210).contains(&admitted), "{admitted}");
}
