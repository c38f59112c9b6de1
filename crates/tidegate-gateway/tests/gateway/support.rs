//! What the tests need: upstreams of all kinds, clients that say what they like.

use std::convert::Infallible;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tidegate_gateway::{Gateway, GatewayConfig, Open};

/// Long enough for anything that happens at all.
pub(crate) const GUARD: Duration = Duration::from_secs(20);

/// A server that tests look behind a gateway with; it lives as long as the process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many connections have come.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

pub(crate) type Body = BoxBody<Bytes, Infallible>;

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed()
}

/// A server on hyper, of HTTP/1 and HTTP/2.
pub(crate) fn serve<F, H>(handle: H) -> Server
where
    H: Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                count.fetch_add(1, Ordering::SeqCst);
                let handle = handle.clone();
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let answered = handle(request);
                        async move { Ok::<_, Infallible>(answered.await) }
                    });
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ =
                        builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
                });
            }
        });
    });
    Server { address, accepted }
}

/// A server that says what it was asked: the first line, the headers in order, the body, and
/// trailers.
pub(crate) fn echo() -> Server {
    serve(|request| async move {
        let (parts, body) = request.into_parts();
        let mut text = format!("{} {} {:?}\n", parts.method, parts.uri, parts.version);
        let mut lines: Vec<String> = parts
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())))
            .collect();
        lines.sort();
        text.extend(lines);
        match body.collect().await {
            Ok(collected) => {
                let trailers = collected.trailers().cloned();
                text.push('\n');
                text.push_str(&String::from_utf8_lossy(&collected.to_bytes()));
                for (name, value) in trailers.iter().flatten() {
                    text.push_str(&format!("\ntrailer {name}: {}", value.to_str().unwrap()));
                }
            }
            Err(error) => text.push_str(&format!("\nbroken body: {error}")),
        }
        let mut response = Response::new(full(text));
        response.headers_mut().insert("x-upstream", "echo".parse().unwrap());
        response
    })
}

/// A server that handles each connection as it likes, told which one it is.
pub(crate) fn raw_server(handle: impl Fn(TcpStream, usize) + Send + Sync + 'static) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let (count, handle) = (Arc::clone(&accepted), Arc::new(handle));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, handle) = (stream.unwrap(), Arc::clone(&handle));
            let which = count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || handle(stream, which));
        }
    });
    Server { address, accepted }
}

/// Reads a head, and gives it with what came behind it.
pub(crate) fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut one = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut one) {
            Ok(1) => bytes.push(one[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn start(config: GatewayConfig) -> Gateway {
    let mut config = config;
    config.threads = 1;
    Gateway::start(config, Open).unwrap()
}

/// Where a gateway listens that does so at a port.
pub(crate) fn at(gateway: &Gateway) -> SocketAddr {
    gateway.socket_address().expect("a port")
}

pub(crate) fn connect(gateway: &Gateway) -> TcpStream {
    let stream = TcpStream::connect(at(gateway)).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends bytes and reads until the gateway closes.
pub(crate) fn say(gateway: &Gateway, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = connect(gateway);
    stream.write_all(bytes.as_ref()).unwrap();
    read_all(&mut stream)
}

pub(crate) fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&bytes)),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads an answer that tells its length.
pub(crate) fn read_answer(stream: &mut TcpStream) -> String {
    let head = read_head(stream).expect("an answer");
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0usize);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8_lossy(&body)
}

pub(crate) fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20"])
        .args(arguments)
        .output()
        .expect("curl is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

pub(crate) fn url(gateway: &Gateway, path: &str) -> String {
    format!("http://{}{path}", at(gateway))
}

/// The status of an answer.
pub(crate) fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or(answer)
}

/// An address where nobody answers.
pub(crate) fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < GUARD, "never: {what}");
        std::thread::yield_now();
    }
}

/// A real nginx that lives as long as this.
pub(crate) struct Nginx {
    process: std::process::Child,
    pub(crate) address: SocketAddr,
    _dir: tempfile::TempDir,
}

impl Nginx {
    /// With so much in its one server.
    pub(crate) fn start(server: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let address = nobody();
        let path = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p;\n\
             fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
             default_type text/plain;\n\
             server {{ listen {address}; {server} }} }}\n"
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, config).unwrap();
        let process = Command::new("nginx")
            .args(["-p", &path.to_string(), "-c", &file.display().to_string()])
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("nginx is installed");
        let nginx = Self { process, address, _dir: dir };
        until("nginx accepts", || TcpStream::connect(address).is_ok());
        nginx
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
