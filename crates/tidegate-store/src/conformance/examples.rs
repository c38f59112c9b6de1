//! The worked examples that a rate limiter is asked for, enforced exactly.

use tidegate_core::{Limit, Rate, Retry};

use super::referee::{Referee, START, ms, secs};
use crate::store::{Item, Store};

const DAY: std::time::Duration = secs(86_400);

/// A user may post at most 2 new articles per second, by every algorithm.
pub async fn two_articles_per_second<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "two_articles_per_second");
    let rate = Rate::per_second(2);
    let algorithms = [
        ("token bucket", Limit::token_bucket(rate)),
        ("leaky bucket", Limit::leaky_bucket(rate)),
        ("gcra", Limit::gcra(rate)),
        ("fixed window", Limit::fixed_window(rate)),
        ("sliding log", Limit::sliding_log(rate)),
        ("sliding counter", Limit::sliding_counter(rate)),
    ];
    let (ann, bob) = (referee.key("ann"), referee.key("bob"));
    for (name, spec) in algorithms {
        let limit = referee.limit(name, spec);
        let (ann, bob) = ([Item::new(&ann, &limit)], [Item::new(&bob, &limit)]);
        referee.check(&ann, 1, START).await.admitted().remaining(&[1]);
        referee.check(&ann, 1, START).await.admitted().remaining(&[0]);
        referee.check(&ann, 1, START).await.refused();
        referee.check(&bob, 2, START).await.admitted();
        referee.check(&ann, 2, START + secs(2)).await.admitted().remaining(&[0]);
        referee.check(&ann, 1, START + secs(2)).await.refused();
    }
}

/// One address may create at most 10 accounts per day.
pub async fn ten_accounts_per_day<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "ten_accounts_per_day");
    let limit = referee.limit("accounts", Limit::fixed_window(Rate::per_day(10)));
    let key = referee.key("203.0.113.7");
    let items = [Item::new(&key, &limit)];
    for hour in 0..10 {
        let reply = referee.check(&items, 1, START + secs(hour * 3600)).await;
        reply.admitted().remaining(&[9 - hour]);
    }
    for hour in 10..24 {
        let refused = referee.check(&items, 1, START + secs(hour * 3600)).await.refused();
        refused.retry(&[Retry::After(secs((24 - hour) * 3600))]);
    }
    referee.check(&items, 1, START + DAY).await.admitted().remaining(&[9]);
}

/// One device may claim a reward at most 5 times per week.
pub async fn five_rewards_per_week<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "five_rewards_per_week");
    let limit = referee.limit("rewards", Limit::fixed_window(Rate::per_week(5)));
    let key = referee.key("device");
    let items = [Item::new(&key, &limit)];
    for day in 0..5 {
        referee.check(&items, 1, START + day * DAY).await.admitted();
    }
    referee.check(&items, 1, START + 5 * DAY).await.refused().retry(&[Retry::After(2 * DAY)]);
    referee.check(&items, 1, START + 7 * DAY).await.admitted().remaining(&[4]);
}

/// 300 tweets per 3 hours per user: in any 3 hours, and by the counter that comes near to it.
pub async fn three_hundred_tweets_per_three_hours<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "three_hundred_tweets_per_three_hours");
    let (hour, rate) = (secs(3600), Rate::new(300, secs(3 * 3600)));
    let log = referee.limit("log", Limit::sliding_log(rate));
    let counter = referee.limit("counter", Limit::sliding_counter(rate));
    let key = referee.key("user");
    let exact = [Item::new(&key, &log)];
    for minute in 0..300_u64 {
        let now = START + secs(minute * 36);
        referee.check(&exact, 1, now).await.admitted().remaining(&[299 - minute]);
    }
    let refused = referee.check(&exact, 1, START + (3 * hour - secs(36))).await.refused();
    refused.retry(&[Retry::After(secs(36))]);
    referee.check(&exact, 1, START + 3 * hour).await.admitted().remaining(&[0]);

    let near = [Item::new(&key, &counter)];
    referee.check(&near, 300, START + 2 * hour).await.admitted();
    // Half of the next window has passed, so half of the last one counts.
    let now = START + 4 * hour + secs(1800);
    referee.check(&near, 151, now).await.refused().remaining(&[150]);
    referee.check(&near, 150, now).await.admitted().remaining(&[0]);
}

/// Three buckets for each user at once: 1 post, 150 friends and 5 likes per day.
pub async fn three_buckets_per_user<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "three_buckets_per_user");
    let posts = referee.limit("posts", Limit::token_bucket(Rate::per_day(1)));
    let friends = referee.limit("friends", Limit::token_bucket(Rate::per_day(150)));
    let likes = referee.limit("likes", Limit::token_bucket(Rate::per_day(5)));
    let key = referee.key("user");
    let (post, befriend, like) =
        ([Item::new(&key, &posts)], [Item::new(&key, &friends)], [Item::new(&key, &likes)]);
    referee.check(&post, 1, START).await.admitted();
    referee.check(&post, 1, START).await.refused().retry(&[Retry::After(DAY)]);
    referee.check(&befriend, 150, START).await.admitted();
    referee.check(&befriend, 1, START).await.refused().retry(&[Retry::After(DAY / 150)]);
    referee.check(&like, 4, START).await.admitted().remaining(&[1]);
    // A post that is liked by its author needs both, and takes neither.
    let both = [post[0], like[0]];
    referee.check(&both, 1, START).await.refused().opinions(&[false, true]).remaining(&[0, 1]);
    referee.check(&both, 1, START + DAY).await.admitted().remaining(&[0, 4]);
}

/// One bucket shared by the whole system: 10,000 requests per second.
pub async fn ten_thousand_per_second_for_all<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "ten_thousand_per_second_for_all");
    let limit = referee.limit("system", Limit::token_bucket(Rate::per_second(10_000)));
    let key = referee.key("everybody");
    let items = [Item::new(&key, &limit)];
    for hundred in 1..=100 {
        referee.check(&items, 100, START).await.admitted().remaining(&[10_000 - 100 * hundred]);
    }
    let refused = referee.check(&items, 1, START).await.refused();
    refused.retry(&[Retry::After(std::time::Duration::from_micros(100))]);
    referee.check(&items, 10, START + ms(1)).await.admitted().remaining(&[0]);
    referee.check(&items, 1, START + ms(1)).await.refused();
}

/// An API server limited to 2 requests per second: the third in the same second is refused.
pub async fn the_third_in_a_second_is_refused<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "the_third_in_a_second_is_refused");
    let limit = referee.limit("api", Limit::fixed_window(Rate::per_second(2)));
    let key = referee.key("server");
    let items = [Item::new(&key, &limit)];
    for second in 0..5 {
        let at = |millis| START + secs(second) + ms(millis);
        referee.check(&items, 1, at(0)).await.admitted().remaining(&[1]);
        referee.check(&items, 1, at(400)).await.admitted().remaining(&[0]);
        referee.check(&items, 1, at(700)).await.refused().retry(&[Retry::After(ms(300))]);
    }
}

/// 5 requests per second with bursts of 10, for the whole endpoint and the same for each address.
pub async fn endpoint_and_address<S: Store>(store: &S) {
    let mut referee = Referee::new(store, "endpoint_and_address");
    let spec = Limit::token_bucket(Rate::per_second(5)).burst(10);
    let (endpoint, address) = (referee.limit("endpoint", spec), referee.limit("address", spec));
    let (all, near, far) = (referee.key("/v1"), referee.key("near"), referee.key("far"));
    let from_near = [Item::new(&all, &endpoint), Item::new(&near, &address)];
    let from_far = [Item::new(&all, &endpoint), Item::new(&far, &address)];
    referee.check(&from_near, 7, START).await.admitted().remaining(&[3, 3]);
    referee.check(&from_far, 3, START).await.admitted().remaining(&[0, 7]);
    // The endpoint is busy: the address that is refused has lost nothing.
    let refused = referee.check(&from_far, 5, START).await.refused();
    refused.opinions(&[false, true]).remaining(&[0, 7]);
    referee.check(&from_far, 5, START + secs(1)).await.admitted().remaining(&[0, 5]);
    // The endpoint has room, the address has not.
    referee.check(&from_far, 9, START + secs(3)).await.admitted().remaining(&[1, 1]);
    referee.check(&from_far, 4, START + secs(4)).await.admitted().remaining(&[2, 2]);
    let refused = referee.check(&from_far, 3, START + secs(4)).await.refused();
    refused.retry(&[Retry::After(ms(200)); 2]);
}
