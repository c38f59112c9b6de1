//! The end of a server, as its clients see it.

use std::io;

use bytes::Bytes;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::raw::{PATH, Raw, framed, good, post};
use crate::support::{DEADLINE, Running, ask};

const RULES: &str = "  - { key: user, rate_limit: { requests_per_unit: 9, unit: minute } }\n";

#[tokio::test]
async fn a_connection_without_requests_is_closed_at_the_end() {
    let running = Running::with(RULES).await;
    let mut client = running.client().await;
    ask(&mut client, &["user=ada"]).await;
    let address = running.address();
    assert!(tokio::time::timeout(DEADLINE, running.server.drain()).await.unwrap());
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens");
}

#[tokio::test]
async fn what_was_begun_is_answered_and_nothing_new_is() {
    let running = Running::with(RULES).await;
    let mut raw = Raw::connect(&running).await;
    let message = framed(0, good().len(), &good());
    // A request of which the first half has come in for sure: another one was answered after it.
    let (sender, receiver) = mpsc::channel(1);
    let body = StreamBody::new(ReceiverStream::new(receiver)).boxed();
    let half = |part: &[u8]| Ok::<_, io::Error>(Frame::data(Bytes::copy_from_slice(part)));
    sender.send(half(&message[..7])).await.unwrap();
    let slow = raw.begin(post(PATH, b"").map(|_| body)).await;
    assert_eq!(raw.status(post(PATH, &message)).await, tonic::Code::Ok);

    let draining = tokio::spawn(running.server.drain());
    // The client hears of it, and can begin nothing any more.
    let refused = tokio::time::timeout(DEADLINE, async {
        while raw.send(post(PATH, &message)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    refused.await.unwrap();
    assert!(!draining.is_finished(), "it waits for the request that was begun");
    sender.send(half(&message[7..])).await.unwrap();
    drop(sender);
    let answer = slow.await.unwrap().collect().await.unwrap();
    assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
    assert!(tokio::time::timeout(DEADLINE, draining).await.unwrap().unwrap(), "all was done");
}
