//! Requests of one key reach the service in the order in which they came.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use tidegate::{Limit, Rate};
use tower::{Layer as _, Service};

use crate::{Body, get, limit, rules};

/// A service that is ready when it is open, and writes down which requests it has begun with. Those for
/// `/long` it never answers.
#[derive(Clone, Default)]
struct Shop {
    is_open: Arc<AtomicBool>,
    begun: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    fn begun(&self) -> Vec<String> {
        self.begun.lock().unwrap().clone()
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Service<Request<Body>> for Shop {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        match self.is_open.load(Ordering::SeqCst) {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let begun = Arc::clone(&self.begun);
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let is_long = path.starts_with("/long");
            begun.lock().unwrap().push(path);
            match is_long {
                true => std::future::pending().await,
                false => Ok(Response::new(Body::default())),
            }
        })
    }
}

fn poll<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn nobody_reaches_the_service_before_those_who_came_first() {
    let (layer, limiter, clock) = limit(Limit::leaky_queue(Rate::per_second(1), 9));
    let shop = Shop::default();
    let mut service = layer.layer(shop.clone());
    // The first has nobody to wait for, and is not polled yet.
    let mut first = Box::pin(service.call(get("/first")));
    let mut second = Box::pin(service.call(get("/long/second")));
    let mut third = Box::pin(service.call(get("/third")));
    assert_eq!(limiter.held(), 2);
    clock.advance(Duration::from_secs(60));
    shop.open();
    for _ in 0..2 {
        assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
    }
    assert_eq!(limiter.held(), 0);
    // Who comes when slots are free again is behind them all the same.
    let mut fourth = Box::pin(service.call(get("/fourth")));
    assert!(poll(&mut fourth).is_pending());
    assert!(shop.begun().is_empty());
    assert!(poll(&mut first).is_ready());
    assert!(poll(&mut fourth).is_pending() && poll(&mut third).is_pending());
    assert_eq!(shop.begun(), ["/first"]);
    // The service has begun with it; how long it takes is its own affair.
    assert!(poll(&mut second).is_pending());
    assert!(poll(&mut third).is_ready() && poll(&mut fourth).is_ready());
    assert_eq!(shop.begun(), ["/first", "/long/second", "/third", "/fourth"]);
}

#[test]
fn who_waits_for_the_service_is_not_overtaken_and_who_leaves_is_not_waited_for() {
    let (layer, clock) = rules(
        "domain: d\nhttp: [ { match: { path: '/{who}' }, descriptors: [ { who: '${path.who}' } ] } ]\n\
         descriptors:\n  - key: who\n    rate_limit: { requests_per_unit: 1, unit: second, \
         algorithm: leaky_bucket, queue: { size: 9 }, excess: delay }\n",
    );
    let shop = Shop::default();
    let mut service = layer.layer(shop.clone());
    let mut line: Vec<_> =
        (0..4).map(|n| Box::pin(service.call(get(&format!("/a?{n}"))))).collect();
    line.remove(0);
    clock.advance(Duration::from_secs(60));
    // The first of them waits until the service is ready, the others for it.
    assert!(line.iter_mut().all(|it| poll(it).is_pending()));
    assert_eq!(layer.gate().limiter().held(), 0);
    shop.open();
    assert!(poll(&mut line[2]).is_pending() && poll(&mut line[1]).is_pending());
    // Somebody else is not concerned.
    assert!(poll(&mut Box::pin(service.call(get("/b")))).is_ready());
    drop(line.remove(0));
    assert!(poll(&mut line[1]).is_pending(), "it is not the next");
    assert!(poll(&mut line[0]).is_ready() && poll(&mut line[1]).is_ready());
    assert_eq!(shop.begun(), ["/b", "/a", "/a"]);
}
