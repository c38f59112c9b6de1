//! What is no proper request gets a proper answer, and everybody else goes on.

use std::io;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use prost::Message as _;
use tidegate_proto::Code::Ok as Fine;
use tidegate_proto::RateLimitResponse;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::raw::{PATH, Raw, framed, good, post};
use crate::support::{DEADLINE, Running, ask};

const RULES: &str = "  - { key: user, rate_limit: { requests_per_unit: 9, unit: minute } }\n";

#[tokio::test]
async fn bytes_that_are_no_message() {
    let running = Running::with(RULES).await;
    let mut raw = Raw::connect(&running).await;
    let good = good();
    let whole = good.len();
    let twice = [framed(0, whole, &good), framed(0, whole, &good)].concat();
    let wrong = [
        (Vec::new(), Code::Internal),
        (vec![0; 4], Code::Internal),
        (framed(0, whole + 1, &good), Code::Internal),
        (framed(0, whole - 1, &good), Code::Internal),
        (framed(0, u32::MAX as usize, &good), Code::Internal),
        (framed(0, 3, b"\xff\xff\xff"), Code::Internal),
        (framed(0, 4, b"\x0a\x02\xff\xfe"), Code::Internal),
        (framed(1, whole, &good), Code::Unimplemented),
        (twice, Code::Internal),
        (framed(0, 0, b""), Code::InvalidArgument),
        (framed(0, 1 << 20, &vec![0x1a; 1 << 20]), Code::Internal),
        (framed(0, (1 << 20) + 1, &vec![0x1a; (1 << 20) + 1]), Code::ResourceExhausted),
    ];
    let mut other = running.client().await;
    for (number, (body, code)) in wrong.into_iter().enumerate() {
        assert_eq!(raw.status(post(PATH, &body)).await, code, "number {number}");
        let response = ask(&mut other, &["user=ada"]).await;
        assert_eq!(response.statuses[0].limit_remaining, 8, "nobody else is disturbed");
        running.advance(std::time::Duration::from_secs(60));
    }
    // The same connection is still good.
    assert_eq!(raw.status(post(PATH, &framed(0, whole, &good))).await, Code::Ok);
}

#[tokio::test]
async fn a_message_in_many_pieces_is_one_message() {
    let running = Running::with(RULES).await;
    let mut raw = Raw::connect(&running).await;
    let good = good();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let body = StreamBody::new(ReceiverStream::new(receiver)).boxed();
    let bytes = framed(0, good.len(), &good);
    let writing = tokio::spawn(async move {
        for byte in bytes {
            let piece = Frame::data(Bytes::copy_from_slice(&[byte]));
            sender.send(Ok::<_, io::Error>(piece)).await.unwrap();
        }
    });
    let response = raw.send(post(PATH, b"").map(|_| body)).await.unwrap();
    writing.await.unwrap();
    let body = response.collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    let answer = RateLimitResponse::decode(&body.to_bytes()[5..]).unwrap();
    assert_eq!((answer.overall_code(), answer.statuses[0].limit_remaining), (Fine, 8));
}

#[tokio::test]
async fn who_asks_in_the_wrong_way_is_told_so() {
    let running = Running::with(RULES).await;
    let mut raw = Raw::connect(&running).await;
    let body = framed(0, good().len(), &good());
    for path in ["/", "/envoy.service.ratelimit.v3.RateLimitService/Other", "/a/b", PATH_BEFORE] {
        assert_eq!(raw.status(post(path, &body)).await, Code::Unimplemented, "{path}");
    }
    for kind in ["application/json", "application/grpc-web", "application/grpc+json", "text/plain"]
    {
        let mut asked = post(PATH, &body);
        asked.headers_mut().insert("content-type", kind.parse().unwrap());
        let response = raw.send(asked).await.unwrap();
        assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    for kind in ["application/grpc+proto", "application/grpc;x=y"] {
        let mut asked = post(PATH, &body);
        asked.headers_mut().insert("content-type", kind.parse().unwrap());
        assert_eq!(raw.status(asked).await, Code::Ok, "{kind}");
    }
    let mut asked = post(PATH, b"");
    asked.headers_mut().remove("content-type");
    assert_eq!(raw.send(asked).await.unwrap().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let mut asked = post(PATH, b"");
    *asked.method_mut() = Method::GET;
    assert_eq!(raw.send(asked).await.unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
    let mut asked = post(PATH, &body);
    let long = "x".repeat(20 * 1024);
    asked.headers_mut().insert("x-long", long.parse().unwrap());
    let response = raw.send(asked).await;
    let status = response.map(|response| response.status());
    assert!(
        status.is_err() || status.is_ok_and(|it| it == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
    );
    assert_eq!(ask(&mut running.client().await, &["user=eve"]).await.overall_code(), Fine);
}

/// The method as the version before had it.
const PATH_BEFORE: &str = "/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit";

#[tokio::test]
async fn those_who_do_not_speak_http2_are_turned_away() {
    let running = Running::with(RULES).await;
    let noise: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        &[0; 4096],
    ];
    for bytes in noise {
        let mut stream = TcpStream::connect(running.address()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        // It is closed from the other side, in whatever way.
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.unwrap();
    }
    assert_eq!(ask(&mut running.client().await, &["user=ada"]).await.overall_code(), Fine);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_leaves_nothing_behind() {
    let running = Running::with(RULES).await;
    let mut raw = Raw::connect(&running).await;
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    let body = StreamBody::new(ReceiverStream::new(receiver)).boxed();
    sender.send(Ok::<_, io::Error>(Frame::data(Bytes::from_static(&[0, 0])))).await.unwrap();
    let asked = post(PATH, b"").map(|_| body);
    let asked = tokio::spawn(async move { raw.send(asked).await.map(|it| it.status()) });
    sender.send(Err(io::Error::other("gone"))).await.unwrap();
    drop(sender);
    assert!(asked.await.unwrap().is_err());
    assert!(tokio::time::timeout(DEADLINE, running.server.drain()).await.unwrap());
}
