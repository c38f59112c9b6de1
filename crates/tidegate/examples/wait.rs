//! Waiting for a limit instead of being refused: calls to a service that takes 200 a second.
//!
//! `cargo run -p tidegate --example wait`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;
use std::time::Duration;

use tidegate::{Limit, Limiter, WaitError};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // One at a time, so every 5 ms.
    let limiter = Limiter::new(Limit::per_second(200).burst(1))?;
    let start = limiter.now();
    for call in 1..=5 {
        limiter.on("payments").until_ready().await?;
        println!("call {call} after {:?}", limiter.now().since(start));
    }
    assert!(limiter.now().since(start) >= Duration::from_millis(4 * 5));

    // Tasks that wait for the same key are served in the order they came.
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let limiter = limiter.clone();
        tasks.push(tokio::spawn(async move {
            limiter.on("mails").until_ready().await.map(|_| limiter.now())
        }));
    }
    let mut served = Vec::new();
    for task in tasks {
        served.push(task.await??);
    }
    assert!(served.is_sorted());

    // A wait that would be too long is refused at once.
    let slow = Limiter::new(Limit::per_hour(1))?;
    assert!(slow.check("report").allowed);
    let refused = slow.on("report").until_ready_within(Duration::from_secs(1)).await;
    let Err(WaitError::TooLong(decision)) = refused else { return Err("an hour is long".into()) };
    println!("no report for {:.0?}", decision.retry.after().unwrap_or_default());

    // Threads wait too, and need no runtime for it.
    let thread = std::thread::spawn(move || {
        limiter.on("payments").wait_blocking(Duration::from_secs(1)).is_ok()
    });
    assert!(thread.join().is_ok_and(|admitted| admitted));
    Ok(())
}
