//! The end of a server, as RESP clients see it.

use std::time::Duration;

use crate::support::{Answer, encode, start};

#[test]
fn idle_connections_are_closed_at_once() {
    let server = start(|_| {});
    let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        assert_eq!(client.say("PING"), Answer::Simple("PONG".into()));
    }
    assert!(server.drain());
    for client in &mut clients {
        assert!(client.is_closed());
    }
}

#[test]
fn what_was_sent_before_the_end_is_answered() {
    for _ in 0..50 {
        let server = start(|_| {});
        let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
        for client in &mut clients {
            assert_eq!(client.say("PING"), Answer::Simple("PONG".into()));
        }
        // All of it is in the server's socket, whether its thread has seen it or not.
        for client in &mut clients {
            client.send(&encode(&["ECHO", "still here"]).repeat(10));
        }
        assert!(server.drain());
        for client in &mut clients {
            assert_eq!(client.rest(), "$10\r\nstill here\r\n".repeat(10));
        }
    }
}

#[test]
fn half_a_command_does_not_hold_up_the_end() {
    let server = start(|_| {});
    let mut client = server.client();
    client.send(b"PING\r\n*1\r\n$4\r\nPI");
    assert_eq!(client.answer(), Answer::Simple("PONG".into()));
    assert!(server.drain());
    assert!(client.is_closed());
}

#[test]
fn who_does_not_read_is_cut_off_when_time_is_up() {
    let mut server = start(|config| config.drain = Duration::from_millis(200));
    let mut deaf = server.client();
    deaf.send_until_stuck(&encode(&["ECHO", &"x".repeat(4000)]));
    let draining = server.begin_to_drain();
    assert!(!server.wait(draining), "it had not finished");
    deaf.drop_all();
}
