//! Upstreams that die on the way, and connections to them that do.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::{Arc, Barrier, mpsc};

use http::Response;
use socket2::SockRef;
use tidegate_gateway::GatewayConfig;

use crate::frames::{self, Client, Outcome};
use crate::support::*;

/// Runs curl, and gives its exit code, which tells how an answer ended, and what came of it.
fn curl_ends(arguments: &[&str]) -> (i32, String) {
    let output = Command::new("curl")
        .args(["-s", "--max-time", "20"])
        .args(arguments)
        .output()
        .expect("curl is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap(), text)
}

/// Cuts a connection so that the other end cannot take it for the end of something.
fn cut(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
}

/// A server whose first connection sends half an answer and dies; the others answer whole.
fn dies_once(half: &'static str) -> Server {
    raw_server(move |mut stream, which| {
        while read_head(&mut stream).is_some() {
            if which == 0 {
                return stream.write_all(half.as_bytes()).unwrap();
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole").unwrap();
        }
    })
}

#[test]
fn an_answer_that_breaks_off_is_seen_to_and_its_connection_is_not_used_again() {
    const SIZED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    const IN_CHUNK: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\nhalf";
    for half in [SIZED, CHUNKED, IN_CHUNK] {
        for (version, wanted) in [("--http1.1", 18), ("--http2-prior-knowledge", 92)] {
            let upstream = dies_once(half);
            let gateway = start(GatewayConfig::to(upstream.url()));
            let (code, text) = curl_ends(&[version, &url(&gateway, "/")]);
            // What was on its way in a stream that is reset may be lost.
            let is_fine = text == "half" || code == 92 && text.is_empty();
            assert!(code == wanted && is_fine, "{version} {half:?}: {code} {text:?}");
            assert_eq!(curl_ends(&[version, &url(&gateway, "/")]), (0, "whole".into()));
            assert_eq!(upstream.accepted(), 2);
        }
    }
}

#[test]
fn an_answer_without_length_that_is_cut_is_not_taken_for_whole() {
    let has_half = Arc::new(Barrier::new(2));
    let end = Arc::clone(&has_half);
    let upstream = raw_server(move |mut stream, _| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf").unwrap();
        end.wait();
        cut(&stream);
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut client = connect(&gateway);
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let head = read_head(&mut client).unwrap();
    // Nobody knows how long it is, so it comes in chunks.
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    let mut half = [0; 9];
    client.read_exact(&mut half).unwrap();
    assert_eq!(&half, b"4\r\nhalf\r\n");
    has_half.wait();
    assert_eq!(read_all(&mut client), "", "no last chunk");
}

#[test]
fn an_answer_without_length_ends_with_its_connection() {
    let upstream = raw_server(|mut stream, _| {
        read_head(&mut stream);
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nall of it").unwrap();
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        assert_eq!(curl_ends(&[version, &url(&gateway, "/")]), (0, "all of it".into()));
    }
    assert_eq!(upstream.accepted(), 2);
}

#[test]
fn only_the_stream_is_reset_whose_upstream_died() {
    let upstream = serve(|request| async move {
        let path = request.uri().path().to_owned();
        Response::new(full(path))
    });
    let dying = dies_once("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    let mut config = GatewayConfig::to(upstream.url());
    config.upstreams.push(tidegate_gateway::Upstream::new("dying", [dying.url()]));
    config.routes.push(tidegate_gateway::Route::new("/die", "dying"));
    let gateway = start(config);
    let mut client = Client::begin(&gateway);
    let head = |path| [frames::GET[0], frames::GET[1], (":path", path), frames::GET[3]];
    client.ask(1, frames::END_STREAM, &head("/die"));
    assert_eq!(client.outcome(1).0, Outcome::Reset);
    client.ask(3, frames::END_STREAM, &head("/live"));
    assert_eq!(client.outcome(3), (Outcome::Whole, b"/live".to_vec()));
}

#[test]
fn an_http2_upstream_that_dies_breaks_all_of_its_answers_off() {
    // A gateway as upstream, whose own upstream sends half an answer: so streams are reset.
    let dying = dies_once("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    let inner = start(GatewayConfig::to(dying.url()));
    let gateway = start(GatewayConfig::to(format!("h2c://{}", at(&inner))));
    // If it breaks off at once, there may be no beginning either.
    let is_broken = |(code, text): (i32, String)| {
        assert!([18, 52].contains(&code) && "half".starts_with(&text), "{code} {text:?}");
    };
    is_broken(curl_ends(&[&url(&gateway, "/")]));
    assert_eq!(curl_ends(&[&url(&gateway, "/")]), (0, "whole".into()));
    // The connection itself breaks off, in the middle of a frame.
    let (tell, told) = mpsc::channel();
    let upstream = raw_server(move |mut stream, _| {
        let mut begin = [0; 24];
        stream.read_exact(&mut begin).unwrap();
        // Settings, an answer's head (`:status: 200` of the static table), a part of its data.
        stream.write_all(b"\0\0\0\x04\0\0\0\0\0").unwrap();
        let mut client = Client { stream };
        loop {
            let frame = client.next().unwrap();
            if frame.kind == frames::HEADERS {
                break;
            }
        }
        client.send(frames::HEADERS, frames::END_HEADERS, 1, &[0x88]);
        client.send(frames::DATA, 0, 1, b"half");
        client.stream.write_all(b"\0\0\x09\0\0\0\0\0\x01ha").unwrap();
        tell.send(()).unwrap();
    });
    let gateway = start(GatewayConfig::to(format!("h2c://{}", upstream.address)));
    is_broken(curl_ends(&[&url(&gateway, "/")]));
    told.recv_timeout(GUARD).unwrap();
}

#[test]
fn an_upstream_may_answer_before_it_has_everything() {
    let upstream = raw_server(|mut stream, _| {
        read_head(&mut stream).unwrap();
        stream
            .write_all(b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nno!")
            .unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // What still comes is thrown away, as servers do.
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap_or_default();
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("body");
    std::fs::write(&file, vec![b'a'; 20 << 20]).unwrap();
    let upload = format!("@{}", file.display());
    let told = ["-w", " %{http_code}", "--data-binary", &upload, &url(&gateway, "/")];
    assert_eq!(curl_ends(&told).1, "no! 413");
    for _ in 0..20 {
        let mut client = Client::begin(&gateway);
        client.ask(1, 0, frames::POST);
        for _ in 0..3 {
            client.send(frames::DATA, 0, 1, &[b'a'; 16 << 10]);
        }
        assert_eq!(client.outcome(1), (Outcome::Whole, b"no!".to_vec()));
        // The client is told to keep the rest, and that nothing is wrong.
        let reset = client.next_of(frames::RST_STREAM);
        assert_eq!((reset.stream, &reset.payload[..]), (1, &[0; 4][..]));
    }
}

#[test]
fn an_upstream_that_dies_while_a_body_is_sent_to_it_is_told_as_502() {
    let upstream = raw_server(|mut stream, _| {
        read_head(&mut stream).unwrap();
        cut(&stream);
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut client = connect(&gateway);
    // The rest of the body never comes.
    client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").unwrap();
    let answer = read_answer(&mut client);
    assert_eq!(status(&answer), "502", "{answer}");
    let mut client = Client::begin(&gateway);
    client.ask(1, 0, frames::POST);
    client.send(frames::DATA, 0, 1, b"abc");
    let (outcome, data) = client.outcome(1);
    let problem: serde_json::Value = serde_json::from_slice(&data).unwrap();
    assert_eq!((outcome, &problem["status"]), (Outcome::Whole, &502.into()), "{problem}");
}

#[test]
fn a_connection_that_is_closed_after_each_answer_costs_nobody_anything() {
    // The upstream does not say that it will close.
    let upstream = raw_server(|mut stream, which| {
        read_head(&mut stream).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{which:3}").unwrap();
    });
    let gateway = start(GatewayConfig::to(upstream.url()));
    let mut client = connect(&gateway);
    for n in 0..30 {
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let answer = read_answer(&mut client);
        assert!(answer.ends_with(&format!("\r\n\r\n{n:3}")), "{answer}");
    }
    assert_eq!(upstream.accepted(), 30, "none was asked twice");
}

#[test]
fn what_may_have_been_acted_on_is_not_sent_twice() {
    let (tell, told) = mpsc::channel();
    // Each connection answers once, takes the next request, and closes.
    let upstream = raw_server(move |mut stream, _| {
        read_head(&mut stream).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        if let Some(head) = read_head(&mut stream) {
            tell.send(head).unwrap();
        }
    });
    let ask = |client: &mut TcpStream, request: &str| {
        client.write_all(request.as_bytes()).unwrap();
        match request.starts_with("HEAD") {
            true => status(&read_head(client).unwrap()).to_owned(),
            false => status(&read_answer(client)).to_owned(),
        }
    };
    for (request, wanted) in [
        ("GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
        ("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "200"),
        ("PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb", "502"),
        ("GET /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nb", "502"),
        ("POST /x HTTP/1.1\r\nHost: a\r\n\r\n", "502"),
        ("PATCH /x HTTP/1.1\r\nHost: a\r\n\r\n", "502"),
    ] {
        let gateway = start(GatewayConfig::to(upstream.url()));
        let before = upstream.accepted();
        let mut client = connect(&gateway);
        assert_eq!(ask(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"), "200");
        assert_eq!(ask(&mut client, request), wanted, "{request:?}");
        let seen = told.recv_timeout(GUARD).unwrap();
        assert_eq!(seen.lines().next(), request.lines().next());
        let expected = if wanted == "200" { 2 } else { 1 };
        assert_eq!(upstream.accepted() - before, expected, "{request:?}");
    }
}

#[test]
fn that_a_kept_connection_was_closed_does_not_make_an_upstream_unwell() {
    let upstream = raw_server(|mut stream, which| {
        read_head(&mut stream).unwrap();
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{which}").unwrap();
        read_head(&mut stream);
    });
    let other = raw_server(|mut stream, _| {
        while read_head(&mut stream).is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother").unwrap();
        }
    });
    let mut config = GatewayConfig::to("");
    config.upstreams[0].urls = vec![upstream.url(), other.url()];
    let gateway = start(config);
    let post = || curl(&["-w", " %{http_code}", "-d", "x", &url(&gateway, "/")]);
    assert_eq!(curl(&[&url(&gateway, "/")]), "0");
    assert_eq!(post(), "other 200");
    assert!(post().ends_with(" 502"), "it may have been acted on");
    assert_eq!(post(), "other 200");
    assert_eq!(post(), "1 200", "it still has its turn");
}
