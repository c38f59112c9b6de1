//! Rules from files that change while requests are decided.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use tidegate::files::{RuleFiles, WatchOptions};
use tidegate::{ManualClock, MemoryStore, Modes, RuleLimiter};

use crate::{Ask, check, remaining};

/// How long to wait for what has to come, before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

fn file(units: u32) -> String {
    format!(
        "
domain: d
descriptors:
  - {{ key: user, rate_limit: {{ requests_per_unit: {units}, unit: hour }} }}
"
    )
}

/// Writes a file as editors do, so that nobody sees half of it.
fn put(path: &Path, text: &str) {
    let new = path.with_file_name(".new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

#[test]
fn a_bad_file_keeps_the_old_rules_and_a_good_one_keeps_what_was_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    fs::write(&path, file(10)).unwrap();
    let files = RuleFiles::new([&path]);
    let texts = files.read().unwrap();
    let rules = texts.load(&Default::default()).rules.unwrap();
    let limiter =
        RuleLimiter::build(MemoryStore::new(), ManualClock::new(), rules, Modes::default())
            .unwrap();
    let (sender, reloads) = mpsc::channel();
    let swapped = limiter.clone();
    let _watch = files
        .watch(WatchOptions::default().since(texts), move |reload| {
            let rules = reload.loaded.unwrap().rules;
            let is_good = rules.is_some();
            if let Some(rules) = rules {
                swapped.replace(rules).unwrap();
            }
            sender.send(is_good).unwrap();
        })
        .unwrap();
    assert!(Ask { cost: 6, ..Ask::new(&limiter) }.descriptors(&["user=ada"]).allowed);

    // Somebody else goes on deciding all the while, and nobody ever sees half of the rules.
    let done = Arc::new(AtomicBool::new(false));
    let busy = std::thread::spawn({
        let (limiter, done) = (limiter.clone(), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Relaxed) {
                let limit = check(&limiter, &["user=bob"]).limits[0].decision.limit;
                assert!(limit == 10 || limit == 20, "{limit}");
            }
        }
    });

    put(&path, "domain: d\ndescriptors: [{ key: user, rate_limit: { unit: minutes } }]");
    assert!(!reloads.recv_timeout(PATIENCE).unwrap());
    assert_eq!(remaining(&check(&limiter, &["user=ada"])), [3]);

    put(&path, &file(20));
    assert!(reloads.recv_timeout(PATIENCE).unwrap());
    assert_eq!(remaining(&check(&limiter, &["user=ada"])), [12]);
    done.store(true, Ordering::Relaxed);
    busy.join().unwrap();
}
