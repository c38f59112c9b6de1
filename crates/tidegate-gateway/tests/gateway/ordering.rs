//! Requests of one key are sent on in the order in which they came, however many are due at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::PrivateKeyDer;
use tidegate::ManualClock;
use tidegate_gateway::{Gateway, GatewayConfig, RuleGate};
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::limiting::{Limiter, limiter, with};
use crate::support::*;

const ONE_A_SECOND_EACH: &str = "
domain: api
http: [ { match: { path: \"/{who}/**\" }, descriptors: [ { who: \"${path.who}\" } ] } ]
descriptors:
  - key: who
    rate_limit: { requests_per_unit: 1, unit: second, algorithm: leaky_bucket, queue: { size: 99 }, excess: delay }
";

fn ask(gateway: &Gateway, path: &str) -> TcpStream {
    let mut stream = connect(gateway);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    stream
}

/// An upstream whose connections are ready when it pleases: those who connect wait for its part of the
/// TLS handshake.
struct Coy {
    gateway: Gateway,
    limiter: Limiter,
    clock: ManualClock,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    _dir: tempfile::TempDir,
}

type Tls = StreamOwned<ServerConnection, TcpStream>;

impl Coy {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let ca = dir.path().join("cert.pem");
        std::fs::write(&ca, made.cert.pem()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let tls = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = GatewayConfig::to(format!("https://{}", listener.local_addr().unwrap()));
        config.upstreams[0].ca = Some(ca);
        config.routes[0].connect = GUARD;
        let (limiter, clock) = limiter(ONE_A_SECOND_EACH);
        let gateway = with(RuleGate::new(limiter.clone(), "api"), config);
        Self { gateway, limiter, clock, listener, tls: Arc::new(tls), _dir: dir }
    }

    fn accept(&self) -> TcpStream {
        let stream = self.listener.accept().unwrap().0;
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream
    }

    fn shake_hands(&self, mut stream: TcpStream) -> Tls {
        let mut session = ServerConnection::new(Arc::clone(&self.tls)).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut stream).unwrap();
        }
        StreamOwned::new(session, stream)
    }

    /// The first request is connecting, and the next ones have connections and are due.
    fn with_late_first(&self, behind: usize) -> (TcpStream, TcpStream, Vec<(TcpStream, Tls)>) {
        let first = ask(&self.gateway, "/ada/0");
        let late = self.accept();
        let clients = (1..=behind).map(|number| {
            let client = ask(&self.gateway, &format!("/ada/{number}"));
            until("it waits", || self.limiter.held() == number);
            client
        });
        let clients: Vec<_> = clients.collect();
        self.clock.advance(Duration::from_secs(60));
        let mut behind: Vec<_> =
            clients.into_iter().map(|it| (it, self.shake_hands(self.accept()))).collect();
        // Whoever has another key waits for nobody. When it has been served, what the gateway had to do
        // before has been done.
        let mut other = ask(&self.gateway, "/bob/0");
        let mut stream = self.shake_hands(self.accept());
        assert_eq!(path(&mut stream), "/bob/0");
        answer(&mut stream);
        assert_eq!(status(&read_answer(&mut other)), "200");
        for (_, stream) in &mut behind {
            stream.sock.set_nonblocking(true).unwrap();
            let read = stream.read(&mut [0; 1]);
            assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock, "it has overtaken");
            stream.sock.set_nonblocking(false).unwrap();
        }
        (first, late, behind)
    }
}

/// The path that the next request on a connection is for.
fn path(stream: &mut Tls) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut one = [0];
        stream.read_exact(&mut one).unwrap();
        bytes.push(one[0]);
    }
    String::from_utf8(bytes).unwrap().split(' ').nth(1).unwrap().to_owned()
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn answer(stream: &mut Tls) {
    stream.write_all(ANSWER).unwrap();
}

#[test]
fn who_has_a_connection_waits_for_those_before_it_who_have_none() {
    let coy = Coy::new();
    let (mut first, late, behind) = coy.with_late_first(3);
    let mut late = coy.shake_hands(late);
    assert_eq!(path(&mut late), "/ada/0");
    // It is the sending that they wait for, and not the answer.
    for (number, (mut client, mut stream)) in behind.into_iter().enumerate() {
        assert_eq!(path(&mut stream), format!("/ada/{}", number + 1));
        answer(&mut stream);
        assert_eq!(status(&read_answer(&mut client)), "200");
    }
    answer(&mut late);
    assert_eq!(status(&read_answer(&mut first)), "200");
}

#[test]
fn who_leaves_before_it_is_sent_is_not_waited_for() {
    let coy = Coy::new();
    let (first, _late, behind) = coy.with_late_first(2);
    drop(first);
    for (number, (_client, mut stream)) in behind.into_iter().enumerate() {
        assert_eq!(path(&mut stream), format!("/ada/{}", number + 1));
    }
}

#[test]
fn who_cannot_be_sent_is_not_waited_for() {
    let coy = Coy::new();
    let (mut first, late, behind) = coy.with_late_first(2);
    drop(late);
    assert_eq!(status(&read_answer(&mut first)), "502");
    for (number, (_client, mut stream)) in behind.into_iter().enumerate() {
        assert_eq!(path(&mut stream), format!("/ada/{}", number + 1));
    }
}

/// An upstream that sees what has been written so far on all of its connections.
struct Seeing {
    listener: UnixListener,
    streams: Vec<(UnixStream, Vec<u8>)>,
    seen: Vec<usize>,
}

impl Seeing {
    /// Looks at all connections once.
    fn look(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).unwrap();
            self.streams.push((stream, Vec::new()));
        }
        for (stream, bytes) in &mut self.streams {
            let mut some = [0; 4096];
            while let Ok(read @ 1..) = stream.read(&mut some) {
                bytes.extend_from_slice(&some[..read]);
            }
            if bytes.ends_with(b"\r\n\r\n") {
                let head = String::from_utf8(std::mem::take(bytes)).unwrap();
                let path = head.split(' ').nth(1).unwrap();
                self.seen.push(path.strip_prefix("/ada/").unwrap().parse().unwrap());
                stream.write_all(ANSWER).unwrap();
            }
        }
    }

    /// Looks on until so many have come. Once somebody has been seen, all before it must have been
    /// written: a second look finds them.
    fn see(&mut self, count: usize) {
        until("all have come", || {
            self.look();
            let newest = self.seen.iter().copied().max().map_or(0, |newest| newest + 1);
            self.look();
            let missing: Vec<usize> = (0..newest).filter(|it| !self.seen.contains(it)).collect();
            assert!(missing.is_empty(), "{missing:?} come after {}", newest - 1);
            self.seen.len() == count
        });
    }
}

#[test]
fn threads_send_in_order_what_is_due_at_once() {
    const REQUESTS: usize = 60;
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("upstream.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut upstream = Seeing { listener, streams: Vec::new(), seen: Vec::new() };
    let (limiter, clock) = limiter(ONE_A_SECOND_EACH);
    let mut config = GatewayConfig::to(format!("unix:{}", socket.display()));
    config.threads = 2;
    let gateway = Gateway::start(config, RuleGate::new(limiter.clone(), "api")).unwrap();
    let mut clients: Vec<_> = (0..REQUESTS).map(|_| connect(&gateway)).collect();
    // In the first round all connections are new, later some are.
    for _ in 0..20 {
        for (number, client) in clients.iter_mut().enumerate() {
            write!(client, "GET /ada/{number} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            match number {
                0 => upstream.see(1),
                number => until("it waits", || limiter.held() == number),
            }
        }
        clock.advance(Duration::from_secs(1000));
        upstream.see(REQUESTS);
        for client in &mut clients {
            assert_eq!(status(&read_answer(client)), "200");
        }
        clock.advance(Duration::from_secs(1000));
        upstream.seen.clear();
    }
    assert_eq!(limiter.held(), 0);
}
