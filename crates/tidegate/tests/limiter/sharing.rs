//! A limiter goes everywhere: between threads, into tasks, and where there is no runtime.

use std::time::Duration;

use tidegate::{
    BuildError, Decision, Each, Limit, Limiter, ManualClock, MemoryStore, Permit, Reservation,
    SystemClock, WaitError,
};

use crate::{SECOND, limiter};

fn is_send<T: Send>(_: &T) {}
fn is_shared<T: Clone + Send + Sync + 'static>() {}
fn is_thread_safe<T: Send + Sync + 'static>() {}

#[test]
fn a_limiter_can_be_shared() {
    is_shared::<Limiter>();
    is_shared::<Limiter<MemoryStore, ManualClock>>();
    is_shared::<SystemClock>();
    is_shared::<ManualClock>();
    is_shared::<Decision>();
    is_shared::<BuildError>();
    is_thread_safe::<Permit<MemoryStore, SystemClock>>();
    is_thread_safe::<Reservation<MemoryStore, SystemClock>>();
    is_thread_safe::<WaitError<tidegate::MemoryError>>();
    // What compiles holds; a clone is the same limiter.
    let (_, limiter) = limiter(Limit::per_hour(2));
    assert_eq!(limiter.clone().check("user:42").remaining, 1);
    assert_eq!(limiter.check("user:42").remaining, 0);
}

#[test]
fn futures_may_move_between_threads() {
    let (_, limiter) = limiter(Limit::concurrency(20));
    let (key, pair) = ("user:42".to_owned(), Each(("user:42", ())));
    is_send(&limiter.on(&key).check_async());
    is_send(&limiter.on(&key).check_each_async());
    is_send(&limiter.on(&key).peek_async());
    is_send(&limiter.on(&key).up_to_async());
    is_send(&limiter.on(&key).force_async());
    is_send(&limiter.on(&key).refund_async());
    is_send(&limiter.on(&key).reset_async());
    is_send(&limiter.on(&key).until_ready());
    is_send(&limiter.on(&key).until_ready_within(SECOND));
    is_send(&limiter.on(&key).reserve(SECOND));
    is_send(&limiter.on(&pair).acquire_within(SECOND));
    let permit = limiter.on(&key).acquire().unwrap();
    is_send(&permit.renew());
    drop(permit);
    // A future that was never polled has asked for nothing.
    assert_eq!(limiter.peek(&key).remaining, 20);
    assert_eq!(limiter.waiters(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_runtime_share_one_limiter() {
    let (_, limiter) = limiter(Limit::per_hour(100));
    let tasks: Vec<_> = (0..40)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..10 {
                    admitted += u32::from(limiter.on("user:42").check_async().await?.allowed);
                    tokio::task::yield_now().await;
                }
                Ok::<u32, tidegate::MemoryError>(admitted)
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap().unwrap();
    }
    assert_eq!(admitted, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_a_runtime_wait_and_are_all_served() {
    let limiter = Limiter::new(Limit::per_second(2000).burst(1)).unwrap();
    let start = limiter.now();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(
                async move { limiter.on(&7_u64).until_ready_within(60 * SECOND).await.is_ok() },
            )
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap());
    }
    // One at once, the others half a millisecond apart.
    assert!(limiter.now().since(start) >= Duration::from_micros(19 * 500));
}

#[test]
fn a_plain_thread_needs_no_runtime() {
    let limiter = Limiter::new(Limit::per_second(1000).burst(1)).unwrap();
    let start = limiter.now();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let limiter = limiter.clone();
            std::thread::spawn(move || {
                (0..3).all(|_| limiter.on("user:42").wait_blocking(60 * SECOND).is_ok())
            })
        })
        .collect();
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    assert!(limiter.now().since(start) >= Duration::from_millis(5));
}
