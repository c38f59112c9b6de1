use proptest::prelude::*;

use super::*;

const SIZES: Sizes = Sizes { head_max: 1024, target_max: 256 };

fn scan(bytes: &[u8]) -> (usize, Option<Fault>) {
    let mut scanner = Scanner::new(SIZES);
    (scanner.look(bytes), scanner.fault())
}

#[test]
fn plain_requests_go_on() {
    for good in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a?b=c%20d HTTP/1.1\r\nhost: a.example:80\r\nx:\r\ny:  z \r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET HTTPS://[::1]:8?x HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na\nbGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n00\r\na: b\r\nc: d\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n0",
    ] {
        assert_eq!(scan(good.as_bytes()), (good.len(), None), "{good:?}");
    }
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (bad, fault) in [
        ("GET / HTTP/1.1\nHost: a\n\n", Fault::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", Fault::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n", Fault::LineEnd),
        ("\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\rx: y\r\n\r\n", Fault::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\r\nx: y\rz: w\r\n\r\n", Fault::LineEnd),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Fault::Host),
        ("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", Fault::Host),
        ("GET / HTTP/1.1\r\nHost: a, b c\r\n\r\n", Fault::Host),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Fault::Host),
        ("GET / HTTP/1.1\r\n\r\n", Fault::Host),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", Fault::Host),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::RequestLine),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Fault::RequestLine),
        ("GET /\r\nHost: a\r\n\r\n", Fault::RequestLine),
        ("G\tT / HTTP/1.1\r\nHost: a\r\n\r\n", Fault::RequestLine),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", Fault::Version),
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", Fault::Version),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("GET http://me@a/ HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Target),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", Fault::Connect),
        ("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n", Fault::Header),
        ("GET / HTTP/1.1\r\nHost: a\r\n: y\r\n\r\n", Fault::Header),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 1\r\n\r\na", Fault::Header),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Fault::Header),
        ("GET / HTTP/1.1\r\nHost: a\r\nx: y\r\n z\r\n\r\n", Fault::Folded),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", Fault::Folded),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            Fault::Length,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            Fault::Length,
        ),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            Fault::Length,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", Fault::Length),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", Fault::Length),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", Fault::Length),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", Fault::Length),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", Fault::Length),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999999999999999\r\n\r\n",
            Fault::Length,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", Fault::Coding),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", Fault::Coding),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n", Fault::Coding),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            Fault::Length,
        ),
        ("POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Fault::Length),
        ("POST / HTTP/1.1\r\nHost: a\r\nExpect: a-pony\r\n\r\n", Fault::Expectation),
    ] {
        assert_eq!(scan(bad.as_bytes()), (0, Some(fault)), "{bad:?}");
    }
    for body in [
        "\r\n",
        "x\r\n",
        "-1\r\n",
        "0x1\r\na\r\n",
        "1\na\r\n",
        "1\r\na\n0\r\n\r\n",
        "1\r\nab\r\n",
        "1 1\r\na\r\n",
        "10000000000000000\r\n",
        "0\r\n\n",
        "0\r\na: b\n\r\n",
        "0\r\n a: b\r\n\r\n",
        "0\r\na : b\r\n\r\n",
        "1;\nGET / HTTP/1.1\r\n",
        "1\r\na\r\n\r\n",
    ] {
        let bad = format!("{chunked}{body}");
        assert_eq!(scan(bad.as_bytes()).1, Some(Fault::Chunk), "{bad:?}");
    }
}

#[test]
fn a_bad_request_behind_a_good_one_does_not_hold_it_back() {
    let good = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let both = format!("{good}GET / HTTP/1.1\nHost: a\n\n");
    assert_eq!(scan(both.as_bytes()), (good.len(), Some(Fault::LineEnd)));
}

#[test]
fn heads_have_a_size() {
    let long = |length: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(length));
    assert_eq!(scan(long(255).as_bytes()).1, None);
    assert_eq!(scan(long(256).as_bytes()).1, Some(Fault::TargetTooLong));
    assert_eq!(scan(long(5000).as_bytes()).1, Some(Fault::TargetTooLong));
    assert_eq!(scan("G".repeat(1025).as_bytes()).1, Some(Fault::TargetTooLong));
    let headers = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "x: y\r\n".repeat(200));
    assert_eq!(scan(headers.as_bytes()).1, Some(Fault::HeadTooLarge));
    assert_eq!(scan(&headers.as_bytes()[..1100]).1, Some(Fault::HeadTooLarge));
}

#[test]
fn behind_an_upgrade_nothing_goes_on_until_it_is_known_to_be_http() {
    let upgrade = "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    let both = format!("{upgrade}\x01\x02\n");
    let mut scanner = Scanner::new(SIZES);
    assert_eq!(scanner.look(both.as_bytes()), upgrade.len());
    assert!(scanner.is_parked() && scanner.fault().is_none());
    scanner.go_on();
    assert_eq!(scanner.look(b"\x01\x02\n"), 0);
    assert_eq!(scanner.fault(), Some(Fault::LineEnd));
}

/// Feeds bytes in pieces, as the connection does.
fn scan_in_pieces(bytes: &[u8], cuts: &[usize]) -> (Vec<u8>, Option<Fault>) {
    let mut scanner = Scanner::new(SIZES);
    let (mut held, mut passed) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    for cut in cuts.iter().copied().chain([usize::MAX]) {
        let (piece, after) = rest.split_at(cut.min(rest.len()));
        rest = after;
        held.extend_from_slice(piece);
        let good = scanner.look(&held);
        passed.extend(held.drain(..good));
    }
    (passed, scanner.fault())
}

/// Requests, good and bad, and what is neither.
fn traffic() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just("GET / HTTP/1.1\r\n"),
        Just("POST /a HTTP/1.1\r\n"),
        Just("Host: a\r\n"),
        Just("Content-Length: 3\r\n"),
        Just("Transfer-Encoding: chunked\r\n"),
        Just("\r\n"),
        Just("\n"),
        Just("\r"),
        Just("\0"),
        Just("3\r\nabc\r\n"),
        Just("0\r\n"),
        Just("abc"),
        Just(" x\r\n"),
        Just("a: b\r\n"),
        Just("Content-Length: 3\r\n\r\nabc"),
        Just("Upgrade: x\r\n"),
        Just(":"),
        Just(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        ),
        Just("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest! {
    /// However the bytes come, the same ones go on, for the same reason.
    #[test]
    fn pieces_do_not_matter(bytes in traffic(), cuts in prop::collection::vec(0usize..40, 0..12)) {
        let whole = scan_in_pieces(&bytes, &[]);
        prop_assert_eq!(scan_in_pieces(&bytes, &cuts), whole);
    }

    /// No bytes at all make it panic, and whatever goes on is a prefix.
    #[test]
    fn any_bytes_will_do(bytes in prop::collection::vec(any::<u8>(), 0..200),
                         cuts in prop::collection::vec(0usize..40, 0..12)) {
        let (passed, _) = scan_in_pieces(&bytes, &cuts);
        prop_assert!(bytes.starts_with(&passed));
    }

    /// No head that goes on has a line feed without its carriage return.
    #[test]
    fn no_bare_line_feed_goes_on_in_a_head(lines in prop::collection::vec("[a-z]{1,5}: [a-z]{0,5}", 0..6),
                                           at in 0usize..8) {
        let mut text = String::from("GET / HTTP/1.1\r\nHost: a\r\n");
        for line in &lines { text.push_str(line); text.push_str("\r\n"); }
        text.push_str("\r\n");
        prop_assert_eq!(scan(text.as_bytes()), (text.len(), None));
        let returns: Vec<usize> = text.match_indices('\r').map(|(at, _)| at).collect();
        let mut bare = text.clone();
        bare.remove(returns[at % returns.len()]);
        prop_assert_eq!(scan(bare.as_bytes()).0, 0);
    }
}
