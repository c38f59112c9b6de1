//! The suite of all stores.

use std::sync::Arc;

use tidegate_store::{MemoryStore, conformance};

/// With one shard all items of a call meet in it, with four some do.
fn stores() -> [MemoryStore; 3] {
    let sharded = |count| MemoryStore::builder().shards(count).build();
    [MemoryStore::new(), sharded(1), sharded(4)]
}

/// A test for each case, so that the name of the test says what is broken.
macro_rules! cases {
    ($($case:ident)*) => {$(
        #[test]
        fn $case() {
            for store in stores() {
                pollster::block_on(conformance::$case(&store));
            }
        }
    )*};
}

cases! {
    all_or_nothing no_limit_admits refusals_count_where_the_limit_says_so shadow_only_watches
    quotas_refuse_together equal_items_add_up factors_multiply huge_costs_are_refused
    peek_changes_nothing up_to_grants_what_fits force_makes_a_debt refund_gives_back_now
    reset_forgets give_back_is_as_of_the_taking
    permits_belong_to_holders permits_without_lease_last permits_join_other_limits
    reservations_take_once settling_brings_to_the_real_cost settling_later_gives_back_what_is_left
    reservations_end reservations_settle_what_they_took reserved_permits_are_set
    changed_numbers_inherit changed_algorithms_inherit registering_again_changes_nothing
    reservations_outlive_changes reservations_are_settled_before_keys_move
    settling_in_full_leaves_changes_alone
    retry_is_exact a_clock_going_back_gives_nothing calendar_windows_are_the_callers
    keys_do_not_alias any_time_will_do
    two_articles_per_second ten_accounts_per_day five_rewards_per_week
    three_hundred_tweets_per_three_hours three_buckets_per_user ten_thousand_per_second_for_all
    the_third_in_a_second_is_refused endpoint_and_address
}

/// The cases can share a store, as they do where starting one is dear.
#[test]
fn all_cases_pass_in_one_store() {
    for store in stores() {
        pollster::block_on(conformance::all(&store));
    }
}

/// Many share one store, and pass it around.
#[test]
fn an_arc_of_a_store_is_a_store() {
    let store = Arc::new(MemoryStore::new());
    pollster::block_on(conformance::all(&store));
}

/// More histories than the suite asks of a store that is slow.
#[test]
fn many_histories_of_each_algorithm() {
    for seed in 0..60 {
        pollster::block_on(conformance::each_algorithm(&MemoryStore::new(), seed));
    }
}

#[test]
fn many_histories_of_several_limits() {
    for seed in 0..60 {
        let store = MemoryStore::builder().shards(1 << (seed % 4)).build();
        pollster::block_on(conformance::several_limits(&store, seed));
    }
}

#[test]
fn many_histories_of_changing_limits() {
    for seed in 0..60 {
        pollster::block_on(conformance::changing_limits(&MemoryStore::new(), seed));
    }
}
