//! Requests that could be read in two ways, are too large, or take too long.

use std::io::Write as _;
use std::time::Duration;

use tidegate_gateway::GatewayConfig;

use crate::support::*;

const GOOD: &str = "GET /good HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[test]
fn what_could_be_read_in_two_ways_is_answered_400() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    for (bad, wanted) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
            "400",
        ),
        ("GET / HTTP/1.1\nHost: a\n\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\n\r\n", "400"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\nabcd", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", "400"),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("G\0T / HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET / HTTP/1.1\0\r\nHost: a\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHo\0st: a\r\n\r\n", "400"),
        ("G\rT / HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET /\ra HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r: y\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\rz\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: y\nz: w\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\u{1}: y\r\n\r\n", "400"),
        ("nonsense\r\n\r\n", "400"),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n", "400"),
        (
            "GET /a\"<>\\^`{|} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: Y\r\n z: w\r\n\r\n",
            "400",
        ),
        ("GET / HTTP/3.0\r\nHost: a\r\n\r\n", "505"),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "405"),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "501"),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: a-pony\r\n\r\n", "417"),
    ] {
        // Whatever follows is not answered: nobody knows where the request ends.
        let answer = say(&gateway, format!("{bad}{GOOD}"));
        assert_eq!(status(&answer), wanted, "{bad:?}: {answer}");
        assert!(answer.contains("connection: close"), "{bad:?}: {answer}");
        assert_eq!(answer.matches("\r\ndate: ").count(), 1, "{bad:?}: {answer}");
        assert!(answer.contains("application/problem+json"), "{bad:?}: {answer}");
    }
    assert_eq!(upstream.accepted(), 0, "none of it has reached the upstream");
}

#[test]
fn a_bad_body_is_answered_400_too() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    for body in ["x\r\n", "1\na\r\n0\r\n\r\n", "1\r\nab\r\n0\r\n\r\n", "0\r\na: b\n\r\n"] {
        let answer = say(
            &gateway,
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{GOOD}"),
        );
        assert_eq!(status(&answer), "400", "{body:?}: {answer}");
        assert!(!answer.contains("/good"), "{body:?}: {answer}");
    }
}

#[test]
fn a_bad_request_is_answered_in_its_turn() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let good = "GET /first HTTP/1.1\r\nHost: a\r\n\r\n";
    let answer = say(&gateway, format!("{good}{good}GET / HTTP/1.1\nHost: a\n\n"));
    let statuses: Vec<&str> =
        answer.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    // The echo says `HTTP/1.1` as well.
    let statuses: Vec<&str> =
        statuses.into_iter().filter(|status| status.parse::<u16>().is_ok()).collect();
    assert_eq!(statuses, ["200", "200", "400"], "{answer}");
}

#[test]
fn requests_in_a_row_are_answered_in_a_row() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let requests = "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n\
                    POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc\
                    POST /3 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n\
                    GET /4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    // At once, and byte by byte.
    let whole = say(&gateway, requests);
    let mut stream = connect(&gateway);
    for byte in requests.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    for answer in [whole, read_all(&mut stream)] {
        let places: Vec<usize> = ["GET /1", "POST /2", "\nabc", "POST /3", "\nde", "GET /4"]
            .iter()
            .map(|text| answer.find(text).unwrap())
            .collect();
        assert!(places.is_sorted(), "{answer}");
    }
}

#[test]
fn sizes_have_bounds() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    (config.head_bytes_max, config.target_bytes_max, config.body_bytes_max) = (2048, 512, 1000);
    let gateway = start(config);
    let target = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(600));
    assert_eq!(status(&say(&gateway, target)), "414");
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(3000));
    assert_eq!(status(&say(&gateway, head)), "431");
    let many: String = (0..150).map(|n| format!("x-{n}: y\r\n")).collect();
    let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n");
    assert_eq!(status(&say(&gateway, head)), "431");
    let sized =
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n{}", "a".repeat(1001));
    assert_eq!(status(&say(&gateway, sized)), "413");
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        format!("64\r\n{}\r\n", "a".repeat(100)).repeat(11)
    );
    assert_eq!(status(&say(&gateway, chunked)), "413");
    let fine = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000\r\n\r\n{}",
        "a".repeat(1000)
    );
    assert_eq!(status(&say(&gateway, fine)), "200");
}

#[test]
fn slow_clients_are_not_waited_for() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    let short = Duration::from_millis(200);
    (config.patience.head, config.patience.body, config.patience.idle) = (short, short, short);
    let gateway = start(config);
    // A head that does not end, though something comes now and then.
    let mut stream = connect(&gateway);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
    let mut writer = stream.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        while writer.write_all(b"x: y\r\n").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!(status(&read_all(&mut stream)), "408");
    drop(stream);
    drip.join().unwrap();
    // A body that does not.
    let answer = say(&gateway, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(status(&answer), "408", "{answer}");
    // Nothing at all, before and after a request.
    assert_eq!(say(&gateway, ""), "");
    let answer = say(&gateway, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(status(&answer), "200");
    // An upstream that takes longer than a client may is no client that takes long.
    let slow = serve(|_| async {
        tokio::time::sleep(Duration::from_millis(700)).await;
        http::Response::new(full("late but well"))
    });
    let mut config = GatewayConfig::to(slow.url());
    (config.patience.head, config.patience.body, config.patience.idle) = (short, short, short);
    let gateway = start(config);
    let answer = say(&gateway, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na");
    assert!(answer.ends_with("late but well"), "{answer}");
}

#[test]
fn a_client_that_does_not_read_is_not_waited_for() {
    let upstream = serve(|_| async { http::Response::new(full(vec![b'a'; 32 << 20])) });
    let mut config = GatewayConfig::to(upstream.url());
    config.patience.write = Duration::from_millis(200);
    let gateway = start(config);
    let mut stream = connect(&gateway);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    until("the connection is there", || gateway.connections() == 1);
    until("the connection is given up", || gateway.connections() == 0);
}
