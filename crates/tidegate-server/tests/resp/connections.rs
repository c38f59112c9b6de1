//! Pipelines, pieces of commands, and what a connection keeps.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use tidegate_server::Address;

use crate::support::{Answer, encode, ints, start};

#[test]
fn a_pipeline_comes_back_in_one_piece() {
    let server = start(|_| {});
    let mut client = server.client();
    let pipeline = encode(&["CL.THROTTLE", "k", "99", "1", "1"]).repeat(16);
    client.send(&pipeline);
    for used in 1..=16 {
        assert_eq!(client.answer(), ints([0, 100, 100 - used, -1, used]));
    }
    // Had answers been written one by one, each but the first would have waited until the client
    // acknowledged the one before.
    assert_eq!(client.reads, 1);
}

#[test]
fn ten_thousand_commands_at_once() {
    let server = start(|_| {});
    let mut client = server.client();
    let pipeline = encode(&["CL.THROTTLE", "k", "9999", "1", "1"]).repeat(10_000);
    let mut writing = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all(&pipeline).unwrap());
    for used in 1..=10_000 {
        assert_eq!(client.answer(), ints([0, 10_000, 10_000 - used, -1, used]));
    }
    writer.join().unwrap();
    assert_eq!(client.say("CL.THROTTLE k 9999 1 1"), ints([1, 10_000, 0, 1, 10_000]));
}

#[test]
fn commands_may_come_in_pieces() {
    let server = start(|_| {});
    let mut client = server.client();
    let bytes = [encode(&["CL.THROTTLE", "k", "9", "1", "1"]), encode(&["PING"])].concat();
    for byte in bytes.chunks(1) {
        client.send(byte);
    }
    assert_eq!(client.answer(), ints([0, 10, 9, -1, 1]));
    assert_eq!(client.answer(), Answer::Simple("PONG".into()));
    // One and a half, and then the other half.
    let (first, second) = bytes.split_at(bytes.len() - 5);
    client.send(first);
    assert_eq!(client.answer(), ints([0, 10, 8, -1, 2]));
    client.send(second);
    assert_eq!(client.answer(), Answer::Simple("PONG".into()));
}

#[test]
fn who_says_goodbye_early_is_still_answered() {
    let server = start(|_| {});
    let mut client = server.client();
    client.send(&encode(&["PING"]).repeat(3));
    client.send(b"*1\r\n$4\r\nPI");
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), "+PONG\r\n".repeat(3));
}

#[test]
fn a_large_argument_comes_back() {
    let server = start(|_| {});
    let mut client = server.client();
    let large = "x".repeat(16 * 1024);
    for _ in 0..3 {
        assert_eq!(client.ask(&["ECHO", &large]), Answer::Bulk(large.clone()));
    }
    // More than is read at once, and more than may wait to be sent.
    let mut writing = client.stream.try_clone().unwrap();
    let pipeline = encode(&["ECHO", &large]).repeat(50);
    let writer = std::thread::spawn(move || writing.write_all(&pipeline).unwrap());
    for _ in 0..50 {
        assert_eq!(client.answer(), Answer::Bulk(large.clone()));
    }
    writer.join().unwrap();
}

#[test]
fn many_connections_on_few_threads() {
    let server = start(|config| config.resp_threads = 2);
    let mut clients: Vec<_> = (0..200).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send(&encode(&["CL.THROTTLE", "k", "199", "1", "1"]));
    }
    let mut remaining: Vec<i64> = clients
        .iter_mut()
        .map(|client| match client.answer() {
            Answer::Array(all) => match all[..] {
                [Answer::Int(0), _, Answer::Int(remaining), ..] => remaining,
                _ => panic!("{all:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    remaining.sort_unstable();
    assert_eq!(remaining, (0..200).collect::<Vec<_>>());
}

#[test]
fn there_are_so_many_connections_at_the_most() {
    let server = start(|config| config.connections_max = 2);
    let mut clients = [server.client(), server.client()];
    for client in &mut clients {
        assert_eq!(client.say("PING"), Answer::Simple("PONG".into()));
    }
    assert!(server.client().is_closed());
    let [mut gone, _kept] = clients;
    assert_eq!(gone.say("QUIT"), Answer::Simple("OK".into()));
    assert!(gone.is_closed());
    drop(gone);
    // The place is free once the server has seen that the client is gone.
    while server.client().is_turned_away() {}
}

#[test]
fn unix_sockets_speak_it_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("resp.sock");
    let server = start(|config| config.resp = Address::Unix(path.clone()));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(&encode(&["PING"]).repeat(2)).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = String::new();
    std::io::Read::read_to_string(&mut stream, &mut all).unwrap();
    assert_eq!(all, "+PONG\r\n+PONG\r\n");
    assert!(server.drain());
}
