//! gRPC through the gateway, with tonic at both ends: calls of all four kinds.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_gateway::{Gateway, GatewayConfig, RuleGate};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataValue;
use tonic::server::StreamingService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::limiting::{TWO_AN_HOUR, limiter, with};
use crate::support::*;

/// Messages that are texts.
#[derive(Clone, Copy, Default)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, item: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(item.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        Ok(Some(String::from_utf8(bytes.to_vec()).unwrap()))
    }
}

type Texts = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;
type Answering = Pin<Box<dyn Future<Output = Result<Response<Texts>, Status>> + Send>>;

/// A method, by the path that it was called by. On the wire all kinds of calls are streams.
struct Method {
    path: String,
    /// Told when a call that never ends is given up.
    given_up: Sender<()>,
}

impl StreamingService<String> for Method {
    type Response = String;
    type ResponseStream = Texts;
    type Future = Answering;

    fn call(&mut self, request: Request<Streaming<String>>) -> Answering {
        let (path, given_up) = (self.path.clone(), self.given_up.clone());
        let timeout =
            request.metadata().get("grpc-timeout").map(|v| v.to_str().unwrap().to_owned());
        Box::pin(async move {
            match path.as_str() {
                "/t/Refuse" => return Err(Status::permission_denied("not you")),
                "/t/Hang" => {
                    let _told = GivenUp(given_up);
                    std::future::pending::<()>().await;
                }
                _ => {}
            }
            let (texts, answers) = mpsc::channel(1);
            let mut said = request.into_inner();
            tokio::spawn(async move {
                match path.as_str() {
                    "/t/Echo" => {
                        while let Some(text) = said.next().await {
                            let _ = texts.send(text).await;
                        }
                    }
                    "/t/Count" => {
                        let most: u32 = said.next().await.unwrap().unwrap().parse().unwrap();
                        for n in 0..most {
                            let _ = texts.send(Ok(n.to_string())).await;
                        }
                    }
                    "/t/Join" => {
                        let mut all = String::new();
                        while let Some(Ok(text)) = said.next().await {
                            all.push_str(&text);
                        }
                        let _ = texts.send(Ok(all)).await;
                    }
                    "/t/Timeout" => drop(texts.send(Ok(timeout.unwrap_or_default())).await),
                    _ => {
                        let _ = texts.send(Ok("first".into())).await;
                        let mut status = Status::data_loss("half way: 50% \u{fc}");
                        status
                            .metadata_mut()
                            .insert("x-where", MetadataValue::from_static("there"));
                        let _ = texts.send(Err(status)).await;
                    }
                }
            });
            Ok(Response::new(Box::pin(ReceiverStream::new(answers)) as Texts))
        })
    }
}

/// Tells when it is dropped.
struct GivenUp(Sender<()>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

/// A server of all that.
fn serve_grpc() -> (SocketAddr, Receiver<()>) {
    let (given_up, told) = mpsc::channel(1);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let given_up = given_up.clone();
                let service =
                    hyper::service::service_fn(move |request: http::Request<Incoming>| {
                        let path = request.uri().path().to_owned();
                        let method = Method { path, given_up: given_up.clone() };
                        async move {
                            let answer =
                                tonic::server::Grpc::new(Text).streaming(method, request).await;
                            Ok::<_, Infallible>(answer)
                        }
                    });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let serving = builder.serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move { drop(serving.await) });
            }
        });
    });
    (address, told)
}

type Client = tonic::client::Grpc<Channel>;

async fn client(gateway: &Gateway) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{}", at(gateway))).unwrap();
    let mut client = Client::new(endpoint.connect().await.unwrap());
    client.ready().await.unwrap();
    client
}

fn path(method: &str) -> http::uri::PathAndQuery {
    format!("/t/{method}").parse().unwrap()
}

async fn unary(client: &mut Client, method: &str, text: &str) -> Result<String, Status> {
    client.ready().await.unwrap();
    let answer = client.unary(Request::new(text.to_owned()), path(method), Text).await?;
    Ok(answer.into_inner())
}

fn through() -> (Gateway, Receiver<()>) {
    let (address, told) = serve_grpc();
    (start(GatewayConfig::to(format!("h2c://{address}"))), told)
}

#[tokio::test]
async fn one_message_for_one() {
    let (gateway, _) = through();
    let mut client = client(&gateway).await;
    assert_eq!(unary(&mut client, "Echo", "hello").await.unwrap(), "hello");
    assert_eq!(unary(&mut client, "Echo", "").await.unwrap(), "");
    let large = "x".repeat(3 << 20);
    assert!(unary(&mut client, "Join", &large).await.unwrap() == large);
    let refused = unary(&mut client, "Refuse", "").await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, "not you"));
}

#[tokio::test]
async fn many_messages_for_one_and_one_for_many() {
    let (gateway, _) = through();
    let mut client = client(&gateway).await;
    let answer = client.server_streaming(Request::new("500".to_owned()), path("Count"), Text).await;
    let mut texts = answer.unwrap().into_inner();
    let mut count = 0;
    while let Some(text) = texts.message().await.unwrap() {
        assert_eq!(text, count.to_string());
        count += 1;
    }
    assert_eq!(count, 500);
    client.ready().await.unwrap();
    let said: Vec<String> = (0..500).map(|n| format!("{n} ")).collect();
    let wanted = said.concat();
    let said = Request::new(tokio_stream::iter(said));
    let answer = client.client_streaming(said, path("Join"), Text).await.unwrap();
    assert_eq!(answer.into_inner(), wanted);
}

#[tokio::test]
async fn messages_both_ways_wait_for_nobody() {
    let (gateway, _) = through();
    let mut client = client(&gateway).await;
    let (say, said) = mpsc::channel::<String>(1);
    let said = Request::new(ReceiverStream::new(said));
    let mut texts = client.streaming(said, path("Echo"), Text).await.unwrap().into_inner();
    for n in 0..50 {
        // The next one is said only when this one has come back.
        say.send(n.to_string()).await.unwrap();
        assert_eq!(texts.message().await.unwrap(), Some(n.to_string()));
    }
    drop(say);
    assert_eq!(texts.message().await.unwrap(), None);
}

#[tokio::test]
async fn how_a_call_ends_is_told_with_all_that_belongs_to_it() {
    let (gateway, _) = through();
    let mut client = client(&gateway).await;
    let answer = client.server_streaming(Request::new(String::new()), path("Fail"), Text).await;
    let mut texts = answer.unwrap().into_inner();
    assert_eq!(texts.message().await.unwrap().unwrap(), "first");
    let status = texts.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "half way: 50% \u{fc}"));
    assert_eq!(status.metadata().get("x-where").unwrap(), "there");
}

#[tokio::test]
async fn deadlines_are_passed_on_and_calls_given_up_end() {
    let (gateway, mut told) = through();
    let mut client = client(&gateway).await;
    let mut request = Request::new(String::new());
    request.set_timeout(Duration::from_secs(77));
    let answer = client.unary(request, path("Timeout"), Text).await.unwrap().into_inner();
    assert_eq!(answer, "77000000u");
    let mut request = Request::new(String::new());
    request.set_timeout(Duration::from_millis(200));
    client.ready().await.unwrap();
    let status = client.unary(request, path("Hang"), Text).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
    let given_up = tokio::time::timeout(GUARD, told.recv()).await;
    assert_eq!(given_up, Ok(Some(())), "the upstream has heard of it");
}

#[tokio::test]
async fn calls_of_all_kinds_are_counted_and_refused_in_their_own_words() {
    let (address, _told) = serve_grpc();
    let (limiter, clock) = limiter(TWO_AN_HOUR);
    let config = GatewayConfig::to(format!("h2c://{address}"));
    let gateway = with(RuleGate::new(limiter, "api"), config);
    let mut client = client(&gateway).await;
    for _ in 0..2 {
        unary(&mut client, "Echo", "fine").await.unwrap();
    }
    let check = |status: Status| {
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert_eq!(status.metadata().get("retry-after").unwrap(), "1800");
    };
    check(unary(&mut client, "Echo", "too many").await.unwrap_err());
    client.ready().await.unwrap();
    let answer = client.server_streaming(Request::new("9".to_owned()), path("Count"), Text).await;
    check(answer.unwrap_err());
    // Whoever has not said everything yet is told as well.
    let (say, said) = mpsc::channel::<String>(1);
    client.ready().await.unwrap();
    let said = Request::new(ReceiverStream::new(said));
    check(client.client_streaming(said, path("Join"), Text).await.unwrap_err());
    drop(say);
    let (_say, said) = mpsc::channel::<String>(1);
    client.ready().await.unwrap();
    let said = Request::new(ReceiverStream::new(said));
    check(client.streaming(said, path("Echo"), Text).await.unwrap_err());
    // The connection goes on.
    clock.advance(Duration::from_secs(1800));
    assert_eq!(unary(&mut client, "Echo", "again").await.unwrap(), "again");
}

#[tokio::test]
async fn a_call_may_be_silent_for_as_long_as_the_route_says() {
    let (address, mut told) = serve_grpc();
    let mut config = GatewayConfig::to(format!("h2c://{address}"));
    // Nobody says anything: clients have little patience, the route has more.
    config.patience.body = Duration::from_millis(100);
    config.routes[0].idle = Duration::from_millis(600);
    let gateway = start(config);
    let mut client = client(&gateway).await;
    let (_say, said) = mpsc::channel::<String>(1);
    let said = Request::new(ReceiverStream::new(said));
    let began = std::time::Instant::now();
    let status = client.streaming(said, path("Hang"), Text).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
    assert_eq!(tokio::time::timeout(GUARD, told.recv()).await, Ok(Some(())));
}
