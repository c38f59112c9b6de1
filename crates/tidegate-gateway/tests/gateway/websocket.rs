//! WebSockets through the gateway, with a real library at both ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tidegate_gateway::{Gateway, GatewayConfig, RuleGate};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::limiting::{TWO_AN_HOUR, limiter, with};
use crate::support::*;

/// A server that sends back what it is sent, and says how it was asked in its first message. Whoever asks
/// for `/no` is told no.
fn echo_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve_one(stream));
        }
    });
    address
}

#[expect(clippy::result_large_err, reason = "the library has it so")]
fn serve_one(stream: TcpStream) {
    let mut asked = String::new();
    let agree = |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        if request.uri().path() == "/no" {
            return Err(http::Response::builder().status(403).body(Some("no".into())).unwrap());
        }
        let text = |name: &str| request.headers().get(name).map_or("none", |v| v.to_str().unwrap());
        asked = format!(
            "{} {} {}",
            request.uri(),
            text("x-forwarded-for"),
            text("sec-websocket-protocol")
        );
        if let Some(protocol) = request.headers().get("sec-websocket-protocol") {
            response.headers_mut().insert("sec-websocket-protocol", protocol.clone());
        }
        Ok(response)
    };
    let Ok(mut socket) = tungstenite::accept_hdr(stream, agree) else { return };
    socket.send(asked.into()).unwrap();
    while let Ok(message) = socket.read() {
        if (message.is_text() || message.is_binary()) && socket.send(message).is_err() {
            return;
        }
    }
}

type Connected<S> = Result<(WebSocket<S>, tungstenite::handshake::client::Response), Box<Error>>;

/// Asks for a WebSocket over a connection.
fn ask<S: Read + Write>(stream: S, url: &str, protocol: Option<&str>) -> Connected<S> {
    let mut request = url.into_client_request().unwrap();
    if let Some(protocol) = protocol {
        request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
    }
    tungstenite::client(request, stream).map_err(|error| match error {
        HandshakeError::Failure(error) => Box::new(error),
        HandshakeError::Interrupted(_) => panic!("the handshake took too long"),
    })
}

fn open(gateway: &Gateway, path: &str) -> Connected<TcpStream> {
    let url = format!("ws://{}{path}", at(gateway));
    ask(connect(gateway), &url, None)
}

fn refused(connected: Connected<TcpStream>) -> http::Response<Option<Vec<u8>>> {
    match *connected.map(|_| ()).expect_err("no WebSocket") {
        Error::Http(response) => *response,
        error => panic!("{error}"),
    }
}

#[test]
fn messages_of_all_kinds_go_both_ways() {
    let gateway = start(GatewayConfig::to(format!("http://{}", echo_server())));
    let url = format!("ws://{}/chat?a=b", at(&gateway));
    let (mut socket, response) = ask(connect(&gateway), &url, Some("chat.v2")).unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "chat.v2");
    assert_eq!(socket.read().unwrap(), Message::text("/chat?a=b 127.0.0.1 chat.v2"));
    let large: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[0]).collect();
    for message in [
        Message::text("hello"),
        Message::text(""),
        Message::text("GET / HTTP/1.1\nHost: a\n\n"),
        Message::binary(large),
        Message::text("ünïcode \u{1f30a}"),
    ] {
        socket.send(message.clone()).unwrap();
        assert!(socket.read().unwrap() == message);
    }
    socket.send(Message::Ping("are you there".into())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Pong("are you there".into()));
    // Both ends say goodbye, and both connections are gone.
    let goodbye = CloseFrame { code: CloseCode::Normal, reason: "done".into() };
    socket.close(Some(goodbye.clone())).unwrap();
    assert_eq!(socket.read().unwrap(), Message::Close(Some(goodbye)));
    assert!(matches!(socket.read(), Err(Error::ConnectionClosed)));
    until("the connection is over", || gateway.connections() == 0);
}

#[test]
fn over_tls_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = GatewayConfig::to(format!("http://{}", echo_server()));
    let files = crate::secure::certify(dir.path(), "localhost");
    config.tls = Some(files.clone());
    let gateway = start(config);
    let mut roots = RootCertStore::empty();
    let certificate =
        <rustls_pki_types::CertificateDer<'_> as rustls_pki_types::pem::PemObject>::from_pem_file(
            &files.certificate,
        );
    roots.add(certificate.unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(client), name).unwrap();
    let stream = StreamOwned::new(connection, connect(&gateway));
    let (mut socket, _) = ask(stream, "wss://localhost/tls", None).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("/tls 127.0.0.1 none"));
    socket.send(Message::text("secret")).unwrap();
    assert_eq!(socket.read().unwrap(), Message::text("secret"));
}

#[test]
fn who_is_told_no_can_read_why() {
    let gateway = start(GatewayConfig::to(format!("http://{}", echo_server())));
    let response = refused(open(&gateway, "/no"));
    assert_eq!(response.status(), 403);
    assert_eq!(response.headers()["via"], "1.1 tidegate");
    let gone = start(GatewayConfig::to(format!("http://{}", nobody())));
    assert_eq!(refused(open(&gone, "/")).status(), 502);
}

#[test]
fn a_handshake_is_a_request_and_counted() {
    let (limiter, clock) = limiter(TWO_AN_HOUR);
    let config = GatewayConfig::to(format!("http://{}", echo_server()));
    let gateway = with(RuleGate::new(limiter, "api"), config);
    let (mut first, response) = open(&gateway, "/").unwrap();
    assert_eq!(response.headers()["x-ratelimit-remaining"], "1");
    let (_second, _) = open(&gateway, "/").unwrap();
    let response = refused(open(&gateway, "/"));
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "1800");
    // Messages are not, nor are those who have left given back.
    first.read().unwrap();
    for _ in 0..5 {
        first.send(Message::text("again")).unwrap();
        assert_eq!(first.read().unwrap(), Message::text("again"));
    }
    drop(first);
    assert_eq!(refused(open(&gateway, "/")).status(), 429);
    clock.advance(Duration::from_secs(1800));
    open(&gateway, "/").unwrap();
}

#[test]
fn one_that_is_open_is_one_under_way() {
    let (limiter, _) = limiter(
        "
domain: api
http: [ { match: { path: \"/**\" }, descriptors: [ { ip: \"${client_ip}\" } ] } ]
descriptors:
  - { key: ip, rate_limit: { requests_per_unit: 1, algorithm: concurrency } }
",
    );
    let config = GatewayConfig::to(format!("http://{}", echo_server()));
    let gateway = with(RuleGate::new(limiter, "api"), config);
    let (mut first, _) = open(&gateway, "/").unwrap();
    first.read().unwrap();
    assert_eq!(refused(open(&gateway, "/")).status(), 429);
    first.send(Message::text("still here")).unwrap();
    assert_eq!(first.read().unwrap(), Message::text("still here"));
    drop(first);
    until("its place is free", || open(&gateway, "/").is_ok());
}

#[test]
fn one_that_is_silent_ends_and_one_that_pings_does_not() {
    let mut config = GatewayConfig::to(format!("http://{}", echo_server()));
    config.routes[0].idle = Duration::from_millis(800);
    let gateway = start(config);
    let (mut silent, _) = open(&gateway, "/").unwrap();
    silent.read().unwrap();
    let (mut lively, _) = open(&gateway, "/").unwrap();
    lively.read().unwrap();
    // The lively one outlives the silent one, by what it says in between.
    let ended = std::thread::spawn(move || silent.read());
    let mut pings = 0;
    while !ended.is_finished() {
        lively.send(Message::Ping("".into())).unwrap();
        assert_eq!(lively.read().unwrap(), Message::Pong("".into()));
        pings += 1;
        assert!(pings < 1000, "the silent one never ends");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(ended.join().unwrap().is_err());
    lively.send(Message::text("here")).unwrap();
    assert_eq!(lively.read().unwrap(), Message::text("here"));
}

#[tokio::test]
async fn draining_waits_for_those_that_are_open_and_not_forever() {
    let mut config = GatewayConfig::to(format!("http://{}", echo_server()));
    config.drain = Duration::from_millis(100);
    let gateway = start(config);
    let (mut socket, _) = open(&gateway, "/").unwrap();
    socket.read().unwrap();
    assert!(!gateway.drain().await, "it was open to the end");
    assert!(socket.read().is_err());
    let gateway = start(GatewayConfig::to(format!("http://{}", echo_server())));
    let (mut socket, _) = open(&gateway, "/").unwrap();
    socket.read().unwrap();
    let draining = tokio::spawn(gateway.drain());
    let leaving = move || {
        socket.send(Message::text("last words")).unwrap();
        let last = socket.read().unwrap();
        drop(socket);
        last
    };
    let last = tokio::task::spawn_blocking(leaving).await.unwrap();
    assert_eq!(last, Message::text("last words"));
    assert!(draining.await.unwrap());
}
