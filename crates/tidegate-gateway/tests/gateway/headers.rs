//! Headers on their way through: what is taken out, what is put in, and what is left alone.

use std::io::Write as _;

use tidegate_gateway::{Forwarding, GatewayConfig};

use crate::frames::{self, Client, Outcome};
use crate::support::*;

/// A server that answers with a head of its own, and says nothing else.
fn answering(head: &'static str) -> Server {
    raw_server(move |mut stream, _| {
        while read_head(&mut stream).is_some() {
            stream.write_all(head.as_bytes()).unwrap();
        }
    })
}

/// The headers of an answer, by name and in order, without the status line.
fn headers_of(answer: &str) -> Vec<&str> {
    answer.split("\r\n\r\n").next().unwrap().lines().skip(1).collect()
}

#[test]
fn answers_have_one_date_and_it_is_the_upstreams_if_it_has_one() {
    let without = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let with = answering(
        "HTTP/1.1 200 OK\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nContent-Length: 2\r\n\r\nok",
    );
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let gateway = start(GatewayConfig::to(without.url()));
        let answer = curl(&["-i", version, &url(&gateway, "/")]);
        let dates: Vec<&str> =
            headers_of(&answer).into_iter().filter(|line| line.starts_with("date: ")).collect();
        assert_eq!(dates.len(), 1, "{answer}");
        assert!(dates[0].ends_with(" GMT"), "{answer}");
        let gateway = start(GatewayConfig::to(with.url()));
        let answer = curl(&["-i", version, &url(&gateway, "/")]);
        let dates: Vec<&str> =
            headers_of(&answer).into_iter().filter(|line| line.starts_with("date: ")).collect();
        assert_eq!(dates, ["date: Tue, 15 Nov 1994 08:12:31 GMT"]);
    }
    // Nor do the gateway's own answers go without.
    let gateway = start(GatewayConfig::to(format!("http://{}", nobody())));
    assert_eq!(curl(&["-i", &url(&gateway, "/")]).matches("\r\ndate: ").count(), 1);
}

#[test]
fn the_next_hop_hears_nothing_of_this_one() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let answer = say(
        &gateway,
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-One\r\nConnection: x-two , ,\r\n\
         X-One: 1\r\nX-Two: 2\r\nX-Three: 3\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\n\
         Proxy-Authorization: Basic YTpi\r\nAuthorization: Basic YTpi\r\nTE: gzip;q=0.5\r\n\
         Trailer: x-end\r\nAccept: a\r\nAccept: b\r\n\r\n",
    );
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(
        body,
        "GET / HTTP/1.1\n\
         accept: a\n\
         accept: b\n\
         authorization: Basic YTpi\n\
         forwarded: for=127.0.0.1;host=\"a\";proto=http\n\
         host: a\n\
         trailer: x-end\n\
         via: 1.1 tidegate\n\
         x-forwarded-for: 127.0.0.1\n\
         x-forwarded-host: a\n\
         x-forwarded-proto: http\n\
         x-three: 3\n\n"
    );
}

#[test]
fn the_client_hears_nothing_of_the_hop_behind() {
    let upstream = answering(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Inner, Upgrade\r\nKeep-Alive: timeout=5\r\n\
         X-Inner: 1\r\nUpgrade: h2,h2c\r\nProxy-Authenticate: Basic\r\nProxy-Connection: keep-alive\r\n\
         Server: app\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\nVia: 1.0 cache\r\nX-Outer: 2\r\n\
         Date: Tue, 15 Nov 1994 08:12:31 GMT\r\nContent-Length: 2\r\n\r\nok",
    );
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut client = connect(&gateway);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let answer = read_answer(&mut client);
    let mut left = headers_of(&answer);
    // Only those of one name have an order.
    left.sort_by_key(|line| line.split(':').next());
    assert_eq!(
        left,
        [
            "content-length: 2",
            "date: Tue, 15 Nov 1994 08:12:31 GMT",
            "server: app",
            "set-cookie: a=b",
            "set-cookie: c=d",
            "via: 1.0 cache, 1.1 tidegate",
            "x-outer: 2",
        ]
    );
    let answer = curl(&["-i", "--http2-prior-knowledge", &url(&gateway, "/")]);
    assert!(answer.starts_with("HTTP/2 200") && answer.ends_with("\r\n\r\nok"), "{answer}");
    for name in ["connection", "keep-alive", "x-inner", "upgrade", "proxy-"] {
        assert!(!answer.contains(&format!("\n{name}")), "{answer}");
    }
}

#[test]
fn via_can_be_another_name_or_none() {
    let upstream = echo();
    for (via, wanted) in [(Some("edge"), Some("1.0 first, 1.1 edge")), (None, Some("1.0 first"))] {
        let mut config = GatewayConfig::to(upstream.url());
        config.via = via.map(str::to_owned);
        let gateway = start(config);
        let answer = curl(&["-i", "-H", "Via: 1.0 first", &url(&gateway, "/")]);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let told = body.lines().find_map(|line| line.strip_prefix("via: "));
        assert_eq!(told, wanted);
        let said = head.lines().find_map(|line| line.strip_prefix("via: "));
        assert_eq!(said, via.map(|_| "1.1 edge"));
    }
}

/// What clients may say of themselves and others.
const CLAIMS: &str = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\n\
    X-Forwarded-Port: 443\r\nX-Forwarded-Prefix: /admin\r\nX-Real-IP: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
    X_Forwarded_For: 6.6.6.6\r\nX-Forwarded_Proto: https\r\nX_Real_IP: 6.6.6.6\r\nContent_Length: 9\r\n\
    Transfer_Encoding: chunked\r\nX_Own: 1\r\n";

#[test]
fn nobodys_word_on_himself_is_passed_on() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let answer =
        say(&gateway, format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{CLAIMS}\r\n"));
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(
        body,
        "GET / HTTP/1.1\n\
         forwarded: for=127.0.0.1;host=\"a\";proto=http\n\
         host: a\n\
         via: 1.1 tidegate\n\
         x-forwarded-for: 127.0.0.1\n\
         x-forwarded-host: a\n\
         x-forwarded-proto: http\n\
         x_own: 1\n\n"
    );
}

#[test]
fn the_word_of_those_who_are_trusted_is_but_not_in_disguise() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    config.trusted_proxies = vec!["127.0.0.1".into()];
    config.forwarding = Forwarding::XForwardedFor;
    let gateway = start(config);
    let answer =
        say(&gateway, format!("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{CLAIMS}\r\n"));
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!(
        body,
        "GET / HTTP/1.1\n\
         forwarded: for=127.0.0.1;host=\"a\";proto=http\n\
         host: a\n\
         via: 1.1 tidegate\n\
         x-forwarded-for: 6.6.6.6, 127.0.0.1\n\
         x-forwarded-host: b\n\
         x-forwarded-port: 443\n\
         x-forwarded-prefix: /admin\n\
         x-forwarded-proto: https\n\
         x-real-ip: 6.6.6.6\n\
         x_own: 1\n\n"
    );
}

#[test]
fn trailers_say_nothing_that_heads_have_to() {
    const TRAILERS: &[(&str, &str)] = &[
        ("x-end", "1"),
        ("content-length", "7"),
        ("host", "b"),
        ("x-forwarded-for", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("authorization", "me"),
    ];
    let text: String =
        TRAILERS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let names: Vec<&str> = TRAILERS.iter().map(|(name, _)| *name).collect();
    let upstream = echo();
    for to in [upstream.url(), format!("h2c://{}", upstream.address)] {
        let gateway = start(GatewayConfig::to(to.clone()));
        let answer = say(
            &gateway,
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\
                 Trailer: {}\r\n\r\n1\r\na\r\n0\r\n{text}transfer-encoding: chunked\r\nconnection: x-other\r\n\r\n",
                names.join(", ")
            ),
        );
        assert!(answer.ends_with("\na\ntrailer x-end: 1"), "{to}: {answer}");
        let mut client = Client::begin(&gateway);
        client.ask(1, 0, &[frames::POST, &[("trailer", &names.join(", "))]].concat());
        client.send(frames::DATA, 0, 1, b"a");
        client.ask(1, frames::END_STREAM, TRAILERS);
        let (outcome, data) = client.outcome(1);
        let answer = String::from_utf8(data).unwrap();
        assert_eq!(outcome, Outcome::Whole);
        assert!(answer.ends_with("\na\ntrailer x-end: 1"), "{to}: {answer}");
    }
    // Nor do those of answers.
    let upstream = answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-end, connection, set-cookie\r\n\r\n\
         1\r\na\r\n0\r\nx-end: 1\r\nconnection: close\r\ntransfer-encoding: chunked\r\ncontent-length: 9\r\n\r\n",
    );
    let gateway = start(GatewayConfig::to(upstream.url()));
    let answer =
        say(&gateway, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTE: trailers\r\n\r\n");
    assert!(answer.ends_with("1\r\na\r\n0\r\nx-end: 1\r\n\r\n"), "{answer}");
    let answer = curl(&["--http2-prior-knowledge", "-D", "-", &url(&gateway, "/")]);
    assert!(answer.contains("x-end: 1") && !answer.contains("content-length"), "{answer}");
}
