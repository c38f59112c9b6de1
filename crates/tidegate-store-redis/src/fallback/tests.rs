use std::sync::Arc;
use std::time::Instant;

use tidegate_core::{Action, Ask, Limit, Retry, Source, Timestamp};
use tidegate_store::{Answer, Call, Item, Mode, OnError, Op, Registered};

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

fn five(id: &str) -> Registered {
    let limit = Limit::per_day(5).build().expect("a limit");
    Registered::with(id, limit, Inherit::Used, ())
}

fn serial(limit: &Registered) -> u64 {
    limit.id().len() as u64
}

fn ask(fallback: &Fallback, items: &[Item<'_>], cost: u64) -> (Outcome, Vec<Answer>) {
    let mut answers = vec![Answer::default(); items.len()];
    let call = Call::new(Op::Check, items, cost, NOW);
    (fallback.answer(&call, &mut answers, serial), answers)
}

#[test]
fn each_limit_answers_by_its_policy() {
    let fallback = Fallback::new(Arc::default());
    let limit = five("a");
    let with = |on_error| Item { on_error, ..Item::new(b"key", &limit) };
    let (outcome, answers) = ask(&fallback, &[with(OnError::Allow)], 1000);
    assert!(outcome.allowed && answers[0].decision.allowed);
    assert_eq!(answers[0].decision.source, Source::Fallback);
    assert_eq!(answers[0].taken.cost, 0);
    let (outcome, answers) = ask(&fallback, &[with(OnError::Deny)], 1);
    assert!(!outcome.allowed);
    let refused = answers[0].decision;
    assert_eq!(
        (refused.retry, refused.limit, refused.source),
        (Retry::Unknown, 5, Source::Fallback)
    );
    for expected in [true, true, true, true, true, false] {
        let (outcome, answers) = ask(&fallback, &[with(OnError::Local)], 1);
        assert_eq!(outcome.allowed, expected);
        assert_eq!(answers[0].decision.source, Source::Fallback);
    }
}

#[test]
fn several_limits_are_all_or_nothing_and_shadow_only_watches() {
    let fallback = Fallback::new(Arc::default());
    let (one, two) = (five("a"), five("bb"));
    let local = Item { on_error: OnError::Local, ..Item::new(b"key", &one) };
    let deny = Item { on_error: OnError::Deny, ..Item::new(b"key", &two) };
    for _ in 0..9 {
        assert!(!ask(&fallback, &[local, deny], 1).0.allowed);
    }
    let watching = Item { mode: Mode::Shadow, ..deny };
    let (outcome, answers) = ask(&fallback, &[local, watching], 5);
    assert!(outcome.allowed, "refusals took nothing, and a shadow refuses nobody");
    assert_eq!(answers[1].decision.source, Source::Shadow);
    assert!(!answers[1].decision.allowed);
    assert!(!ask(&fallback, &[local], 1).0.allowed);
}

#[test]
fn a_key_goes_on_from_what_was_last_seen_and_by_its_share() {
    let stats = Arc::new(Stats::default());
    stats.live_nodes.set(2);
    let fallback = Fallback::new(Arc::clone(&stats));
    let limit = Limit::per_day(100).build().expect("a limit");
    let mut state = None;
    let _ = limit.settle(&mut state, &Ask::at(NOW), 60, Action::Take);
    let limit = Registered::with("c", limit, Inherit::Used, ());
    let item = Item { on_error: OnError::Local, ..Item::new(b"key", &limit) };
    fallback.saw(1, b"key", state.clone(), NOW, Instant::now());
    // Of the 40 left, this one of two nodes has 20.
    assert!(!ask(&fallback, &[item], 21).0.allowed);
    assert!(ask(&fallback, &[item], 20).0.allowed);
    // Seen once more in between, it does not count twice.
    fallback.saw(1, b"key", state, NOW, Instant::now());
    assert!(!ask(&fallback, &[item], 1).0.allowed);
    let (_, answers) = ask(&fallback, &[item], 1);
    assert_eq!(answers[0].decision.limit, 50);
    // A key that was never seen begins full.
    let other = Item { key: b"other", ..item };
    assert!(ask(&fallback, &[other], 50).0.allowed);
    assert!(!ask(&fallback, &[other], 1).0.allowed);
}
