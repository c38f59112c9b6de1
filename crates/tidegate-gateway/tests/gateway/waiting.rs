//! Clients that leave while they wait for their turn.

use std::io::Write as _;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use http::Response;
use tidegate::ManualClock;
use tidegate_gateway::{Gateway, GatewayConfig, RuleGate};

use crate::frames::{self, Client, END_STREAM, Outcome};
use crate::limiting::{Limiter, limiter, with};
use crate::support::*;

const ONE_A_SECOND: &str = "
domain: api
http: [ { match: { path: \"/**\" }, descriptors: [ { ip: \"${client_ip}\" } ] } ]
descriptors:
  - key: ip
    rate_limit: { requests_per_unit: 1, unit: second, algorithm: leaky_bucket, queue: { size: 5, max_delay: 9s }, excess: delay }
";

struct Shaped {
    gateway: Gateway,
    limiter: Limiter,
    clock: ManualClock,
    told: Receiver<String>,
}

/// A gateway that lets one request through a second, and an upstream that tells which ones come.
fn shaped() -> Shaped {
    let (tell, told) = mpsc::channel();
    let upstream = serve(move |request| {
        tell.send(request.uri().path().to_owned()).unwrap();
        async { Response::new(full("through")) }
    });
    let (limiter, clock) = limiter(ONE_A_SECOND);
    let config = GatewayConfig::to(upstream.url());
    let gateway = with(RuleGate::new(limiter.clone(), "api"), config);
    Shaped { gateway, limiter, clock, told }
}

fn ask(client: &mut Client, stream: u32, path: &str) {
    let head = [frames::GET[0], frames::GET[1], (":path", path), frames::GET[3]];
    client.ask(stream, END_STREAM, &head);
}

#[test]
fn a_stream_that_is_given_up_leaves_its_place_to_the_next() {
    let Shaped { gateway, limiter, clock, told } = shaped();
    let mut client = Client::begin(&gateway);
    for n in 0..6u32 {
        ask(&mut client, 1 + 2 * n, &format!("/{n}"));
        match n {
            0 => assert_eq!(told.recv_timeout(GUARD).unwrap(), "/0"),
            n => until("it waits", || limiter.held() == usize::try_from(n).unwrap()),
        }
    }
    // The second and the fourth of those who wait; their connection stays.
    for n in [2, 4] {
        client.send(frames::RST_STREAM, 0, 1 + 2 * n, &[0, 0, 0, 8]);
    }
    until("they have left", || limiter.held() == 3);
    for (left, name) in [(2, "/1"), (1, "/3"), (0, "/5")] {
        clock.advance(Duration::from_secs(1));
        assert_eq!(told.recv_timeout(GUARD).unwrap(), name);
        until("it has gone on", || limiter.held() == left);
    }
    assert_eq!(client.outcome(11), (Outcome::Whole, b"through".to_vec()));
    assert!(told.try_recv().is_err(), "somebody was sent on who had left");
}

#[test]
fn a_connection_that_is_cut_takes_all_that_wait_on_it_along() {
    let Shaped { gateway, limiter, clock, told } = shaped();
    let mut first = Client::begin(&gateway);
    ask(&mut first, 1, "/0");
    assert_eq!(told.recv_timeout(GUARD).unwrap(), "/0");
    for stream in [3, 5, 7] {
        ask(&mut first, stream, "/gone");
    }
    until("they wait", || limiter.held() == 3);
    let mut second = connect(&gateway);
    second.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    until("it waits", || limiter.held() == 4);
    drop(first);
    until("they have left", || limiter.held() == 1);
    // The next slot is the other one's, who stood behind them.
    clock.advance(Duration::from_secs(1));
    assert_eq!(told.recv_timeout(GUARD).unwrap(), "/1");
    assert!(read_answer(&mut second).ends_with("through"));
    until("nobody waits", || limiter.held() == 0);
    assert!(told.try_recv().is_err());
}

#[test]
fn all_leave_and_the_line_is_empty() {
    let Shaped { gateway, limiter, clock, told } = shaped();
    let mut streams = Vec::new();
    for n in 0..6 {
        let mut stream = connect(&gateway);
        write!(stream, "POST /{n} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").unwrap();
        match n {
            0 => assert_eq!(told.recv_timeout(GUARD).unwrap(), "/0"),
            n => until("it waits", || limiter.held() == n),
        }
        streams.push(stream);
    }
    drop(streams);
    until("nobody waits", || limiter.held() == 0);
    until("nobody is connected", || gateway.connections() == 0);
    // What they had taken came back but for the slot that was used.
    clock.advance(Duration::from_secs(1));
    assert_eq!(status(&curl(&["-i", &url(&gateway, "/again")])), "200");
    assert_eq!(told.recv_timeout(GUARD).unwrap(), "/again");
    assert!(told.try_recv().is_err(), "somebody was sent on who had left");
}

#[tokio::test]
async fn draining_lets_those_who_wait_have_their_turn() {
    let Shaped { gateway, limiter, clock, told } = shaped();
    let mut streams = Vec::new();
    for n in 0..2 {
        let mut stream = connect(&gateway);
        write!(stream, "GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        match n {
            0 => assert_eq!(told.recv_timeout(GUARD).unwrap(), "/0"),
            n => until("it waits", || limiter.held() == n),
        }
        streams.push(stream);
    }
    let draining = tokio::spawn(gateway.drain());
    clock.advance(Duration::from_secs(1));
    let answers =
        tokio::task::spawn_blocking(move || streams.iter_mut().map(read_all).collect::<Vec<_>>());
    for answer in answers.await.unwrap() {
        assert!(answer.ends_with("through"), "{answer}");
    }
    assert!(draining.await.unwrap());
}
