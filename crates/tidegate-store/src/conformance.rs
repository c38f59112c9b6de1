//! The suite that every store has to pass.
//!
//! A store is right when it answers as `tidegate-core` does, whatever it does in between. Each case
//! asks the store and an oracle the same questions, compares every field of every answer, and
//! panics with the case, the step, what was found and what was expected. Cases that tell a story
//! also say in plain numbers what has to come out.
//!
//! Times are told by the case, in whole microseconds; the store has to go by them. Cases use keys,
//! limits and ids of their own, so that they can share a store with each other, but not with an
//! earlier run of themselves. They assume nothing about when spent state is dropped.
//!
//! ```
//! use tidegate_store::{MemoryStore, conformance};
//!
//! pollster::block_on(conformance::all(&MemoryStore::new()));
//! ```
#![allow(clippy::panic, reason = "a store that does not conform is told so by a panic")]

mod calls;
mod changes;
mod examples;
mod histories;
mod holding;
mod operations;
mod oracle;
mod random;
mod referee;
mod time;

pub use calls::{
    all_or_nothing, equal_items_add_up, factors_multiply, huge_costs_are_refused, no_limit_admits,
    quotas_refuse_together, refusals_count_where_the_limit_says_so, shadow_only_watches,
};
pub use changes::{
    changed_algorithms_inherit, changed_numbers_inherit, registering_again_changes_nothing,
    reservations_are_settled_before_keys_move, reservations_outlive_changes,
    settling_in_full_leaves_changes_alone,
};
pub use examples::{
    endpoint_and_address, five_rewards_per_week, ten_accounts_per_day,
    ten_thousand_per_second_for_all, the_third_in_a_second_is_refused, three_buckets_per_user,
    three_hundred_tweets_per_three_hours, two_articles_per_second,
};
pub use histories::{changing_limits, each_algorithm, several_limits};
pub use holding::{
    permits_belong_to_holders, permits_join_other_limits, permits_without_lease_last,
    reservations_end, reservations_settle_what_they_took, reservations_take_once,
    reserved_permits_are_set, settling_brings_to_the_real_cost,
    settling_later_gives_back_what_is_left,
};
pub use operations::{
    force_makes_a_debt, give_back_is_as_of_the_taking, peek_changes_nothing, refund_gives_back_now,
    reset_forgets, up_to_grants_what_fits,
};
pub use time::{
    a_clock_going_back_gives_nothing, any_time_will_do, calendar_windows_are_the_callers,
    keys_do_not_alias, retry_is_exact,
};

use crate::store::Store;

/// Runs every case, those with a story first.
pub async fn all<S: Store>(store: &S) {
    stories(store).await;
    for seed in 1..=3 {
        each_algorithm(store, seed).await;
        several_limits(store, seed).await;
        changing_limits(store, seed).await;
    }
}

async fn stories<S: Store>(store: &S) {
    all_or_nothing(store).await;
    no_limit_admits(store).await;
    refusals_count_where_the_limit_says_so(store).await;
    shadow_only_watches(store).await;
    quotas_refuse_together(store).await;
    equal_items_add_up(store).await;
    factors_multiply(store).await;
    huge_costs_are_refused(store).await;

    peek_changes_nothing(store).await;
    up_to_grants_what_fits(store).await;
    force_makes_a_debt(store).await;
    refund_gives_back_now(store).await;
    reset_forgets(store).await;
    give_back_is_as_of_the_taking(store).await;

    permits_belong_to_holders(store).await;
    permits_without_lease_last(store).await;
    permits_join_other_limits(store).await;
    reservations_take_once(store).await;
    settling_brings_to_the_real_cost(store).await;
    settling_later_gives_back_what_is_left(store).await;
    reservations_end(store).await;
    reservations_settle_what_they_took(store).await;
    reserved_permits_are_set(store).await;

    changed_numbers_inherit(store).await;
    changed_algorithms_inherit(store).await;
    registering_again_changes_nothing(store).await;
    reservations_outlive_changes(store).await;
    reservations_are_settled_before_keys_move(store).await;
    settling_in_full_leaves_changes_alone(store).await;

    retry_is_exact(store).await;
    a_clock_going_back_gives_nothing(store).await;
    calendar_windows_are_the_callers(store).await;
    keys_do_not_alias(store).await;
    any_time_will_do(store).await;

    two_articles_per_second(store).await;
    ten_accounts_per_day(store).await;
    five_rewards_per_week(store).await;
    three_hundred_tweets_per_three_hours(store).await;
    three_buckets_per_user(store).await;
    ten_thousand_per_second_for_all(store).await;
    the_third_in_a_second_is_refused(store).await;
    endpoint_and_address(store).await;
}
