//! What proxying costs with hyper as it comes: its server, the client of hyper-util, and no limits.

use std::net::SocketAddr;

use hyper::body::Incoming;
use hyper::header::{HOST, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::{Client, Error, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

/// Serves until the process is killed.
pub(super) fn serve(threads: usize, upstream: &str) {
    let upstream = upstream.to_owned();
    on_threads(threads, move |listener| run(listener, &upstream));
}

/// Runs on so many threads, each with a listener of its own, and says where they listen.
pub(super) fn on_threads(
    threads: usize,
    run: impl Fn(std::net::TcpListener) + Clone + Send + 'static,
) {
    let first = listen("127.0.0.1:0".parse().expect("an address"));
    let address = first.local_addr().expect("its address");
    println!("{address}");
    let more: Vec<_> = (1..threads)
        .map(|_| {
            let run = run.clone();
            std::thread::spawn(move || run(listen(address)))
        })
        .collect();
    run(first);
    more.into_iter().for_each(|thread| drop(thread.join()));
}

/// A listener for one of several threads.
fn listen(address: SocketAddr) -> std::net::TcpListener {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_reuse_port(true).expect("a port for several");
    socket.set_nonblocking(true).expect("a socket that does not block");
    socket.bind(&address.into()).expect("a free port");
    socket.listen(1024).expect("it listens");
    socket.into()
}

fn run(listener: std::net::TcpListener, upstream: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::from_std(listener).expect("a listener");
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(128)
            .build::<_, Incoming>(connector);
        loop {
            let (stream, peer) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            let (client, upstream) = (client.clone(), upstream.to_owned());
            let forwarded = HeaderValue::from_str(&peer.ip().to_string()).expect("an address");
            let service = service_fn(move |request| {
                pass_on(client.clone(), upstream.clone(), forwarded.clone(), request)
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
}

async fn pass_on(
    client: Client<HttpConnector, Incoming>,
    upstream: String,
    forwarded: HeaderValue,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Error> {
    let mut parts = request.uri().clone().into_parts();
    parts.scheme = Some(hyper::http::uri::Scheme::HTTP);
    parts.authority = upstream.parse().ok();
    *request.uri_mut() = Uri::from_parts(parts).expect("the parts of an address");
    let headers = request.headers_mut();
    headers.insert(HeaderName::from_static("x-forwarded-for"), forwarded);
    if !headers.contains_key(HOST) {
        headers.insert(HOST, HeaderValue::from_static("bench"));
    }
    let mut response = client.request(request).await?;
    response
        .headers_mut()
        .insert(HeaderName::from_static("via"), HeaderValue::from_static("1.1 hyper"));
    Ok(response)
}
