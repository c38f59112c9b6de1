//! A cost that is known only afterwards: reserve the most it can be, settle what it was.
//!
//! `cargo run -p tidegate --example reserve_and_settle`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use tidegate::{Align, Limit, Limiter, Rate};

/// Somebody else's work: how many tokens the answer took, if there was one.
fn answer(question: &str) -> Option<u64> {
    (!question.is_empty()).then_some(340)
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // 10,000 tokens of a language model per user and hour, from the first question on.
    let hourly = Limit::fixed_window(Rate::per_hour(10_000)).align(Align::FirstRequest);
    let limiter = Limiter::new(hourly)?;
    let left = || limiter.peek("user:42").remaining;

    // The answer may take up to 2,000: others must not spend them meanwhile.
    let reserved = limiter.on("user:42").cost(2_000).try_reserve();
    let reserved = reserved.map_err(|refused| format!("come back in {:?}", refused.retry))?;
    assert_eq!(left(), 8_000);
    println!("{} left while the question is being answered", left());

    // It took 340: the rest goes back.
    let tokens = answer("how high is the tide?").ok_or("no answer")?;
    reserved.settle(tokens);
    assert_eq!(left(), 9_660);
    println!("{} left after an answer of {tokens}", left());

    // What fails costs nothing: a reservation that is dropped is cancelled.
    {
        let reserved = limiter.on("user:42").cost(2_000).try_reserve();
        assert!(reserved.is_ok() && answer("").is_none());
    }
    assert_eq!(left(), 9_660);

    // What took more than was reserved is taken all the same.
    limiter.on("user:42").cost(9_000).try_reserve().map_err(|_| "refused")?.settle(9_700);
    assert_eq!(left(), 0);
    println!("{} left after an answer that took more than it said", left());
    Ok(())
}
