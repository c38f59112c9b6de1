//! A client that speaks HTTP/2 and says whatever it likes.

use std::io;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpStream;
use tonic::Code;

use crate::support::{Running, descriptor, request};

pub(crate) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(crate) type RawBody = BoxBody<Bytes, io::Error>;

/// Such a client.
pub(crate) struct Raw(SendRequest<RawBody>);

impl Raw {
    pub(crate) async fn connect(running: &Running) -> Self {
        let stream = TcpStream::connect(running.address()).await.unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    pub(crate) async fn send(
        &mut self,
        request: Request<RawBody>,
    ) -> hyper::Result<Response<Incoming>> {
        self.0.ready().await?;
        self.0.send_request(request).await
    }

    /// Begins a request; what comes back is its answer.
    pub(crate) async fn begin(
        &mut self,
        request: Request<RawBody>,
    ) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.0.ready().await.unwrap();
        self.0.send_request(request)
    }

    /// The gRPC status of what comes back.
    pub(crate) async fn status(&mut self, request: Request<RawBody>) -> Code {
        let response = self.send(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let code = match response.headers().get("grpc-status").cloned() {
            Some(code) => code,
            None => response.collect().await.unwrap().trailers().unwrap()["grpc-status"].clone(),
        };
        Code::from_bytes(code.as_bytes())
    }
}

pub(crate) fn whole(bytes: &[u8]) -> RawBody {
    Full::new(Bytes::copy_from_slice(bytes)).map_err(|never| match never {}).boxed()
}

pub(crate) fn post(path: &str, body: &[u8]) -> Request<RawBody> {
    let builder = Request::builder().method(Method::POST).uri(format!("http://tidegate{path}"));
    builder
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(whole(body))
        .unwrap()
}

pub(crate) fn framed(flag: u8, length: usize, message: &[u8]) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    bytes.put_u8(flag);
    bytes.put_u32(length.try_into().unwrap());
    bytes.extend_from_slice(message);
    bytes.to_vec()
}

pub(crate) fn good() -> Vec<u8> {
    request(&[descriptor("user=ada")]).encode_to_vec()
}
