//! Any bytes as a RESP client's: in whatever pieces they come, the answers are the same, and they are
//! answers.
//!
//! The first byte says how large the pieces are, and whether there is a password (`x`).
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter, Timestamp};
use tidegate_rules::{File, Options, Rules};
use tidegate_server::{Service, ServiceClock, fuzzing};

const RULES: &str = "
domain: a
descriptors:
  - { key: k, rate_limit: { requests_per_unit: 3, unit: second, algorithm: token_bucket } }
  - { key: w, rate_limit: { requests_per_unit: 2, unit: hour } }
";

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let password = (first & 1 != 0).then_some("x");
    let size = usize::from(first >> 1) + 1;
    let whole = fuzzing::resp(&service(), password, &[bytes]);
    let pieces: Vec<_> = bytes.chunks(size).collect();
    let same = fuzzing::resp(&service(), password, &pieces);
    // INFO tells the time, and how many commands there have been.
    if !bytes.windows(4).any(|word| word.eq_ignore_ascii_case(b"info")) {
        assert_eq!(same, whole);
    }
    let mut rest = &whole.0[..];
    while !rest.is_empty() {
        rest = after_answer(rest).expect("an answer");
    }
});

fn service() -> Arc<Service> {
    let loaded = Rules::load(&[File { name: "a.yaml", text: RULES }], &Options::default());
    let rules = loaded.rules.expect("the rules are right");
    let clock = ServiceClock::Manual(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
    let store = MemoryStore::builder().shards(1).max_keys(1000).build();
    let limits = RuleLimiter::build(store.into(), clock, rules, Modes::default());
    Arc::new(Service::new(limits.expect("there is room for two limits"), 0.8))
}

/// What is after the answer that the bytes begin with.
fn after_answer(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.windows(2).position(|end| end == b"\r\n")?;
    let (line, mut rest) = (&bytes[1..end], &bytes[end + 2..]);
    let number = std::str::from_utf8(line).ok().and_then(|line| line.parse::<i64>().ok());
    let parts = match bytes.first()? {
        b'+' | b'-' | b',' | b'_' => 0,
        b':' => number.map(|_| 0)?,
        b'$' if number == Some(-1) => 0,
        b'$' | b'=' => {
            let length = usize::try_from(number?).ok()?;
            return rest.get(length..)?.strip_prefix(b"\r\n");
        }
        b'*' | b'~' => number?,
        b'%' => number? * 2,
        _ => return None,
    };
    for _ in 0..parts {
        rest = after_answer(rest)?;
    }
    Some(rest)
}
