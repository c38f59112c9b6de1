//! What comes back when a request is over: permits, costs, refunds.

use std::convert::Infallible;

use http::{HeaderName, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use tidegate::Limit;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use crate::{Body, Counting, ask, get, limit, rules};

#[tokio::test]
async fn a_permit_is_held_until_the_body_has_ended() {
    let (layer, limiter, _clock) = limit(Limit::concurrency(1));
    let service = Counting::new();
    let mut first = ask(&layer, &service, get("/")).await;
    assert_eq!(ask(&layer, &service, get("/")).await.status(), 429);
    // The last of the data is handed over, and may still be on its way.
    assert!(first.body_mut().frame().await.unwrap().unwrap().is_data());
    assert_eq!(limiter.peek(&()).remaining, 0);
    assert!(first.body_mut().frame().await.is_none());
    assert_eq!(limiter.peek(&()).remaining, 1);
    assert_eq!(ask(&layer, &service, get("/")).await.status(), 200);
    drop(first);
    assert_eq!(limiter.peek(&()).remaining, 1, "a permit comes back once");
}

#[tokio::test]
async fn a_permit_comes_back_with_the_answer_the_future_or_the_error() {
    let (layer, limiter, _clock) = limit(Limit::concurrency(1));
    let answer = ask(&layer, &Counting::new(), get("/")).await;
    assert_eq!(limiter.peek(&()).remaining, 0);
    drop(answer);
    assert_eq!(limiter.peek(&()).remaining, 1);

    let never =
        service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let mut service = layer.layer(never);
    let future = service.ready().await.unwrap().call(get("/"));
    assert_eq!(limiter.peek(&()).remaining, 0);
    drop(future);
    assert_eq!(limiter.peek(&()).remaining, 1);

    let failing = service_fn(|_: Request<Body>| async { Err::<Response<Body>, _>("broken") });
    assert_eq!(layer.layer(failing).oneshot(get("/")).await.unwrap_err(), "broken");
    assert_eq!(limiter.peek(&()).remaining, 1);
}

#[tokio::test]
async fn permits_of_rules_come_back_and_what_else_was_counted_stays() {
    let (layer, _clock) = rules(
        "domain: d\nhttp: [ { descriptors: [ { all: yes } ] } ]\ndescriptors:\n  - key: all\n    \
         rate_limits:\n      - { requests_per_unit: 1, algorithm: concurrency }\n      \
         - { requests_per_unit: 3, unit: hour }\n",
    );
    let service = Counting::new();
    let mut admitted = 0;
    for _ in 0..5 {
        let answer = ask(&layer, &service, get("/")).await;
        if answer.status() == 200 {
            admitted += 1;
            // While it is under way nobody else is admitted, and takes nothing of the other limit.
            assert_eq!(ask(&layer, &service, get("/")).await.status(), 429);
        }
    }
    assert_eq!(admitted, 3);
}

#[tokio::test]
async fn a_request_costs_what_a_function_says() {
    let (layer, limiter, _clock) = limit(Limit::per_minute(10));
    let layer = layer.cost(|asked| asked.parts.uri.path().len() as u64);
    let service = Counting::new();
    assert_eq!(ask(&layer, &service, get("/1234567")).await.status(), 200);
    assert_eq!(limiter.peek(&()).remaining, 2);
    assert_eq!(ask(&layer, &service, get("/23")).await.status(), 429);
    assert_eq!(ask(&layer, &service, get("/2")).await.status(), 200);
}

#[tokio::test]
async fn the_answer_says_what_it_really_cost() {
    fn cheap() -> Response<Body> {
        Response::builder().header("x-cost", "3").body(Body::default()).unwrap()
    }
    fn dear() -> Response<Body> {
        Response::builder().header("x-cost", "25").body(Body::default()).unwrap()
    }
    fn silent() -> Response<Body> {
        Response::builder().header("x-cost", "much").body(Body::default()).unwrap()
    }
    for (answer, left) in [(cheap as fn() -> _, 97), (dear, 75), (silent, 90)] {
        let (layer, limiter, _clock) = limit(Limit::fixed_window(tidegate::Rate::per_hour(100)));
        let layer = layer.cost(|_| 10).cost_from(HeaderName::from_static("x-cost"));
        let answer = ask(&layer, &Counting::answering(answer), get("/")).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(limiter.peek(&()).remaining, left);
    }
}

#[tokio::test]
async fn a_cost_that_the_rules_give_is_settled_too() {
    let (layer, _clock) = rules(
        "domain: d\nhttp: [ { cost: 10, descriptors: [ { all: yes } ] } ]\ndescriptors:\n  \
         - { key: all, rate_limit: { requests_per_unit: 100, unit: hour, cost: 2 } }\n",
    );
    let layer = layer.cost_from(HeaderName::from_static("x-cost"));
    let service = Counting::answering(|| {
        Response::builder().header("x-cost", "3").body(Body::default()).unwrap()
    });
    let told = |answer: &crate::Answer| answer.headers()["x-ratelimit-remaining"].clone();
    assert_eq!(told(&ask(&layer, &service, get("/")).await), "80");
    // Three units at two each were kept of the first.
    assert_eq!(told(&ask(&layer, &service, get("/")).await), "74");
}

#[tokio::test]
async fn chosen_answers_do_not_count() {
    let (layer, limiter, _clock) = limit(Limit::per_minute(5));
    let layer = layer.refund_if(|answer| answer.status.is_server_error());
    let broken = Counting::answering(|| {
        Response::builder().status(StatusCode::BAD_GATEWAY).body(Body::default()).unwrap()
    });
    for _ in 0..20 {
        assert_eq!(ask(&layer, &broken, get("/")).await.status(), 502);
    }
    assert_eq!(limiter.peek(&()).remaining, 5);
    assert_eq!(ask(&layer, &Counting::new(), get("/")).await.status(), 200);
    assert_eq!(limiter.peek(&()).remaining, 4);
}

#[tokio::test]
async fn chosen_statuses_do_not_count() {
    let (layer, limiter, _clock) = limit(Limit::per_minute(5));
    let layer = layer.refund_statuses(500..=502);
    let broken = Counting::answering(|| {
        Response::builder().status(StatusCode::BAD_GATEWAY).body(Body::default()).unwrap()
    });
    assert_eq!(ask(&layer, &broken, get("/")).await.status(), 502);
    assert_eq!(limiter.peek(&()).remaining, 5);
    let late = Counting::answering(|| {
        Response::builder().status(StatusCode::GATEWAY_TIMEOUT).body(Body::default()).unwrap()
    });
    assert_eq!(ask(&layer, &late, get("/")).await.status(), 504);
    assert_eq!(limiter.peek(&()).remaining, 4);
}
