//! TLS, HTTP/2 and gRPC.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tidegate_gateway::{GatewayConfig, TlsFiles};
use tidegate_proto::{
    Code, RateLimitRequest, RateLimitResponse, RateLimitService, RateLimitServiceClient,
    RateLimitServiceServer,
};

use crate::support::*;

/// Writes a certificate for a name, and its key.
pub(crate) fn certify(dir: &Path, name: &str) -> TlsFiles {
    let made =
        rcgen::generate_simple_self_signed([name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    TlsFiles { certificate, key, client_ca: None }
}

#[test]
fn tls_is_terminated_and_certificates_are_read_again() {
    let (upstream, dir) = (echo(), tempfile::tempdir().unwrap());
    let mut config = GatewayConfig::to(upstream.url());
    let files = certify(dir.path(), "one.example");
    config.tls = Some(files.clone());
    let gateway = start(config);
    let port = at(&gateway).port();
    let ask = |name: &str, version: &str| {
        let resolve = format!("{name}:{port}:127.0.0.1");
        let url = format!("https://{name}:{port}/");
        let ca = files.certificate.display().to_string();
        curl(&["-i", version, "--resolve", &resolve, "--cacert", &ca, &url])
    };
    let answer = ask("one.example", "--http2");
    assert!(answer.starts_with("HTTP/2 200"), "{answer}");
    assert!(
        answer.contains("GET / HTTP/1.1\n") && answer.contains("x-forwarded-proto: https\n"),
        "{answer}"
    );
    assert!(answer.contains(&format!("host: one.example:{port}\n")), "{answer}");
    let answer = ask("one.example", "--http1.1");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    certify(dir.path(), "two.example");
    gateway.reload_tls().unwrap();
    assert!(ask("two.example", "--http2").starts_with("HTTP/2 200"));
    std::fs::write(&files.key, "nonsense").unwrap();
    assert!(gateway.reload_tls().unwrap_err().to_string().contains("key.pem"));
    assert!(ask("two.example", "--http2").starts_with("HTTP/2 200"), "the old one stays");
    // Whoever does not speak TLS is nobody.
    assert!(!say(&gateway, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/"));
}

#[test]
fn http2_without_tls_is_understood() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(upstream.url()));
    let answer = curl(&[
        "-i",
        "--http2-prior-knowledge",
        "-H",
        "Cookie: a=b; c=d",
        "-d",
        "body",
        &url(&gateway, "/x?y"),
    ]);
    assert!(answer.starts_with("HTTP/2 200"), "{answer}");
    assert!(answer.contains("POST /x?y HTTP/1.1\n") && answer.ends_with("\nbody"), "{answer}");
    let host = at(&gateway);
    for wanted in
        [format!("host: {host}\n"), "cookie: a=b; c=d\n".into(), "content-length: 4\n".into()]
    {
        assert!(answer.contains(&wanted), "{answer}");
    }
    let answer = curl(&["-I", "--http2-prior-knowledge", &url(&gateway, "/")]);
    assert!(answer.starts_with("HTTP/2 200"), "{answer}");
}

#[test]
fn upstreams_may_speak_http2() {
    let upstream = echo();
    let gateway = start(GatewayConfig::to(format!("h2c://{}", upstream.address)));
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for _ in 0..3 {
            let answer = curl(&[
                version,
                "-H",
                "Connection: x-secret",
                "-H",
                "X-Secret: 1",
                "-d",
                "body",
                &url(&gateway, "/x?y"),
            ]);
            let host = at(&gateway);
            assert!(answer.starts_with(&format!("POST http://{host}/x?y HTTP/2.0\n")), "{answer}");
            assert!(answer.ends_with("\nbody"), "{answer}");
        }
    }
    assert_eq!(upstream.accepted(), 1, "one connection carries them all");
    let gone = start(GatewayConfig::to(format!("h2c://{}", nobody())));
    assert_eq!(status(&curl(&["-i", &url(&gone, "/")])), "502");
}

#[test]
fn upstreams_may_speak_tls() {
    let (behind, dir) = (echo(), tempfile::tempdir().unwrap());
    let mut config = GatewayConfig::to(behind.url());
    let files = certify(dir.path(), "localhost");
    config.tls = Some(files.clone());
    // A gateway is as good a server as any.
    let inner = start(config);
    let port = at(&inner).port();
    for scheme in ["https", "h2"] {
        let mut config = GatewayConfig::to(format!("{scheme}://127.0.0.1:{port}"));
        config.upstreams[0].ca = Some(files.certificate.clone());
        let gateway = start(config);
        let answer = curl(&[&url(&gateway, "/")]);
        assert!(answer.contains("via: 1.1 tidegate, 1.1 tidegate\n"), "{answer}");
        assert!(answer.contains("x-forwarded-proto: https\n"), "{answer}");
    }
    // Whom nobody vouches for is not trusted.
    let gateway = start(GatewayConfig::to(format!("https://127.0.0.1:{port}")));
    assert_eq!(status(&curl(&["-i", &url(&gateway, "/")])), "502");
}

struct Asked;

#[tonic::async_trait]
impl RateLimitService for Asked {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, tonic::Status> {
        match request.get_ref().domain.as_str() {
            "fine" => Ok(tonic::Response::new(RateLimitResponse {
                overall_code: Code::Ok.into(),
                ..Default::default()
            })),
            domain => Err(tonic::Status::not_found(format!("no {domain}"))),
        }
    }
}

/// A gRPC server.
pub(crate) fn grpc_server() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            let service = RateLimitServiceServer::new(Asked);
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        });
    });
    address
}

/// Asks by gRPC.
pub(crate) async fn grpc_ask(
    address: std::net::SocketAddr,
    domain: &str,
) -> Result<(), tonic::Status> {
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = RateLimitServiceClient::new(channel.connect().await.unwrap());
    let request = RateLimitRequest { domain: domain.into(), ..Default::default() };
    client.should_rate_limit(request).await.map(|_| ())
}

#[tokio::test]
async fn grpc_goes_through_with_its_trailers() {
    let upstream = grpc_server();
    let gateway = start(GatewayConfig::to(format!("h2c://{upstream}")));
    grpc_ask(at(&gateway), "fine").await.unwrap();
    let refused = grpc_ask(at(&gateway), "other").await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (tonic::Code::NotFound, "no other"));
    let gone = start(GatewayConfig::to(format!("h2c://{}", nobody())));
    let refused = grpc_ask(at(&gone), "fine").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
}

#[test]
fn trailers_of_http2_upstreams_reach_http1_clients() {
    let upstream = serve(|_| async {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-end", "1".parse().unwrap());
        let frames = [Ok(Frame::data("body".into())), Ok(Frame::trailers(trailers))];
        let mut response = Response::new(StreamBody::new(tokio_stream::iter(frames)).boxed());
        response.headers_mut().insert("trailer", "x-end".parse().unwrap());
        response
    });
    let gateway = start(GatewayConfig::to(format!("h2c://{}", upstream.address)));
    let answer =
        say(&gateway, "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n");
    assert!(answer.ends_with("4\r\nbody\r\n0\r\nx-end: 1\r\n\r\n"), "{answer}");
}

#[test]
fn an_idle_http2_client_is_sent_away() {
    let upstream = echo();
    let mut config = GatewayConfig::to(upstream.url());
    config.patience.idle = Duration::from_millis(200);
    let gateway = start(config);
    let mut stream = TcpStream::connect(at(&gateway)).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    // A GOAWAY frame is of type 7.
    assert!(bytes.windows(9).any(|frame| frame[..4] == [0, 0, 8, 7]), "{bytes:?}");
}
