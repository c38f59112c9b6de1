//! Requests that two programs might read in two ways: what of them reaches the upstream, to the byte.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use tidegate_gateway::{Gateway, GatewayConfig};

use crate::support::*;

/// What the gateway adds to a request for host `a`.
const ADDED: &str = "x-forwarded-for: 127.0.0.1\r\nx-forwarded-proto: http\r\nx-forwarded-host: a\r\n\
                     forwarded: for=127.0.0.1;host=\"a\";proto=http\r\nvia: 1.1 tidegate\r\n";

/// What a connection to the recorder comes to, when it is over.
const OVER: &str = "over";

/// A server that passes on each byte that it is sent, as it was sent, and answers each request.
fn recorder() -> (Server, Receiver<String>) {
    let (tell, told) = mpsc::channel();
    let server = raw_server(move |mut stream, _| {
        while let Some(head) = read_head(&mut stream) {
            let body = read_body(&mut stream, &head);
            let _ = tell.send(head + &body);
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                break;
            }
        }
        // Whoever wanted to know may have seen enough.
        let _ = tell.send(OVER.to_owned());
    });
    (server, told)
}

/// All that has reached the upstream of a gateway, which ends here.
fn all_seen(gateway: Gateway, upstream: &Server, told: &Receiver<String>) -> Vec<String> {
    drop(gateway);
    // Who connects last is accepted last, so all others have been by then.
    let mut last = TcpStream::connect(upstream.address).unwrap();
    last.write_all(b"GET /last HTTP/1.1\r\n\r\n").unwrap();
    read_head(&mut last).unwrap();
    drop(last);
    let (mut seen, mut over) = (Vec::new(), 0);
    while over < upstream.accepted() {
        match told.recv_timeout(GUARD).unwrap() {
            message if message == OVER => over += 1,
            message if message.starts_with("GET /last") => {}
            message => seen.push(message),
        }
    }
    seen
}

/// Reads a body as a simple server would, which believes what it is told.
fn read_body(stream: &mut TcpStream, head: &str) -> String {
    let mut body = Vec::new();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    if let Some(length) = length {
        body.resize(length.parse().unwrap(), 0);
        stream.read_exact(&mut body).unwrap_or_default();
    } else if head.contains("transfer-encoding: chunked\r\n") {
        while !body.ends_with(b"0\r\n\r\n") {
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_err() {
                break;
            }
            body.push(byte[0]);
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

fn recorded() -> (Gateway, Server, Receiver<String>) {
    let (upstream, told) = recorder();
    let mut config = GatewayConfig::to(upstream.url());
    // Those that leave something out are not waited for.
    (config.patience.head, config.patience.body) =
        (Duration::from_millis(300), Duration::from_millis(300));
    (start(config), upstream, told)
}

/// A request that must not go through, with what would be its secret.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn of_what_is_wrong_nothing_reaches_the_upstream() {
    let (gateway, upstream, _told) = recorded();
    let get = |headers: &str| format!("GET / HTTP/1.1\r\n{headers}\r\n");
    let post = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n");
    let cases = [
        // Hosts.
        (get(""), "400"),
        (get("Host: a\r\nHost: a\r\n"), "400"),
        (get("Host: a\r\nhOST: b\r\n"), "400"),
        (get("Host: a\r\nX: y\r\nHost: b\r\n"), "400"),
        (get("Host: a b\r\n"), "400"),
        (get("Host: a/b\r\n"), "400"),
        (get("Host: b@a\r\n"), "400"),
        (get("Host: a\\b\r\n"), "400"),
        (get("Host: a?b\r\n"), "400"),
        (get("Host: a#b\r\n"), "400"),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n".into(), "400"),
        // Lengths.
        (post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"), "400"),
        (post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), "400"),
        (post("transfer-encoding: CHUNKED\r\ncontent-length: 0\r\n"), "400"),
        (post("Content-Length: 0\r\nContent-Length: 40\r\n"), "400"),
        (post("Content-Length: 4\r\nContent-Length: 4\r\n"), "400"),
        (post("Content-Length: 4, 4\r\n"), "400"),
        (post("Content-Length: 0, 40\r\n"), "400"),
        (post("Content-Length: +4\r\n"), "400"),
        (post("Content-Length: -4\r\n"), "400"),
        (post("Content-Length: 4 0\r\n"), "400"),
        (post("Content-Length: 0x4\r\n"), "400"),
        (post("Content-Length: 4e0\r\n"), "400"),
        (post("Content-Length: 4.0\r\n"), "400"),
        (post("Content-Length: \u{b}4\r\n"), "400"),
        (post("Content-Length: 4;\r\n"), "400"),
        (post("Content-Length: \"4\"\r\n"), "400"),
        (post("Content-Length:\r\n"), "400"),
        (post("Content-Length: \u{664}\r\n"), "400"),
        (post("Content-Length: 18446744073709551616\r\n"), "400"),
        (post("Content-Length: 18446744073709551620\r\n"), "400"),
        (post("Content-Length : 4\r\n"), "400"),
        (post("Content-Length\t: 4\r\n"), "400"),
        (post("Content-Length\u{0}: 4\r\n"), "400"),
        // Codings.
        (post("Transfer-Encoding : chunked\r\n"), "400"),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "400"),
        (post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"), "400"),
        (post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"), "501"),
        (post("Transfer-Encoding: chunked, chunked\r\n"), "501"),
        (post("Transfer-Encoding: gzip, chunked\r\n"), "501"),
        (post("Transfer-Encoding: chunked, identity\r\n"), "501"),
        (post("Transfer-Encoding: identity\r\n"), "501"),
        (post("Transfer-Encoding: xchunked\r\n"), "501"),
        (post("Transfer-Encoding: chunkedx\r\n"), "501"),
        (post("Transfer-Encoding: chunked;q=1\r\n"), "501"),
        (post("Transfer-Encoding: \"chunked\"\r\n"), "501"),
        (post("Transfer-Encoding: ,chunked\r\n"), "501"),
        (post("Transfer-Encoding: \u{b}chunked\r\n"), "501"),
        (post("Transfer-Encoding: chunked\u{c}\r\n"), "501"),
        (post("Transfer-Encoding:\r\n"), "501"),
        (post("Transfer-Encoding:\r\n chunked\r\n"), "501"),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".into(), "400"),
        // Lines.
        (post("X: y\r\n z\r\n"), "400"),
        (post("X: y\r\n\tTransfer-Encoding: chunked\r\n"), "400"),
        (get(" Host: a\r\n"), "400"),
        (get("Host: a\nTransfer-Encoding: chunked\r\n"), "400"),
        (get("Host: a\rTransfer-Encoding: chunked\r\n"), "400"),
        (get("Host: a\r\nX: y\rTransfer-Encoding: chunked\r\n"), "400"),
        (get("Host: a\r\nX: y\r\r\n"), "400"),
        (get("Host: a\r\nX: y\nTransfer-Encoding: chunked\r\n"), "400"),
        ("GET / HTTP/1.1\nHost: a\n\n".into(), "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n".into(), "400"),
        ("GET / HTTP/1.1\rHost: a\r\r".into(), "400"),
        (get("Host: a\r\nX: \u{0}\r\n"), "400"),
        (get("Host: a\r\nX\u{0}: y\r\n"), "400"),
        (get("Host: a\r\nX\u{7f}: y\r\n"), "400"),
        (get("Host: a\r\nX y: z\r\n"), "400"),
        (get("Host: a\r\nX(y): z\r\n"), "400"),
        (get("Host: a\r\nX\u{e9}: z\r\n"), "400"),
        (get("Host: a\r\n: y\r\n"), "400"),
        (get("Host: a\r\nnothing\r\n"), "400"),
        // First lines.
        (line("GET / HTTP/1.1 "), "400"),
        (line(" GET / HTTP/1.1"), "400"),
        (line("GET  / HTTP/1.1"), "400"),
        (line("GET /  HTTP/1.1"), "400"),
        (line("GET\t/\tHTTP/1.1"), "400"),
        (line("GET / b HTTP/1.1"), "400"),
        (line("GET /"), "400"),
        (line("GET / HTTP/1.1 HTTP/1.1"), "400"),
        (line("GET / http/1.1"), "400"),
        (line("GET / HTTP/11"), "505"),
        (line("GET / HTTP/1.10"), "505"),
        (line("GET / HTTP/2.0"), "505"),
        (line("GET / HTTP/0.9"), "505"),
        (line("GE(T / HTTP/1.1"), "400"),
        (line("/ HTTP/1.1"), "400"),
        (line("GET /\u{0} HTTP/1.1"), "400"),
        (line("GET /#x HTTP/1.1"), "400"),
        // Targets.
        (line("CONNECT a:80 HTTP/1.1"), "405"),
        (line("CONNECT / HTTP/1.1"), "405"),
        (line("GET a:80 HTTP/1.1"), "400"),
        (line("GET a HTTP/1.1"), "400"),
        (line("GET * HTTP/1.1"), "400"),
        (line("GET http: HTTP/1.1"), "400"),
        (line("GET http:///x HTTP/1.1"), "400"),
        (line("GET http://b@c/ HTTP/1.1"), "400"),
        (line("GET http://b\\c/ HTTP/1.1"), "400"),
        (line("GET file:///etc/passwd HTTP/1.1"), "400"),
        (line("GET ws://b/ HTTP/1.1"), "400"),
        // Expectations.
        (post("Expect: 100-continue, a-pony\r\n"), "417"),
    ];
    for (bad, wanted) in &cases {
        // Whatever follows has nobody's ear.
        let answer = say(&gateway, format!("{bad}0\r\n\r\n{SMUGGLED}"));
        assert_eq!(status(&answer), *wanted, "{bad:?}: {answer}");
        assert_eq!(answer.matches("\r\ndate: ").count(), 1, "{bad:?}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{bad:?}: {answer}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn of_bodies_that_are_wrong_what_was_right_reaches_the_upstream_and_no_end() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let sizes =
        ["x", "0x1", "-1", "+1", " 1", "1 1", "1,", "\"1\"", "1_0", "", "1\u{b}", "\u{661}"];
    let sizes = sizes.iter().map(|size| format!("{size}\r\na\r\n0\r\n\r\n"));
    let others = [
        // More digits than a number has, and one that is too large for what it counts.
        "10000000000000001\r\na\r\n0\r\n\r\n",
        "ffffffffffffffff\r\na\r\n0\r\n\r\n",
        "00000000000000001\r\na\r\n0\r\n\r\n",
        // Line ends that are none.
        "1\na\r\n0\r\n\r\n",
        "1\ra\r\n0\r\n\r\n",
        "1\r\na\n0\r\n\r\n",
        "1\r\na\r0\r\n\r\n",
        "1\r\na0\r\n\r\n",
        "1\r\nab\r\n0\r\n\r\n",
        "0\n\n",
        "0\r\n\n",
        "0\r\n\rX",
        // Extensions in which lines end.
        "1;\nx\r\na\r\n0\r\n\r\n",
        "1;x=\"\r\n\";\ny\r\n0\r\n\r\n",
        "1;\rx\r\na\r\n0\r\n\r\n",
        "1;\u{0}\r\na\r\n0\r\n\r\n",
        // Trailers that are none.
        "0\r\nx\r\n\r\n",
        "0\r\nx : y\r\n\r\n",
        "0\r\n x: y\r\n\r\n",
        "0\r\nx: y\r\n z\r\n\r\n",
        "0\r\nx: y\n\r\n",
        "0\r\nx: \u{0}\r\n\r\n",
        "0\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    let long = [
        format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(300)),
        format!("0\r\nx: {}\r\n\r\n", "y".repeat(9000)),
    ];
    for bad in sizes.chain(others.map(str::to_owned)).chain(long) {
        let (gateway, upstream, told) = recorded();
        let answer = say(&gateway, format!("{head}1\r\nb\r\n{bad}{SMUGGLED}"));
        assert_eq!(status(&answer), "400", "{bad:?}: {answer}");
        assert_eq!(answer.matches("\r\ndate: ").count(), 1, "{bad:?}: {answer}");
        let seen = all_seen(gateway, &upstream, &told);
        assert!(seen.len() <= 1, "{bad:?}: {seen:?}");
        for message in &seen {
            let (head, body) = message.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("POST / HTTP/1.1\r\n"), "{bad:?}: {message:?}");
            let is_right = ["", "1\r\nb\r\n", "1\r\nb\r\n1\r\na\r\n"].contains(&body);
            assert!(is_right, "{bad:?}: {message:?}");
        }
    }
}

#[test]
fn what_is_right_reaches_the_upstream_in_one_form() {
    let (gateway, _upstream, told) = recorded();
    let of = |line: &str, headers: &str, rest: &str, body: &str| {
        format!("{line} HTTP/1.1\r\n{headers}{ADDED}{rest}\r\n{body}")
    };
    let host = "host: a\r\n";
    let other = ADDED.replace("host: a", "host: b:81").replace("\"a\"", "\"b:81\"");
    let other = |line: &str| format!("{line} HTTP/1.1\r\nhost: b:81\r\n{other}\r\n");
    for (request, wanted) in [
        // Targets with a host, which counts for more than the header.
        ("GET http://b:81/x?y HTTP/1.1\r\nHost: a\r\n\r\n", other("GET /x?y")),
        ("GET HTTP://b:81?y HTTP/1.1\r\nHost: a\r\n\r\n", other("GET /?y")),
        ("GET https://b:81 HTTP/1.1\r\nHost: a\r\n\r\n", other("GET /")),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", of("OPTIONS *", host, "", "")),
        ("GET //b/../c%2f?d HTTP/1.1\r\nHost: a\r\n\r\n", of("GET //b/../c%2f?d", host, "", "")),
        // What stands before, around and after.
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", of("GET /", host, "", "")),
        ("GET / HTTP/1.1\r\nHost:a\r\n\r\n", of("GET /", host, "", "")),
        ("GET / HTTP/1.1\r\nHOST: \ta \t\r\n\r\n", of("GET /", host, "", "")),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n", of("get /", host, "", "")),
        // Bodies in chunks, with extensions and leading zeros, which go no further.
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n003;a=\"b\"\r\nabc\r\n0\r\n\r\n",
            of("POST /", host, "transfer-encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked \r\n\r\n1 \r\na\r\n0;x\r\nX: y\r\n\r\n",
            of("POST /", host, "transfer-encoding: chunked\r\n", "1\r\na\r\n0\r\n\r\n"),
        ),
        // An upgrade to more HTTP is none, and neither is one of an older version.
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
             HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
            of("GET /", host, "", ""),
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2, HTTP/1.1\r\n\r\n",
            of("GET /", host, "", ""),
        ),
    ] {
        let mut client = connect(&gateway);
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(status(&read_answer(&mut client)), "200", "{request:?}");
        let seen = told.recv_timeout(GUARD).unwrap();
        assert_eq!(lines_of(&seen), lines_of(&wanted), "{request:?}");
    }
    let (gateway, upstream, told) = recorded();
    let answer = say(&gateway, "POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabcGET /more");
    assert!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = told.recv_timeout(GUARD).unwrap();
    assert!(seen.starts_with("POST / HTTP/1.1\r\n") && seen.ends_with("\r\n\r\nabc"), "{seen}");
    assert_eq!(all_seen(gateway, &upstream, &told), [""; 0], "an old connection has one request");
}

/// The first line, the headers in alphabetical order, and the body.
fn lines_of(message: &str) -> (String, Vec<String>, String) {
    let (head, body) = message.split_once("\r\n\r\n").unwrap();
    let (first, rest) = head.split_once("\r\n").unwrap();
    let mut headers: Vec<String> = rest.split("\r\n").map(str::to_owned).collect();
    headers.sort();
    (first.to_owned(), headers, body.to_owned())
}

#[test]
fn a_body_that_looks_like_a_request_is_a_body() {
    let (gateway, upstream, told) = recorded();
    let length = SMUGGLED.len();
    let mut client = connect(&gateway);
    write!(
        client,
        "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}\
         POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{SMUGGLED}\r\n0\r\n\r\n\
         GET /3 HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{SMUGGLED}\
         GET /4 HTTP/1.1\r\nHost: a\r\n\r\n"
    )
    .unwrap();
    for _ in 0..4 {
        assert_eq!(status(&read_answer(&mut client)), "200");
    }
    let seen: Vec<String> = (0..4).map(|_| told.recv_timeout(GUARD).unwrap()).collect();
    for (message, (line, body)) in seen.iter().zip([
        ("POST /1 ", SMUGGLED.to_owned()),
        ("POST /2 ", format!("{length:X}\r\n{SMUGGLED}\r\n0\r\n\r\n")),
        ("GET /3 ", SMUGGLED.to_owned()),
        ("GET /4 ", String::new()),
    ]) {
        assert!(message.starts_with(line), "{message}");
        assert_eq!(message.split_once("\r\n\r\n").unwrap().1, body);
    }
    assert_eq!(upstream.accepted(), 1);
    assert_eq!(all_seen(gateway, &upstream, &told), [""; 0]);
}

#[test]
fn an_answer_that_is_two_is_one() {
    // What an upstream sends behind its answer is nobody's.
    let upstream = raw_server(|mut stream, which| {
        while read_head(&mut stream).is_some() {
            let more =
                if which == 0 { "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil" } else { "" };
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood{more}");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    for _ in 0..5 {
        assert_eq!(curl(&[&url(&gateway, "/")]), "good");
    }
    assert_eq!(upstream.accepted(), 2, "the first connection was not used again");
}

#[test]
fn answers_that_could_be_read_in_two_ways_are_answered_502() {
    for bad in [
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\ngood!",
        "HTTP/1.1 200 OK\r\nContent-Length: +4\r\n\r\ngood",
        "HTTP/1.1 200 OK\r\nContent-Length: 4, 5\r\n\r\ngood!",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\u{0}\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: \u{0}\r\nContent-Length: 4\r\n\r\ngood",
        "HTTP/1.1 2000 OK\r\nContent-Length: 4\r\n\r\ngood",
        "HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\ngood",
        "garbage",
    ] {
        let upstream = raw_server(move |mut stream, _| {
            read_head(&mut stream);
            let _ = stream.write_all(bad.as_bytes());
        });
        let gateway = start(GatewayConfig::to(upstream.url()));
        let answer = curl(&["-i", &url(&gateway, "/")]);
        assert_eq!(status(&answer), "502", "{bad:?}: {answer}");
    }
}
