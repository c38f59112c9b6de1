//! Files that are not, or no longer, what a store has written.

use std::fs;

use proptest::prelude::*;
use tempfile::tempdir;
use tidegate_core::{Limit, LimitSpec, Rate, Refill};
use tidegate_store::{Item, MemoryStore, Op, RegisterError, SnapshotError};

use crate::support::{END, START, ask, checksum, one_shard, register, remaining, snapshot_file};
use crate::{refused, restored};

/// A small snapshot with a list, a narrow state and a wide one.
fn small() -> Vec<u8> {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let store = one_shard();
    let specs = [
        Limit::per_hour(3),
        Limit::sliding_log(Rate::per_hour(3)),
        Limit::fixed_window(Rate::per_hour(3)),
    ];
    for (number, spec) in specs.into_iter().enumerate() {
        let limit = register(&store, &number.to_string(), spec);
        ask(&store, Op::Check, &[Item::new(b"key", &limit)], 2, START);
    }
    assert_eq!(store.snapshot(&path, START).unwrap(), 3);
    fs::read(&path).unwrap()
}

/// What became of the bytes, written to a file and read.
fn refusal(bytes: &[u8]) -> SnapshotError {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, bytes).unwrap();
    refused(&path)
}

/// The text of a refusal, with the path cut down to its name.
fn text(bytes: &[u8]) -> String {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, bytes).unwrap();
    let folder = format!("{}/", folder.path().display());
    refused(&path).to_string().replace(&folder, "")
}

const CHECKSUM: &str =
    "snapshot `state` is damaged: its checksum does not match; it was cut off or changed";

#[test]
fn the_small_snapshot_is_whole() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, small()).unwrap();
    let (store, keys) = restored(MemoryStore::builder(), &path, START);
    assert_eq!(keys, 3);
    let limit = register(&store, "1", Limit::sliding_log(Rate::per_hour(3)));
    assert_eq!(remaining(&store, b"key", &limit, START), 1);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    let bytes = small();
    for count in 0..bytes.len() {
        let error = refusal(&bytes[..count]);
        match (&error, count) {
            (SnapshotError::Foreign { .. }, 0..8) => {}
            (SnapshotError::Damaged { what, .. }, 8..) => {
                let expected = match count {
                    8..12 => "it is cut off",
                    12..16 => "it is cut off before its checksum",
                    _ => "its checksum does not match; it was cut off or changed",
                };
                assert_eq!(*what, expected, "after {count} bytes");
            }
            _ => unreachable!("after {count} bytes: {error:?}"),
        }
    }
}

#[test]
fn a_file_with_any_byte_changed_is_refused() {
    let bytes = small();
    for position in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[position] ^= flip;
            let error = refusal(&changed);
            match (&error, position) {
                (SnapshotError::Foreign { .. }, 0..8) => {}
                (SnapshotError::Version { found, known: 1, .. }, 8..12) => assert_ne!(*found, 1),
                (SnapshotError::Damaged { what, .. }, 12..) => {
                    assert_eq!(*what, "its checksum does not match; it was cut off or changed");
                }
                _ => unreachable!("byte {position} by {flip}: {error:?}"),
            }
        }
    }
}

#[test]
fn refusals_say_what_is_wrong_with_which_file() {
    assert_eq!(text(b""), "`state` is not a tidegate snapshot");
    assert_eq!(text(b"REDIS0011\xfa\x09redis-ver"), "`state` is not a tidegate snapshot");
    assert_eq!(
        text(&snapshot_file(2, 0, &END)),
        "snapshot `state` has format version 2, and this program reads version 1"
    );
    let mut longer = small();
    longer.push(0);
    assert_eq!(text(&longer), CHECKSUM);
    assert_eq!(text(&small()[..200]), CHECKSUM);
}

/// A record of a key: its limit, its fingerprint, and the words of its state.
fn key(limit: u32, words: &[u64]) -> Vec<u8> {
    let mut record = [1_u32, limit].map(u32::to_le_bytes).concat();
    record.extend(7_u64.to_le_bytes());
    record.extend((words.len() as u32).to_le_bytes());
    record.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    record
}

/// A record of a limit.
fn limit(index: u32, id: &[u8], spec: &[u8]) -> Vec<u8> {
    let mut record = [2_u32, index].map(u32::to_le_bytes).concat();
    for text in [id, spec] {
        record.extend((text.len() as u32).to_le_bytes());
        record.extend(text);
    }
    record
}

/// Records that no store writes, under a checksum that is right.
#[test]
fn records_that_make_no_sense_are_refused() {
    let bucket = limit(0, b"id", b"token_bucket 1/1h");
    let huge = |tag: u32| [tag, u32::MAX, u32::MAX, u32::MAX].map(u32::to_le_bytes).concat();
    let cases = [
        (vec![99, 0, 0, 0], "it holds a record of unknown kind"),
        ([key(5, &[1]), END.to_vec()].concat(), "its states do not belong to its limits"),
        (
            [bucket.clone(), key(0, &[1, 2, 3]), END.to_vec()].concat(),
            "its states do not belong to its limits",
        ),
        ([limit(0, b"id", b"nonsense"), END.to_vec()].concat(), "a limit in it cannot be read"),
        ([limit(0, b"\xff", b"gcra 1/1s"), END.to_vec()].concat(), "a name in it is not text"),
        (huge(2), "it is cut off"),
        ([1_u32, 0, 0, 0, u32::MAX].map(u32::to_le_bytes).concat(), "it is cut off"),
    ];
    for (records, what) in cases {
        let found = text(&snapshot_file(1, 5, &records));
        assert_eq!(found, format!("snapshot `state` is damaged: {what}"));
    }
    // And the same bucket with a state of its own is none of these.
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    let paid_at = START.as_nanos() + 1800 * 1_000_000_000;
    let records = [bucket, key(0, &[paid_at, 0]), END.to_vec()].concat();
    fs::write(&path, snapshot_file(1, 5, &records)).unwrap();
    assert_eq!(restored(MemoryStore::builder(), &path, START).1, 1);
}

#[test]
fn more_limits_than_the_store_may_know_is_no_damage() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, small()).unwrap();
    let error = MemoryStore::builder().max_limits(2).restore(&path, START).keys.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("the limits of snapshot `{}` do not fit the store", path.display())
    );
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.downcast_ref::<RegisterError>().is_some(), "{source}");
}

/// One of each state, for files made of any words.
fn specs() -> [LimitSpec; 9] {
    let rate = Rate::per_hour(3);
    [
        Limit::token_bucket(rate),
        Limit::token_bucket(Rate::per_second(997)),
        Limit::token_bucket(rate).refill(Refill::Interval),
        Limit::fixed_window(rate),
        Limit::sliding_counter(rate),
        Limit::sliding_counter(rate).soft(50, std::time::Duration::from_secs(60)),
        Limit::warm_up(rate, std::time::Duration::from_secs(60)),
        Limit::sliding_log(rate),
        Limit::concurrency(3),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 400, ..Default::default() })]

    /// Whatever the records of a file say, it is read or refused, and what was read can be used.
    #[test]
    fn any_words_are_read_or_refused(
        which in 0..9_usize,
        words in prop::collection::vec(
            prop_oneof![
                any::<u64>(),
                0..5_u64,
                (0..7200_u64).prop_map(|secs| START.as_nanos() + secs * 1_000_000_000),
                Just(u64::MAX),
            ],
            0..9,
        ),
    ) {
        let spec = specs()[which];
        let text = spec.build().unwrap().to_string();
        let records =
            [limit(0, b"id", text.as_bytes()), key(0, &words), END.to_vec()].concat();
        let folder = tempdir().unwrap();
        let path = folder.path().join("state");
        fs::write(&path, snapshot_file(1, 5, &records)).unwrap();
        let found = MemoryStore::builder().shards(1).restore(&path, START);
        match found.keys {
            Ok(keys) => {
                prop_assert_eq!(keys, found.store.len());
                prop_assert!(found.store.live_keys(START).count() <= 1);
                found.store.snapshot(&path, START).unwrap();
                prop_assert_eq!(restored(MemoryStore::builder(), &path, START).1, keys);
                found.store.sweep(START);
            }
            Err(SnapshotError::Damaged { .. }) => prop_assert!(found.store.is_empty()),
            Err(error) => prop_assert!(false, "{error:?}"),
        }
    }

    /// Any bytes at all, under a checksum that is right.
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..4_u8], 0..200),
        cut in any::<prop::sample::Index>(),
    ) {
        // A real file whose tail is replaced.
        let whole = small();
        let mut mixed = whole[..12 + cut.index(whole.len() - 28)].to_vec();
        mixed.extend(bytes);
        mixed.extend(checksum(&mixed));
        let folder = tempdir().unwrap();
        let path = folder.path().join("state");
        fs::write(&path, &mixed).unwrap();
        let found = MemoryStore::builder().shards(1).restore(&path, START);
        match found.keys {
            Ok(keys) => prop_assert!(keys <= 3),
            Err(error) => {
                prop_assert!(matches!(error, SnapshotError::Damaged { .. }), "{error:?}");
                prop_assert!(found.store.is_empty());
            }
        }
    }
}
