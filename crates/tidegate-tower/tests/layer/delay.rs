//! Limits that shape: requests are held until their turn, in order, evenly spaced.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use tidegate::{Clock, Limit, Limiter, ManualClock, Rate, Timestamp};
use tidegate_tower::{TidegateLayer, key};
use tokio::time::Instant;
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

use crate::{Body, Counting, get, header, limit, limiter, rules};

/// Tokio's clock, which a test may stop.
#[derive(Clone)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    type Sleep = tokio::time::Sleep;

    fn now(&self) -> Timestamp {
        Timestamp::from_secs(1_700_000_000) + self.0.elapsed()
    }

    fn sleep_until(&self, moment: Timestamp) -> tokio::time::Sleep {
        tokio::time::sleep(moment.since(self.now()))
    }
}

type Log = Arc<Mutex<Vec<(String, Duration)>>>;

#[tokio::test(start_paused = true)]
async fn requests_leave_in_order_and_evenly_spaced() {
    let began = Instant::now();
    let limiter = Limiter::builder()
        .limit(Limit::leaky_queue(Rate::per_second(10), 50))
        .clock(TokioClock(began))
        .build()
        .unwrap();
    let user = http::HeaderName::from_static("x-user");
    let layer = TidegateLayer::new(limiter.clone(), key::header(user));
    let log = Log::default();
    let service = layer.layer(service_fn({
        let log = Arc::clone(&log);
        move |request: Request<Body>| {
            log.lock().unwrap().push((request.uri().path().to_owned(), began.elapsed()));
            std::future::ready(Ok::<_, Infallible>(Response::new(Body::default())))
        }
    }));
    let ask = |user: &str, number: usize| {
        let request = Request::get(format!("/{user}/{number}")).header("x-user", user);
        service.clone().oneshot(request.body(Body::default()).unwrap())
    };
    let mut tasks = Vec::new();
    for number in 0..40 {
        tasks.push(tokio::spawn(ask("ada", number)));
        tasks.push(tokio::spawn(ask("bob", number)));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().unwrap().status(), 200);
    }
    assert_eq!(limiter.held(), 0);
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 80, "each is answered once");
    for user in ["ada", "bob"] {
        let mine = log.iter().filter(|(path, _)| path.starts_with(&format!("/{user}/")));
        for (number, (path, at)) in mine.enumerate() {
            assert_eq!(*path, format!("/{user}/{number}"));
            // Tokio's timers have milliseconds.
            let due = Duration::from_millis(100 * number as u64);
            assert!(*at >= due && *at <= due + Duration::from_millis(2), "{path} at {at:?}");
        }
    }
}

#[tokio::test]
async fn who_finds_the_queue_full_is_refused() {
    let (layer, limiter, _clock) = limit(Limit::leaky_queue(Rate::per_second(1), 2));
    let service = layer.layer(Counting::new());
    let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(service.clone().oneshot(get("/")))).collect();
    let mut states: Vec<bool> = Vec::new();
    for future in &mut waiting {
        states.push(poll(future).is_ready());
    }
    assert_eq!(states, [true, false, false]);
    let refused = service.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "retry-after"), Some("1"));
    assert_eq!(limiter.held(), 2);
    drop(waiting);
    assert_eq!(limiter.held(), 0);
}

fn poll<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn those_behind_one_who_leaves_move_up() {
    let (layer, limiter, clock) = limit(Limit::leaky_queue(Rate::per_second(1), 10));
    let service = layer.layer(Counting::new());
    let ask = || Box::pin(service.clone().oneshot(get("/")));
    let mut held: Vec<_> = (0..5).map(|_| ask()).collect();
    let states: Vec<bool> = held.iter_mut().map(|it| poll(it).is_ready()).collect();
    assert_eq!(states, [true, false, false, false, false]);
    // Due after 1, 2, 3 and 4 seconds; the one of 2 goes away.
    drop(held.remove(2));
    drop(held.remove(0));
    let ready = |held: &mut Vec<_>| -> Vec<bool> {
        held.iter_mut().map(|it| poll(it).is_ready()).collect()
    };
    // The last slot is free again, and the next who comes has it.
    held.push(ask());
    assert_eq!(ready(&mut held), [false; 4]);
    for _ in 0..4 {
        clock.advance(Duration::from_millis(999));
        assert!(!ready(&mut held).contains(&true), "nobody is early");
        clock.advance(Duration::from_millis(1));
        assert!(poll(&mut held[0]).is_ready(), "the first goes");
        drop(held.remove(0));
        assert!(!ready(&mut held).contains(&true), "and nobody else");
    }
    assert_eq!(limiter.held(), 0);
}

#[tokio::test]
async fn who_leaves_last_frees_its_place() {
    let (layer, limiter, _clock) = limit(Limit::leaky_queue(Rate::per_second(1), 3));
    let service = layer.layer(Counting::new());
    let mut first = Box::pin(service.clone().oneshot(get("/")));
    assert!(poll(&mut first).is_ready());
    for _ in 0..100 {
        let mut held: Vec<_> =
            (0..3).map(|_| Box::pin(service.clone().oneshot(get("/")))).collect();
        assert!(held.iter_mut().all(|it| poll(it).is_pending()));
        assert_eq!(limiter.peek(&()).remaining, 0);
    }
    assert_eq!((limiter.held(), limiter.peek(&()).remaining), (0, 3));
}

#[tokio::test]
async fn who_leaves_gives_back_what_it_took_elsewhere() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(Limit::leaky_queue(Rate::per_second(1), 5))
        .limit(Limit::per_hour(100))
        .limit(Limit::concurrency(10))
        .clock(clock.clone())
        .build()
        .unwrap();
    let service = TidegateLayer::new(limiter.clone(), key::everybody()).layer(Counting::new());
    drop(service.clone().oneshot(get("/")).await.unwrap());
    let mut held = Box::pin(service.clone().oneshot(get("/")));
    assert!(poll(&mut held).is_pending());
    let left =
        |each: &tidegate::Decisions| each.each.iter().map(|it| it.remaining).collect::<Vec<_>>();
    let peek = || left(&limiter.on(&()).cost(0).check_each());
    assert_eq!(peek(), [4, 98, 9]);
    drop(held);
    assert_eq!(peek(), [5, 99, 10]);
    // Who has had its turn has used it, and only its permit comes back.
    let mut held = Box::pin(service.clone().oneshot(get("/")));
    assert!(poll(&mut held).is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(poll(&mut held).is_ready());
    drop(held);
    assert_eq!(peek(), [5, 98, 10]);
}

#[tokio::test]
async fn rules_hold_requests_and_say_nothing_of_it_to_others() {
    let (layer, clock) = rules(
        "domain: d\nhttp: [ { match: { path: '/{who}' }, descriptors: [ { who: '${path.who}' } ] } ]\n\
         descriptors:\n  - key: who\n    rate_limit: { requests_per_unit: 2, unit: second, \
         algorithm: leaky_bucket, queue: { size: 4, max_delay: 1s }, excess: delay }\n",
    );
    let counting = Counting::new();
    let service = layer.layer(counting.clone());
    let ask = |path: &str| Box::pin(service.clone().oneshot(get(path)));
    let mut held: Vec<_> = (0..3).map(|_| ask("/a")).collect();
    let states: Vec<bool> = held.iter_mut().map(|it| poll(it).is_ready()).collect();
    assert_eq!(states, [true, false, false]);
    // A fourth would wait for longer than a second; somebody else waits for nobody.
    assert_eq!(ask("/a").await.unwrap().status(), 429);
    assert_eq!(ask("/b").await.unwrap().status(), 200);
    assert_eq!(layer.gate().limiter().held(), 2);
    clock.advance(Duration::from_millis(500));
    assert!(poll(&mut held[1]).is_ready());
    assert!(poll(&mut held[2]).is_pending());
    clock.advance(Duration::from_millis(500));
    assert!(poll(&mut held[2]).is_ready());
    assert_eq!(counting.calls(), 4);
}

#[tokio::test]
async fn two_limits_that_shape_hold_for_the_longer() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder()
        .limit(Limit::leaky_queue(Rate::per_second(10), 9))
        .limit(Limit::leaky_queue(Rate::per_second(1), 9))
        .clock(clock.clone())
        .build()
        .unwrap();
    let service = TidegateLayer::new(limiter.clone(), key::everybody()).layer(Counting::new());
    let mut held: Vec<_> = (0..3).map(|_| Box::pin(service.clone().oneshot(get("/")))).collect();
    let states: Vec<bool> = held.iter_mut().map(|it| poll(it).is_ready()).collect();
    assert_eq!(states, [true, false, false]);
    held.remove(0);
    // The tenth of a second that one of them wants is not enough for the other.
    clock.advance(Duration::from_millis(999));
    assert!(held.iter_mut().all(|it| poll(it).is_pending()));
    clock.advance(Duration::from_millis(1));
    assert!(poll(&mut held[0]).is_ready());
    drop(held.remove(0));
    assert!(poll(&mut held[0]).is_pending());
    clock.advance(Duration::from_secs(1));
    assert!(poll(&mut held[0]).is_ready());
    assert_eq!(limiter.held(), 0);
}

#[tokio::test]
async fn one_who_waits_has_one_timer() {
    let (limiter, clock) = limiter(Limit::leaky_queue(Rate::per_second(1), 100));
    let service = TidegateLayer::new(limiter, key::everybody()).layer(Counting::new());
    let mut held: Vec<_> = (0..50).map(|_| Box::pin(service.clone().oneshot(get("/")))).collect();
    let ready = held.iter_mut().map(|it| usize::from(poll(it).is_ready())).sum::<usize>();
    // Only who is at the head of the line has a timer: nothing is polled in vain.
    assert_eq!((ready, clock.sleepers().0), (1, 1));
}

#[tokio::test]
async fn the_service_is_asked_by_whom_it_was_cloned_for() {
    let (layer, _limiter, clock) = limit(Limit::leaky_queue(Rate::per_second(1), 5));
    let counting = Counting::new();
    let mut service = layer.layer(counting.clone());
    assert_eq!(service.ready().await.unwrap().call(get("/")).await.unwrap().status(), 200);
    let mut held = Box::pin(service.ready().await.unwrap().call(get("/")));
    assert!(poll(&mut held).is_pending());
    assert_eq!(counting.calls(), 1);
    clock.advance(Duration::from_secs(1));
    assert!(poll(&mut held).is_ready());
    assert_eq!(counting.calls(), 2);
}
