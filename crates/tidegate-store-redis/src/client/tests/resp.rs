//! Replies, in whatever pieces they come.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use crate::client::resp::{Parser, encoded};
use crate::client::{ClientError, Reply};

/// A reply, and how it is written.
fn replies() -> impl Strategy<Value = (Result<Reply, ClientError>, Vec<u8>)> {
    let line = "[ -~]{0,30}";
    let bulk = prop::collection::vec(any::<u8>(), 0..200);
    let leaf = prop_oneof![
        6 => bulk.prop_map(|text| {
            let mut bytes = format!("${}\r\n", text.len()).into_bytes();
            bytes.extend_from_slice(&text);
            bytes.extend_from_slice(b"\r\n");
            (Ok(Reply::Bulk(Bytes::from(text))), bytes)
        }),
        1 => line.prop_map(|text| {
            let bytes = format!("+{text}\r\n").into_bytes();
            (Ok(Reply::Bulk(Bytes::from(text))), bytes)
        }),
        1 => line.prop_map(|text| {
            let bytes = format!("-{text}\r\n").into_bytes();
            (Err(ClientError::Reply(text)), bytes)
        }),
        1 => any::<i64>().prop_map(|n| (Ok(Reply::Integer(n)), format!(":{n}\r\n").into_bytes())),
        1 => Just((Ok(Reply::Null), b"$-1\r\n".to_vec())),
        1 => Just((Ok(Reply::Null), b"*-1\r\n".to_vec())),
    ];
    leaf.prop_recursive(4, 30, 6, |inner| {
        prop::collection::vec(inner, 0..6).prop_map(|all| {
            let mut bytes = format!("*{}\r\n", all.len()).into_bytes();
            all.iter().for_each(|(_, part)| bytes.extend_from_slice(part));
            (
                all.into_iter().map(|(reply, _)| reply).collect::<Result<_, _>>().map(Reply::Array),
                bytes,
            )
        })
    })
}

proptest! {
    #[test]
    fn pieces_make_the_same_replies(
        all in prop::collection::vec(replies(), 1..8),
        cuts in prop::collection::vec(1_usize..60, 1..50),
    ) {
        let whole: Vec<u8> = all.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        let (mut parser, mut buffer, mut got) = (Parser::default(), BytesMut::new(), Vec::new());
        let (mut rest, mut cuts) = (whole.as_slice(), cuts.iter().cycle());
        while !rest.is_empty() {
            let len = (*cuts.next().unwrap()).min(rest.len());
            buffer.extend_from_slice(&rest[..len]);
            rest = &rest[len..];
            while let Some(reply) = parser.take(&mut buffer).unwrap() {
                got.push(reply);
            }
        }
        prop_assert!(buffer.is_empty());
        let expected: Vec<_> = all.into_iter().map(|(reply, _)| reply).collect();
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn nothing_that_comes_does_harm(bytes in prop::collection::vec(
        prop_oneof![Just(b'*'), Just(b'$'), Just(b'-'), Just(b':'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'9'), any::<u8>()],
        0..60,
    )) {
        let (mut parser, mut buffer) = (Parser::default(), BytesMut::new());
        for byte in bytes {
            buffer.extend_from_slice(&[byte]);
            while let Ok(Some(_)) = parser.take(&mut buffer) {}
        }
    }
}

#[test]
fn what_is_not_redis_is_an_error_at_once() {
    let nested = "*1\r\n".repeat(20);
    for text in [
        "HTTP/1.1 400 Bad Request\r\n",
        "$-2\r\n",
        "$99999999999\r\n",
        "$x\r\n",
        "$\r\n",
        ":1x\r\n",
        ":99999999999999999999\r\n",
        "$1\r\nab\r\n",
        "*1\r\n$1\r\nab\r\n",
        "+a\rb",
        nested.as_str(),
    ] {
        let mut buffer = BytesMut::from(text);
        assert!(Parser::default().take(&mut buffer).is_err(), "{text:?}");
    }
    let mut endless = BytesMut::from("+".to_owned().as_str());
    endless.extend_from_slice(&vec![b'a'; 100_000]);
    assert!(Parser::default().take(&mut endless).is_err());
}

#[test]
fn commands_are_arrays_of_strings() {
    assert_eq!(encoded(&[b"GET", b"a\r\n"]), b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
}
