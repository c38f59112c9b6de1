//! At most so many at once: two downloads for each user, the others wait for their turn.
//!
//! `cargo run -p tidegate --example concurrency`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate::{Limit, Limiter};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // A permit that nobody gives back, because its holder died, ends after half a minute.
    let limiter = Limiter::new(Limit::concurrency(2).lease(Duration::from_secs(30)))?;

    // Without waiting: yes or no.
    let first = limiter.on("user:42").acquire().map_err(|_| "refused")?;
    let second = limiter.on("user:42").acquire().map_err(|_| "refused")?;
    assert!(limiter.on("user:42").acquire().is_err());
    assert!(limiter.on("user:43").acquire().is_ok());
    println!("user:42 has two downloads and gets no third");
    // A download that takes long says now and then that it is alive.
    assert!(first.renew().await?);
    drop((first, second));

    // Waiting: twenty downloads, never more than two of them at the same time.
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut downloads = Vec::new();
    for _ in 0..20 {
        let (limiter, running, most) = (limiter.clone(), Arc::clone(&running), Arc::clone(&most));
        downloads.push(tokio::spawn(async move {
            let permit = limiter.on("user:42").acquire_within(Duration::from_secs(60)).await?;
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The download itself: the others get to run meanwhile.
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            drop(permit);
            Ok::<(), tidegate::WaitError<tidegate::MemoryError>>(())
        }));
    }
    for download in downloads {
        download.await??;
    }
    let most = most.load(Ordering::SeqCst);
    assert_eq!(most, 2);
    println!("20 downloads done, {most} at once at the most");
    Ok(())
}
