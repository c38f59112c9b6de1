//! Clients that are slow, large, many, or mad; and the end of the server.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{Reply, Running, config, read_reply, request};

const ADA: &str = r#"{"domain":"api","descriptors":[[["user","ada"]]]}"#;

/// The server still answers, whatever else goes on.
async fn assert_unharmed(running: &Running) {
    assert_eq!(running.get("/healthcheck").await.status, 200);
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that the server has reset has ended too.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let running = Running::new().await;
    let mut stream = running.connect().await;
    let head = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    read_reply(&mut stream).await.problem(413);
    // The largest that is taken.
    let body = format!("{ADA}{}", " ".repeat((1 << 20) - ADA.len()));
    assert_eq!(running.post("/v1/check", &body).await.status, 200);
}

#[tokio::test]
async fn a_body_of_unknown_length_has_the_same_bound() {
    let running = Running::new().await;
    let mut stream = running.connect().await;
    let head = "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..20 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert_unharmed(&running).await;
}

#[tokio::test]
async fn chunks_are_put_together() {
    let running = Running::new().await;
    let mut stream = running.connect().await;
    let (first, second) = ADA.split_at(9);
    let text = format!(
        "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    assert_eq!(read_reply(&mut stream).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_given_up() {
    let running = Running::new().await;
    let mut stream = running.connect().await;
    let whole = request("POST", "/v1/check", "", ADA);
    stream.write_all(&whole.as_bytes()[..whole.len() - 1]).await.unwrap();
    let asked = tokio::time::Instant::now();
    read_reply(&mut stream).await.problem(408);
    assert!(asked.elapsed() >= Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_unharmed(&running).await;
}

#[tokio::test(start_paused = true)]
async fn those_who_never_ask_are_given_up() {
    let running = Running::new().await;
    for begin in ["", "P", "POST /v1/check HTTP/1.1\r\nHost:", "PRI * HTTP/2.0\r\n"] {
        let mut stream = running.connect().await;
        stream.write_all(begin.as_bytes()).await.unwrap();
        let asked = tokio::time::Instant::now();
        let answer = read_all(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{begin:?}: {answer}");
        let waited = asked.elapsed();
        assert!((74..=151).contains(&waited.as_secs()), "{begin:?}: {waited:?}");
    }
}

#[tokio::test]
async fn heads_have_a_bound() {
    let running = Running::new().await;
    let mut stream = running.connect().await;
    let text = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(128 << 10));
    let _ = stream.write_all(text.as_bytes()).await;
    let answer = read_all(&mut stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = "X: x\r\n".repeat(1000);
    let reply = running.send("GET", "/healthcheck", &many, "").await;
    assert_eq!(reply.status, 431);
    assert_unharmed(&running).await;
}

#[tokio::test]
async fn garbage_ends_one_connection_and_nothing_else() {
    let running = Running::new().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\x00/ HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"POST /v1/check HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/check HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    ] {
        let mut stream = running.connect().await;
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_all(&mut stream).await;
        assert!(!answer.contains(" 200 "), "{garbage:?}: {answer}");
        assert_unharmed(&running).await;
    }
}

#[tokio::test]
async fn deep_and_odd_json_is_refused() {
    let running = Running::new().await;
    let deep = |open: &str, count: usize| open.repeat(count);
    for body in [
        format!("{{\"checks\":{}", deep("[", 100_000)),
        deep("{\"checks\":[", 50_000),
        format!("{{\"domain\":\"api\",\"descriptors\":{}", deep("[", 100_000)),
        format!("{{\"http\":{}", deep("{\"headers\":", 50_000)),
        "{\"domain\":\"\\ud800\",\"descriptors\":[]}".to_owned(),
        "{\"domain\":\"api\",\"descriptors\":[],\"cost\":99999999999999999999999}".to_owned(),
    ] {
        running.post("/v1/check", &body).await.problem(400);
        assert_eq!(running.post("/json", &body).await.status, 400);
    }
    let huge = format!(
        "{{\"domain\":\"api\",\"descriptors\":[[[\"user\",\"{}\"]]]}}",
        "x".repeat(900_000)
    );
    assert_eq!(running.post("/v1/check", &huge).await.status, 200);
    assert_eq!(
        running
            .post("/v1/check", &ADA.replace("]]]", "]]],\"cost\":18446744073709551615"))
            .await
            .status,
        429
    );
}

#[tokio::test]
async fn many_connections_are_served_and_those_beyond_the_bound_are_closed() {
    let mut config = config();
    config.connections_max = 200;
    let running = Running::with(super::support::RULES, config).await;
    let mut open = Vec::new();
    for _ in 0..200 {
        let mut stream = running.connect().await;
        // Half a request, so that each is known to be there and under way.
        stream.write_all(b"GET /healthcheck HTTP/1.1\r\n").await.unwrap();
        open.push(stream);
    }
    let mut beyond = running.connect().await;
    assert_eq!(read_all(&mut beyond).await, "");
    for mut stream in open {
        stream.write_all(b"Host: x\r\nConnection: close\r\n\r\n").await.unwrap();
        assert_eq!(read_reply(&mut stream).await.status, 200);
    }
}

#[tokio::test]
async fn requests_follow_one_another_on_a_connection() {
    let running = Running::new().await;
    let mut stream = running.connect().await;
    let keep = "GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let text = format!("{keep}{keep}{}", request("GET", "/ready", "", ""));
    stream.write_all(text.as_bytes()).await.unwrap();
    assert_eq!(read_all(&mut stream).await.matches("HTTP/1.1 200 OK").count(), 3);
}

#[tokio::test]
async fn a_request_under_way_gets_its_answer_when_the_server_drains() {
    let running = Running::new().await;
    let idle = running.connect().await;
    let mut under_way = running.connect().await;
    let whole = request("POST", "/v1/check", "", ADA);
    // An answer in between makes sure that the server has got so far.
    let first = "GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let half = &whole.as_bytes()[..whole.len() - 5];
    under_way.write_all(first.as_bytes()).await.unwrap();
    let mut answer = vec![0; 16 << 10];
    let length = under_way.read(&mut answer).await.unwrap();
    assert_eq!(Reply::parse(std::str::from_utf8(&answer[..length]).unwrap()).status, 200);
    under_way.write_all(half).await.unwrap();
    under_way.write_all(b"").await.unwrap();
    let address = running.address();
    // The head of the second request has been read once a third connection was answered.
    assert_unharmed(&running).await;
    let draining = tokio::spawn(running.server.drain());
    let mut idle = idle;
    assert_eq!(read_all(&mut idle).await, "");
    under_way.write_all(&whole.as_bytes()[whole.len() - 5..]).await.unwrap();
    assert_eq!(read_reply(&mut under_way).await.status, 200);
    assert!(draining.await.unwrap(), "everything ended in time");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn health_goes_first_and_the_rest_goes_on_for_a_while() {
    let mut config = config();
    config.drain_delay = Duration::from_secs(3600);
    let running = Running::with(super::support::RULES, config).await;
    let mut stream = running.connect().await;
    stream
        .write_all(request("GET", "/ready", "", "").replace("close", "keep-alive").as_bytes())
        .await
        .unwrap();
    let mut answer = vec![0; 16 << 10];
    let length = stream.read(&mut answer).await.unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200 "));
    let Running { server, .. } = running;
    let address = server.bound().http.to_string();
    let draining = tokio::spawn(server.drain());
    tokio::task::yield_now().await;
    let ask = |path: &'static str| {
        let address = address.clone();
        async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(request("GET", path, "", "").as_bytes()).await.unwrap();
            read_reply(&mut stream).await
        }
    };
    let health = ask("/healthcheck").await;
    assert_eq!((health.status, &*health.body), (500, ""));
    assert_eq!(ask("/ready").await.status, 503);
    assert_eq!(ask("/v1/rules").await.status, 200);
    drop(stream);
    assert!(draining.await.unwrap());
}

#[tokio::test]
async fn http_2_is_spoken_too_and_curl_agrees() {
    let running = Running::new().await;
    let url = format!("http://{}", running.address());
    let curl = |arguments: Vec<String>| async move {
        let run = move || {
            let mut command = std::process::Command::new("curl");
            command.args(["-sS", "--max-time", "20", "-i"]).args(arguments).output()
        };
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        let output = output.expect("curl is missing: run tools/install");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let ask = |version: &str| {
        let check = format!("{url}/v1/check");
        [version, "--json", ADA, &check].map(str::to_owned).to_vec()
    };
    let first = curl(ask("--http2-prior-knowledge")).await;
    assert!(first.starts_with("HTTP/2 200"), "{first}");
    assert!(first.contains("x-ratelimit-remaining: 1\r\n"), "{first}");
    let second = curl(ask("--http1.1")).await;
    assert!(second.starts_with("HTTP/1.1 200 OK"), "{second}");
    let third = curl(ask("--http2-prior-knowledge")).await;
    assert!(third.starts_with("HTTP/2 429"), "{third}");
    assert!(third.contains("retry-after: 30\r\n"), "{third}");
}
