//! HTTP/2 that is not as it should be, by frames that no library would send.

use std::io::{Read as _, Write as _};
use std::sync::mpsc::{self, Receiver};

use tidegate_gateway::{Gateway, GatewayConfig};

use crate::frames::{self, Client, END_HEADERS, END_STREAM, Outcome};
use crate::support::*;

/// A server that tells the first line and the headers that it was sent, and answers `ok`.
fn recorded() -> (Gateway, Receiver<String>) {
    let (tell, told) = mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            if stream.read_exact(&mut body).is_err() {
                return;
            }
            tell.send(head).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    (start(GatewayConfig::to(upstream.url())), told)
}

/// A head with some things changed, left out or added.
fn head(changed: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let mut head: Vec<_> = frames::GET
        .iter()
        .filter(|(name, _)| changed.iter().all(|(other, _)| other != name))
        .copied()
        .collect();
    // What stands for the host comes before what does not, as it has to.
    head.extend(changed.iter().filter(|(name, value)| name.starts_with(':') && *value != "-"));
    head.extend(changed.iter().filter(|(name, _)| !name.starts_with(':')));
    head
}

#[test]
fn heads_that_are_wrong_go_no_further() {
    let (gateway, told) = recorded();
    for changed in [
        // What only HTTP/1 has.
        &[("connection", "close")][..],
        &[("connection", "x-y"), ("x-y", "z")],
        &[("keep-alive", "timeout=5")],
        &[("proxy-connection", "keep-alive")],
        &[("transfer-encoding", "chunked")],
        &[("upgrade", "websocket")],
        &[("te", "gzip")],
        // Lines within lines.
        &[("x", "y\r\nz: w")],
        &[("x", "y\nz: w")],
        &[("x", "y\0")],
        &[("x\r\ny", "z")],
        &[("x: y\r\nz", "w")],
        &[("x y", "z")],
        &[("", "z")],
        &[("X-Upper", "z")],
        &[(":method", "GET / HTTP/1.1\r\nx: y\r\n\r\nGET")],
        &[(":method", "GE T")],
        &[(":path", "/ HTTP/1.1\r\nx: y\r\n\r\n")],
        &[(":path", "/a b")],
        &[(":path", "")],
        &[(":authority", "a\r\nx: y")],
        &[(":authority", "a b")],
        &[(":authority", "a/b")],
        // Heads that lack something, or have it twice.
        &[(":method", "-")],
        &[(":path", "-")],
        &[(":scheme", "-")],
        &[(":path", "/a"), (":path", "/b")],
        &[(":authority", "a"), (":authority", "b")],
        &[(":unknown", "x")],
        &[(":status", "200")],
        // Tunnels, of both kinds.
        &[(":protocol", "websocket"), (":method", "CONNECT")],
    ] {
        let mut client = Client::begin(&gateway);
        client.ask(1, END_STREAM, &head(changed));
        let (outcome, data) = client.outcome(1);
        let text = String::from_utf8_lossy(&data);
        let is_refused = outcome != Outcome::Whole || text.contains("\"status\":400");
        assert!(is_refused, "{changed:?}: {outcome:?} {text}");
    }
    assert!(told.try_recv().is_err(), "something has reached the upstream");
}

#[test]
fn heads_that_the_gateway_judges_itself_are_answered() {
    let (gateway, told) = recorded();
    let mut client = Client::begin(&gateway);
    let mut stream = 1;
    for (changed, status) in [
        (&[("host", "b")][..], 400),
        (&[("host", "a"), ("host", "a")], 400),
        (&[(":authority", "-")], 400),
        (&[(":authority", "me@a")], 400),
        (&[(":path", "*")], 400),
        (&[("expect", "a-pony")], 417),
    ] {
        client.ask(stream, END_STREAM, &head(changed));
        let (outcome, data) = client.outcome(stream);
        assert_eq!(outcome, Outcome::Whole, "{changed:?}");
        let problem: serde_json::Value = serde_json::from_slice(&data).unwrap_or_default();
        assert_eq!(problem["status"], status, "{changed:?}: {problem}");
        stream += 2;
    }
    client.ask(stream, END_STREAM, &[(":method", "CONNECT"), (":authority", "a:80")]);
    let (_, data) = client.outcome(stream);
    assert!(String::from_utf8_lossy(&data).contains("405"), "{data:?}");
    assert!(told.try_recv().is_err(), "something has reached the upstream");
    // The connection goes on.
    client.ask(stream + 2, END_STREAM, frames::GET);
    assert_eq!(client.outcome(stream + 2), (Outcome::Whole, b"ok".to_vec()));
}

#[test]
fn heads_that_are_right_reach_the_upstream_in_one_form() {
    let (gateway, told) = recorded();
    let added = "x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: a\r\n\
                 forwarded: for=127.0.0.1;host=\"a\";proto=http\r\nvia: 1.1 tidegate\r\n";
    for (changed, line, rest) in [
        (&[][..], "GET /", ""),
        (&[("host", "a")], "GET /", ""),
        (&[(":authority", "-"), ("host", "a")], "GET /", ""),
        (&[(":path", "//b/../c?d")], "GET //b/../c?d", ""),
        (&[(":method", "OPTIONS"), (":path", "*")], "OPTIONS *", ""),
        (&[("cookie", "a=b"), ("cookie", "c=d")], "GET /", "cookie: a=b; c=d\r\n"),
        (&[("te", "trailers")], "GET /", "te: trailers\r\n"),
        (&[(":scheme", "https")], "GET /", ""),
        (&[("expect", "100-continue")], "GET /", ""),
    ] {
        let mut client = Client::begin(&gateway);
        client.ask(1, END_STREAM, &head(changed));
        assert_eq!(client.outcome(1), (Outcome::Whole, b"ok".to_vec()), "{changed:?}");
        let seen = told.recv_timeout(GUARD).unwrap();
        let mut seen: Vec<&str> = seen.trim_end().split("\r\n").collect();
        let wanted = format!("{line} HTTP/1.1\r\nhost: a\r\n{added}{rest}");
        let mut wanted: Vec<&str> = wanted.trim_end().split("\r\n").collect();
        seen[1..].sort_unstable();
        wanted[1..].sort_unstable();
        assert_eq!(seen, wanted, "{changed:?}");
    }
}

#[test]
fn lengths_are_what_they_say_or_the_stream_ends() {
    let (gateway, told) = recorded();
    for (lengths, body) in [
        (&["1"][..], "ab"),
        (&["3"], "ab"),
        (&["+2"], "ab"),
        (&["2", "3"], "ab"),
        (&["2, 3"], "ab"),
        (&["x"], "ab"),
        (&[""], "ab"),
    ] {
        let mut client = Client::begin(&gateway);
        let lengths: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
        client.ask(1, 0, &[frames::POST, &lengths].concat());
        client.send(frames::DATA, END_STREAM, 1, body.as_bytes());
        let (outcome, data) = client.outcome(1);
        let text = String::from_utf8_lossy(&data);
        assert!(outcome != Outcome::Whole || text.contains("\"status\":400"), "{lengths:?} {text}");
    }
    if let Ok(seen) = told.try_recv() {
        panic!("this has reached the upstream as a whole request: {seen}");
    }
    // Those that agree are told once.
    let mut client = Client::begin(&gateway);
    client.ask(1, 0, &[frames::POST, &[("content-length", "2")]].concat());
    client.send(frames::DATA, END_STREAM, 1, b"ab");
    assert_eq!(client.outcome(1), (Outcome::Whole, b"ok".to_vec()));
    assert_eq!(told.recv_timeout(GUARD).unwrap().matches("content-length: 2\r\n").count(), 1);
}

#[test]
fn heads_have_a_size() {
    let (gateway, told) = recorded();
    let large = "y".repeat(9000);
    // One that is too large to be kept is still answered, and ends nothing else.
    let mut client = Client::begin(&gateway);
    let block = frames::block(&[frames::GET, &[("x", &large), ("z", &large)]].concat());
    let (first, rest) = block.split_at(16_000);
    client.send(frames::HEADERS, END_STREAM, 1, first);
    client.send(frames::CONTINUATION, END_HEADERS, 1, rest);
    let (outcome, _) = client.outcome(1);
    assert!(matches!(outcome, Outcome::Whole | Outcome::Reset), "{outcome:?}");
    assert!(told.try_recv().is_err(), "it has reached the upstream");
    client.ask(3, END_STREAM, frames::GET);
    assert_eq!(client.outcome(3), (Outcome::Whole, b"ok".to_vec()));
    // One that does not end at all is not kept.
    let mut client = Client::begin(&gateway);
    client.send(frames::HEADERS, END_STREAM, 1, &frames::block(frames::GET));
    let more = frames::block(&[("x", &"y".repeat(16_000))]);
    for _ in 0..1000 {
        client.send(frames::CONTINUATION, 0, 1, &more);
    }
    assert_ne!(client.outcome(1).0, Outcome::Whole);
}

#[test]
fn targets_have_a_size() {
    let (gateway, told) = recorded();
    let path = format!("/{}", "a".repeat(9000));
    let mut client = Client::begin(&gateway);
    let head = [frames::GET[0], frames::GET[1], (":path", &path), frames::GET[3]];
    client.ask(1, END_STREAM, &head);
    let (outcome, data) = client.outcome(1);
    assert_eq!(outcome, Outcome::Whole);
    let problem: serde_json::Value = serde_json::from_slice(&data).unwrap();
    assert_eq!(problem["status"], 414, "{problem}");
    assert!(told.try_recv().is_err(), "it has reached the upstream");
}

#[test]
fn streams_that_are_begun_and_given_up_have_a_bound() {
    let (gateway, told) = recorded();
    let mut client = Client::begin(&gateway);
    for n in 0..20_000u32 {
        client.ask(1 + 2 * n, END_STREAM, frames::GET);
        client.send(frames::RST_STREAM, 0, 1 + 2 * n, &[0, 0, 0, 8]);
    }
    // Whoever does nothing else is sent away, or has had little done for it.
    while client.next().is_some_and(|frame| frame.kind != frames::GOAWAY) {}
    let count = told.try_iter().count();
    assert!(count < 2_000, "{count} of them reached the upstream");
    // Others are served.
    assert_eq!(curl(&["--http2-prior-knowledge", &url(&gateway, "/")]), "ok");
}

#[test]
fn what_is_no_http2_at_all_ends() {
    let (gateway, _) = recorded();
    let mut stream = connect(&gateway);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap_or_default();
    assert!(!bytes.windows(4).any(|some| some == b"HTTP"), "{bytes:?}");
    // The preface, but for its end, is a request of a version that is not spoken.
    let answer = say(&gateway, "PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(status(&answer), "505", "{answer}");
}
