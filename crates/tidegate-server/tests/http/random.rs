//! Bodies that nobody would write, derived from ones that somebody does.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;
use tidegate_server::fuzzing::http_body;

/// The seeds of the fuzz target.
fn seeds() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/http_body");
    let files = std::fs::read_dir(folder).unwrap();
    let mut seeds: Vec<_> =
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    seeds.sort();
    seeds
}

fn check(body: &[u8]) {
    let answers = http_body(body);
    let (lyft, others) = answers.split_last().unwrap();
    match lyft.0 {
        200 | 429 => assert!(serde_json::from_slice::<Value>(&lyft.1).is_ok()),
        400 => assert_eq!(&lyft.1[..], b"Bad Request\n"),
        other => panic!("/json answered {other}"),
    }
    for (status, body) in others {
        let json: Value = serde_json::from_slice(body).unwrap();
        match status {
            200 => assert!(json["status"].is_null(), "{json}"),
            429 => assert_eq!(json["allowed"], false, "{json}"),
            400 | 404 | 503 => assert_eq!(json["status"], *status, "{json}"),
            other => panic!("answered {other}: {json}"),
        }
    }
}

#[test]
fn seeds_are_answered() {
    for seed in seeds() {
        check(&seed);
        let statuses: Vec<u16> = http_body(&seed).iter().map(|(status, _)| *status).collect();
        let is_understood = statuses.iter().any(|status| [200, 429].contains(status));
        assert!(is_understood, "{}: {statuses:?}", String::from_utf8_lossy(&seed));
    }
}

proptest! {
    #[test]
    fn whatever_is_sent_is_answered(
        seed in proptest::sample::select(seeds()),
        other in proptest::sample::select(seeds()),
        edits in vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 0..6),
    ) {
        let mut body = seed;
        for (index, byte, kind) in edits {
            let at = index.index(body.len() + 1);
            match kind {
                0 if at < body.len() => body[at] = byte,
                1 => body.insert(at, byte),
                2 => body.truncate(at),
                _ => {
                    let from = usize::from(byte) % other.len();
                    body.splice(at..at, other[from..].iter().copied());
                }
            }
        }
        check(&body);
    }
}
