//! What people do with curl.

use std::io::Write as _;
use std::process::{Command, Stdio};

use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tidegate_gateway::{Gateway, GatewayConfig, RuleGate};

use crate::limiting::{TWO_AN_HOUR, limiter, with};
use crate::support::*;

/// The ways in which curl speaks to a gateway.
const WAYS: [&[&str]; 4] = [
    &["--http1.1"],
    &["--http2-prior-knowledge"],
    &["-k", "--http1.1", "--tlsv1.2"],
    &["-k", "--http2", "--tlsv1.3"],
];

/// A gateway with and one without TLS, to the same upstream.
struct Both {
    plain: Gateway,
    tls: Gateway,
    _dir: tempfile::TempDir,
}

impl Both {
    fn to(upstream: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = GatewayConfig::to(upstream);
        let plain = start(config.clone());
        config.tls = Some(crate::secure::certify(dir.path(), "localhost"));
        Self { plain, tls: start(config), _dir: dir }
    }

    fn curl(&self, way: &[&str], arguments: &[&str], path: &str) -> String {
        let target = match way[0] {
            "-k" => format!("https://{}{path}", at(&self.tls)),
            _ => format!("http://{}{path}", at(&self.plain)),
        };
        curl(&[way, arguments, &[&target]].concat())
    }
}

#[test]
fn all_versions_are_spoken_and_agreed_on() {
    let upstream = echo();
    let both = Both::to(&upstream.url());
    for (way, version, scheme) in [
        (WAYS[0], "1.1", "http"),
        (WAYS[1], "2", "http"),
        (WAYS[2], "1.1", "https"),
        (WAYS[3], "2", "https"),
    ] {
        let answer = both.curl(way, &["-w", "\n%{http_version} %{http_code}"], "/a?b");
        assert!(answer.ends_with(&format!("\n{version} 200")), "{way:?}: {answer}");
        assert!(answer.contains("GET /a?b HTTP/1.1\n"), "{way:?}: {answer}");
        assert!(answer.contains(&format!("x-forwarded-proto: {scheme}\n")), "{way:?}: {answer}");
    }
}

/// Sends something to curl's standard input.
fn curl_from(input: &[u8], arguments: &[&str]) -> String {
    let mut process = Command::new("curl")
        .args(["-sS", "--max-time", "20"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl is installed");
    let mut stdin = process.stdin.take().unwrap();
    let writing = std::thread::scope(|scope| {
        let writing = scope.spawn(move || stdin.write_all(input));
        let output = process.wait_with_output().unwrap();
        writing.join().unwrap().unwrap();
        output
    });
    assert!(writing.status.success());
    String::from_utf8(writing.stdout).unwrap()
}

#[test]
fn what_is_uploaded_in_chunks_arrives_whole() {
    let upstream = serve(|request| async move {
        let is_chunked = request.headers().contains_key("transfer-encoding");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
        Response::new(full(format!("{} {sum} {is_chunked}", body.len())))
    });
    let both = Both::to(&upstream.url());
    let input: Vec<u8> = (0..5_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let sum: u64 = input.iter().map(|byte| u64::from(*byte)).sum();
    let wanted = format!("{} {sum} true", input.len());
    for way in WAYS {
        let target = match way[0] {
            "-k" => format!("https://{}/", at(&both.tls)),
            _ => format!("http://{}/", at(&both.plain)),
        };
        let answer = curl_from(&input, &[way, &["-T", "-", &target]].concat());
        assert_eq!(answer, wanted, "{way:?}");
    }
}

#[test]
fn trailers_are_shown() {
    let upstream = serve(|_| async {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", "42".parse().unwrap());
        let frames = [Ok(Frame::data("body".into())), Ok(Frame::trailers(trailers))];
        let mut response = Response::new(StreamBody::new(tokio_stream::iter(frames)).boxed());
        response.headers_mut().insert("trailer", "x-sum".parse().unwrap());
        response
    });
    let both = Both::to(&upstream.url());
    for way in WAYS {
        let answer = both.curl(way, &["-H", "TE: trailers", "-D", "-"], "/");
        let (head, rest) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("trailer: x-sum"), "{way:?}: {answer}");
        assert!(rest.contains("body") && rest.contains("x-sum: 42"), "{way:?}: {answer}");
    }
}

#[test]
fn files_come_whole_in_parts_and_not_again() {
    let dir = tempfile::tempdir().unwrap();
    let text: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(dir.path().join("file.txt"), &text).unwrap();
    let nginx = Nginx::start(&format!("root {};", dir.path().display()));
    let both = Both::to(&nginx.url());
    for way in WAYS {
        assert!(both.curl(way, &[], "/file.txt") == text, "{way:?}");
        let part = both.curl(way, &["-r", "1000-1009", "-w", " %{http_code}"], "/file.txt");
        assert_eq!(part, format!("{} 206", &text[1000..1010]), "{way:?}");
        let parts = both.curl(way, &["-r", "0-1,10-11", "-i"], "/file.txt");
        assert!(parts.contains("multipart/byteranges"), "{way:?}: {parts}");
        let beyond = both.curl(way, &["-r", "99999999-", "-i"], "/file.txt");
        assert!(beyond.contains("content-range: bytes */"), "{way:?}: {beyond}");
        let head = both.curl(way, &["-I"], "/file.txt");
        assert!(head.contains(&format!("content-length: {}\r\n", text.len())), "{way:?}: {head}");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
        let known = format!("If-None-Match: {tag}");
        let again =
            both.curl(way, &["-H", &known, "-w", "%{http_code} %{size_download}"], "/file.txt");
        assert_eq!(again, "304 0", "{way:?}");
    }
}

#[test]
fn what_is_packed_stays_packed() {
    let nginx = Nginx::start(
        "gzip on; gzip_min_length 1; gzip_types text/plain; location / { return 200 \"$http_accept_encoding aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"; }",
    );
    let both = Both::to(&nginx.url());
    for way in WAYS {
        let plain = both.curl(way, &[], "/");
        let packed = both.curl(way, &["--compressed", "-D", "-"], "/");
        assert!(!plain.contains("gzip") && packed.contains("gzip"), "{way:?}: {plain} {packed}");
        assert!(packed.ends_with("aaaaaa"), "{way:?}: {packed}");
    }
}

#[test]
fn one_connection_is_enough_for_several_requests() {
    let upstream = echo();
    let both = Both::to(&upstream.url());
    // Not all versions of curl manage that without TLS over HTTP/2.
    for way in [WAYS[0], WAYS[2], WAYS[3]] {
        let counts = both.curl(
            way,
            &["-o", "/dev/null", "-o", "/dev/null", "-o", "/dev/null", "-w", "%{num_connects} "],
            "/[1-3]",
        );
        assert_eq!(counts, "1 0 0 ", "{way:?}");
    }
    assert_eq!(upstream.accepted(), 2, "one for each of the two gateways");
}

#[test]
fn whoever_is_refused_sends_no_body() {
    let upstream = echo();
    let (limiter, _) = limiter(TWO_AN_HOUR);
    let gateway = with(RuleGate::new(limiter, "api"), GatewayConfig::to(upstream.url()));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("body");
    std::fs::write(&file, vec![b'a'; 100_000]).unwrap();
    let upload = format!("@{}", file.display());
    let ask = |version: &str| {
        let arguments = ["-H", "Expect: 100-continue", "-o", "/dev/null", "--data-binary", &upload];
        let told = ["-w", "%{http_code} %{size_upload}", &url(&gateway, "/")];
        curl(&[&[version][..], &arguments, &told].concat())
    };
    assert_eq!(ask("--http1.1"), "200 100000");
    assert_eq!(ask("--http1.1"), "200 100000");
    assert_eq!(ask("--http1.1"), "429 0");
}
