//! Clients that mean no good, or do not know better.

use std::io::Write as _;
use std::time::Duration;

use crate::support::{Answer, encode, ints, start};

#[test]
fn what_is_no_command_ends_the_connection() {
    let server = start(|_| {});
    for (bytes, text) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*5000\r\n", "invalid multibulk length"),
        (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
        (b"*1\r\n\0", "expected '$', got ' '"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*1\r\n$20000\r\n", "invalid bulk length"),
        (b"*1\r\n$1\r\nabc", "expected the end of a bulk string"),
        (b"ECHO \"\r\n", "unbalanced quotes in request"),
        (&[b'*'; 100], "too big mbulk count string"),
        (&[b'x'; 64 * 1024], "too big inline request"),
    ] {
        let mut client = server.client();
        // What came before is answered, what comes after is not.
        client.send(b"PING\r\n");
        client.send(bytes);
        let _ = client.stream.write_all(b"PING\r\n");
        assert_eq!(client.rest(), format!("+PONG\r\n-ERR Protocol error: {text}\r\n"));
    }
    // And the server is none the worse for it.
    assert_eq!(server.client().say("PING"), Answer::Simple("PONG".into()));
}

#[test]
fn strangers_may_say_little() {
    let server = start(|config| config.resp_password = Some("x".into()));
    for (bytes, text) in [
        (&b"*17\r\n"[..], "unauthenticated multibulk length"),
        (b"*2\r\n$4\r\nAUTH\r\n$2000\r\n", "unauthenticated bulk length"),
    ] {
        let mut client = server.client();
        client.send(bytes);
        assert_eq!(client.rest(), format!("-ERR Protocol error: {text}\r\n"));
    }
}

#[test]
fn a_command_may_not_be_endless() {
    let server = start(|_| {});
    let mut client = server.client();
    client.send(b"*4096\r\n");
    let argument = [&b"$16000\r\n"[..], &[b'x'; 16000], b"\r\n"].concat();
    for _ in 0..3 {
        let _ = client.stream.write_all(&argument);
    }
    assert_eq!(client.rest(), "-ERR Protocol error: too big command\r\n");
}

#[test]
fn noise_is_answered_or_not_but_harms_nobody() {
    let server = start(|_| {});
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..50 {
        let noise: Vec<u8> = (0..2000)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                b"*$\r\n01239PING abcCL.THROTTLE\"'\0\xff"[(seed % 32) as usize]
            })
            .collect();
        let mut client = server.client();
        let _ = client.stream.write_all(&noise);
        let _ = client.stream.shutdown(std::net::Shutdown::Write);
        client.drop_all();
    }
    assert_eq!(server.client().say("CL.THROTTLE k 0 1 1"), ints([0, 1, 0, -1, 1]));
}

#[test]
fn who_does_not_read_is_not_listened_to() {
    let server = start(|config| config.resp_threads = 1);
    let mut deaf = server.client();
    // It may send until the buffers of both systems are full, and then the server takes no more.
    let whole = deaf.send_until_stuck(&encode(&["ECHO", &"x".repeat(4000)]));
    // Others on the same thread are served meanwhile.
    let mut other = server.client();
    assert_eq!(other.say("PING"), Answer::Simple("PONG".into()));
    // Once it reads, it gets all its answers, in order.
    for _ in 0..whole {
        assert_eq!(deaf.answer(), Answer::Bulk("x".repeat(4000)));
    }
}

#[test]
fn different_limits_have_a_bound() {
    let server = start(|_| {});
    let mut client = server.client();
    for burst in 0..4096 {
        client.send(&encode(&["CL.THROTTLE", "k", &burst.to_string(), "1", "1", "0"]));
        assert!(matches!(client.answer(), Answer::Array(_)));
    }
    let refused =
        |answer| matches!(answer, Answer::Error(text) if text.starts_with("TRYAGAIN 4096"));
    assert!(refused(client.say("CL.THROTTLE k 5000 1 1")));
    // Those that are known go on.
    assert_eq!(client.say("CL.THROTTLE k 4095 1 1 0"), ints([0, 4096, 4096, -1, 0]));
    // Those that nobody uses make room in the end: it takes two looks to know.
    let mut looks = 0;
    while refused(client.say("CL.THROTTLE k 5000 1 1")) {
        looks += 1;
        assert!(looks < 100_000, "no room is made");
        server.clock.advance(Duration::from_secs(10));
        std::thread::yield_now();
    }
}
