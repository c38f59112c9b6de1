//! What a request costs, and what it gives back.

use tidegate_proto::Code::{Ok as Fine, OverLimit};
use tidegate_proto::{RateLimitDescriptor, RateLimitRequest};

use crate::support::{Client, Running, Setup, codes, descriptor, domain, request, send};

const RULES: &str = "
  - { key: a, rate_limit: { requests_per_unit: 10, unit: minute } }
  - { key: b, rate_limit: { requests_per_unit: 5, unit: minute } }
";

fn costing(written: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(written) }
}

fn giving(written: &str, hits: Option<u64>) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: hits, is_negative_hits: true, ..descriptor(written) }
}

/// The overall code, and what remains of each.
async fn remaining(client: &mut Client, asked: RateLimitRequest) -> (i32, Vec<u32>) {
    let response = send(client, asked).await.unwrap();
    let each = response.statuses.iter().map(|status| status.limit_remaining).collect();
    (response.overall_code, each)
}

fn fine(remaining: &[u32]) -> (i32, Vec<u32>) {
    (Fine.into(), remaining.to_vec())
}

fn over(remaining: &[u32]) -> (i32, Vec<u32>) {
    (OverLimit.into(), remaining.to_vec())
}

#[tokio::test]
async fn the_requests_cost_is_that_of_all_descriptors_that_have_none() {
    let running = Running::with(RULES).await;
    let mut client = running.client().await;
    let mut asked = request(&[descriptor("a=x"), descriptor("b=x")]);
    assert_eq!(remaining(&mut client, asked.clone()).await, fine(&[9, 4]), "0 means 1");
    asked.hits_addend = 2;
    assert_eq!(remaining(&mut client, asked.clone()).await, fine(&[7, 2]));
    asked.descriptors[0].hits_addend = Some(5);
    assert_eq!(remaining(&mut client, asked.clone()).await, fine(&[2, 0]));
    assert_eq!(remaining(&mut client, asked).await, over(&[2, 0]), "all or nothing");
}

#[tokio::test]
async fn a_descriptor_that_costs_nothing_is_looked_at() {
    let running = Running::with(RULES).await;
    let mut client = running.client().await;
    let look = request(&[costing("a=x", 0)]);
    assert_eq!(remaining(&mut client, look.clone()).await, fine(&[10]));
    let all = request(&[costing("a=x", 10)]);
    assert_eq!(remaining(&mut client, all).await, fine(&[0]));
    assert_eq!(remaining(&mut client, look).await, fine(&[0]), "nothing still fits");
    let huge = request(&[costing("a=y", u64::MAX)]);
    assert_eq!(remaining(&mut client, huge).await, over(&[10]));
}

#[tokio::test]
async fn negative_hits_are_given_back() {
    let running = Running::with(RULES).await;
    let mut client = running.client().await;
    remaining(&mut client, request(&[costing("a=x", 10)])).await;
    assert_eq!(remaining(&mut client, request(&[giving("a=x", Some(3))])).await, fine(&[3]));
    assert_eq!(remaining(&mut client, request(&[giving("a=x", Some(0))])).await, fine(&[3]));
    // As with everything, what is not said is the request's cost.
    let mut asked = request(&[giving("a=x", None)]);
    assert_eq!(remaining(&mut client, asked.clone()).await, fine(&[4]));
    asked.hits_addend = 2;
    assert_eq!(remaining(&mut client, asked).await, fine(&[6]));
    // Never more than all of it.
    let all = request(&[giving("a=x", Some(u64::MAX)), giving("a=new", Some(7))]);
    assert_eq!(remaining(&mut client, all).await, fine(&[10, 10]));
}

#[tokio::test]
async fn giving_back_is_fine_whatever_the_limit_says() {
    let rules = "
  - { key: none, rate_limit: { requests_per_unit: 0, unit: minute } }
  - { key: a, rate_limit: { requests_per_unit: 2, unit: minute } }
";
    let mut setup = Setup::new(&domain(rules));
    // Refusals count, so that there is more to give back than the limit.
    setup.options.lyft_compat = true;
    setup.modes.independent = true;
    let running = setup.start().await;
    let mut client = running.client().await;
    remaining(&mut client, request(&[costing("a=x", 9)])).await;
    let back = request(&[giving("a=x", Some(1)), giving("none=x", Some(1)), giving("c=x", None)]);
    let response = send(&mut client, back).await.unwrap();
    assert_eq!((response.overall_code(), codes(&response)), (Fine, vec![Fine; 3]));
    assert_eq!(response.statuses[0].limit_remaining, 0);
    assert_eq!(remaining(&mut client, request(&[giving("a=x", Some(7))])).await, fine(&[1]));
}

#[tokio::test]
async fn a_request_that_gives_and_takes_gives_first() {
    let running = Running::with(RULES).await;
    let mut client = running.client().await;
    remaining(&mut client, request(&[costing("a=x", 10), costing("b=x", 5)])).await;
    // The estimate is given back and what it really was is taken, of the same key.
    let settled = request(&[costing("a=x", 4), giving("b=x", Some(2)), giving("a=x", Some(10))]);
    assert_eq!(remaining(&mut client, settled).await, fine(&[6, 2, 10]));
    // What is given back stays so when the rest is refused.
    let refused = request(&[giving("b=x", Some(1)), costing("a=x", 7), descriptor("b=x")]);
    let response = send(&mut client, refused).await.unwrap();
    assert_eq!(
        (response.overall_code(), codes(&response)),
        (OverLimit, vec![Fine, OverLimit, Fine])
    );
    assert_eq!(remaining(&mut client, request(&[costing("b=x", 0)])).await, fine(&[3]));
}
