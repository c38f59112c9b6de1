//! The file: whose it is, and how it takes the place of an older one.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::tempdir;
use tidegate_core::{Limit, Rate};
use tidegate_store::{Item, MemoryStore, Op, SnapshotError};

use crate::support::{START, ask, check, one_shard, register, remaining};
use crate::{refused, restored};

/// A store in which one key has used so many of ten.
fn store_with(used: u64) -> MemoryStore {
    let store = one_shard();
    let limit = register(&store, "limit", Limit::per_hour(10));
    assert!(check(&store, b"k", &limit, used, START).allowed);
    store
}

fn used_in(path: &std::path::Path) -> u64 {
    let (store, _) = restored(MemoryStore::builder(), path, START);
    let limit = register(&store, "limit", Limit::per_hour(10));
    10 - remaining(&store, b"k", &limit, START)
}

/// It holds the seed, with which keys could be guessed and made to collide.
#[cfg(unix)]
#[test]
fn only_the_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    // Also when it replaces one that others may read.
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    for used in [3, 4] {
        store_with(used).snapshot(&path, START).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_new_snapshot_replaces_the_old_one_and_leaves_nothing_else() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    for used in 1..5 {
        store_with(used).snapshot(&path, START).unwrap();
        assert_eq!(used_in(&path), used);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A name as long as names can be leaves no room for the one of the unfinished file.
#[test]
fn the_old_snapshot_survives_a_failed_one() {
    let folder = tempdir().unwrap();
    let (short, long) = (folder.path().join("short"), folder.path().join("n".repeat(255)));
    store_with(3).snapshot(&short, START).unwrap();
    fs::rename(&short, &long).unwrap();
    let error = store_with(9).snapshot(&long, START).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write snapshot `{}`", long.display()));
    assert_eq!(used_in(&long), 3);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_folder_in_its_place_stays_and_nothing_is_left_beside_it() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("file"), "precious").unwrap();
    let error = store_with(3).snapshot(&path, START).unwrap_err();
    assert!(matches!(error, SnapshotError::Io { what: "write", .. }), "{error:?}");
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = refused(&path);
    assert_eq!(error.to_string(), format!("cannot read snapshot `{}`", path.display()));
}

#[test]
fn a_missing_folder_is_an_error_and_is_not_made() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("missing").join("state");
    let error = store_with(3).snapshot(&path, START).unwrap_err();
    assert_eq!(error.to_string(), format!("cannot write snapshot `{}`", path.display()));
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.downcast_ref::<std::io::Error>().is_some(), "{source}");
    assert!(!folder.path().join("missing").exists());
}

#[test]
fn a_missing_file_starts_an_empty_store() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let error = refused(&path);
    let SnapshotError::Io { what, source, .. } = &error else { unreachable!("{error:?}") };
    assert_eq!((*what, source.kind()), ("read", std::io::ErrorKind::NotFound));
    assert_eq!(error.to_string(), format!("cannot read snapshot `{}`", path.display()));
}

/// One may be due while another is still being written, from another thread or another store.
#[test]
fn snapshots_to_one_place_at_once_are_each_whole() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let stores: Vec<MemoryStore> = (1..=3).map(store_with).collect();
    for store in &stores {
        let limit = register(store, "more", Limit::fixed_window(Rate::per_hour(10)));
        for number in 0..300_u64 {
            ask(store, Op::Check, &[Item::new(&number.to_le_bytes(), &limit)], 1, START);
        }
    }
    stores[0].snapshot(&path, START).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = stores
            .iter()
            .map(|store| {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..20 {
                        assert_eq!(store.snapshot(path, START).unwrap(), 301);
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let mut read = 0;
            while !done.load(Ordering::Relaxed) || read == 0 {
                assert!((1..=3).contains(&used_in(&path)));
                read += 1;
            }
        });
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A snapshot of a store in use is one of a store that could have been: no key above its limit,
/// none lost that was there before.
#[test]
fn a_store_in_use_can_be_saved() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = MemoryStore::builder().shards(4).build();
    let limit = register(&store, "limit", Limit::per_hour(1000));
    for number in 0..100_u64 {
        assert!(check(&store, &number.to_le_bytes(), &limit, 1, START).allowed);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, limit, done) = (&store, &limit, &done);
        scope.spawn(move || {
            let mut number = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let _ = check(store, &(number % 200).to_le_bytes(), limit, 1, START);
                number += 1;
            }
        });
        for _ in 0..10 {
            let written = store.snapshot(&path, START).unwrap();
            assert!((100..=200).contains(&written), "{written}");
            let (again, keys) = restored(MemoryStore::builder(), &path, START);
            assert_eq!(keys, written);
            let limit = register(&again, "limit", Limit::per_hour(1000));
            for number in 0..100_u64 {
                assert!(remaining(&again, &number.to_le_bytes(), &limit, START) < 1000);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}
