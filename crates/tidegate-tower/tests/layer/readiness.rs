//! The layer passes on when the service is ready, and calls none that is not.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tidegate::Limit;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::{Body, get, limit};

/// A service with so many places; a clone has to ask for one before it is called.
struct Places {
    free: Arc<Mutex<usize>>,
    has_place: bool,
    called_without: Arc<AtomicUsize>,
}

impl Places {
    fn new(places: usize) -> Self {
        Self {
            free: Arc::new(Mutex::new(places)),
            has_place: false,
            called_without: Arc::default(),
        }
    }

    fn free(&self) -> usize {
        *self.free.lock().unwrap()
    }
}

impl Clone for Places {
    fn clone(&self) -> Self {
        let (free, called_without) = (Arc::clone(&self.free), Arc::clone(&self.called_without));
        Self { free, called_without, has_place: false }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        *self.free.lock().unwrap() += usize::from(self.has_place);
    }
}

impl Service<Request<Body>> for Places {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        let mut free = self.free.lock().unwrap();
        if !self.has_place && *free == 0 {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        *free -= usize::from(!self.has_place);
        self.has_place = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let had_place = std::mem::take(&mut self.has_place);
        self.called_without.fetch_add(usize::from(!had_place), Ordering::SeqCst);
        std::future::ready(Ok(Response::new(Body::default())))
    }
}

#[tokio::test]
async fn a_service_that_is_not_ready_keeps_the_layer_from_being() {
    let places = Places::new(0);
    let (layer, limiter, _clock) = limit(Limit::per_minute(5));
    let mut service = layer.layer(places.clone());
    let mut ready = tokio_test_poll(&mut service);
    assert!(ready.is_pending());
    *places.free.lock().unwrap() = 1;
    ready = tokio_test_poll(&mut service);
    assert!(ready.is_ready());
    assert_eq!(limiter.peek(&()).remaining, 5, "being ready costs nothing");
    assert_eq!(service.call(get("/")).await.unwrap().status(), 200);
    assert_eq!(places.called_without.load(Ordering::SeqCst), 0);
}

fn tokio_test_poll<S: Service<Request<Body>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut Context::from_waker(std::task::Waker::noop()))
}

#[tokio::test]
async fn who_is_refused_leaves_the_place_to_the_next() {
    let places = Places::new(1);
    let (layer, _limiter, clock) = limit(Limit::per_minute(1));
    let mut service = layer.layer(places.clone());
    assert_eq!(service.ready().await.unwrap().call(get("/")).await.unwrap().status(), 200);
    *places.free.lock().unwrap() = 1;
    assert_eq!(service.ready().await.unwrap().call(get("/")).await.unwrap().status(), 429);
    clock.advance(Duration::from_secs(60));
    assert_eq!(service.ready().await.unwrap().call(get("/")).await.unwrap().status(), 200);
    assert_eq!(places.called_without.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn who_waits_for_its_turn_takes_no_place_meanwhile() {
    let places = Places::new(1);
    let (layer, limiter, clock) = limit(Limit::leaky_queue(tidegate::Rate::per_second(1), 5));
    let mut service = layer.layer(places.clone());
    assert_eq!(service.ready().await.unwrap().call(get("/")).await.unwrap().status(), 200);
    *places.free.lock().unwrap() = 1;
    let mut held = Box::pin(service.ready().await.unwrap().call(get("/")));
    let mut poll = || held.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(poll().is_pending());
    drop(service);
    assert_eq!((limiter.held(), places.free()), (1, 1));
    clock.advance(Duration::from_secs(1));
    let Poll::Ready(Ok(answer)) = poll() else { panic!("it is its turn") };
    assert_eq!(answer.status(), 200);
    assert_eq!(places.called_without.load(Ordering::SeqCst), 0);
}
